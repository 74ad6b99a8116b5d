"""What this machine can train on, found without torch: the CPU, and NVIDIA's GPUs as `nvidia-smi` shows them.

GPUs carry the names that torch will use in a training process (see environment.GPU_ORDER), and only those are listed
that CUDA_VISIBLE_DEVICES lets it see. What a driver does not tell, as with MIG, is None.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

SMI = "nvidia-smi"
SMI_SECONDS = 15.0  # a driver that has to wake up takes several
MIB = 2**20
GPU_FIELDS = ("index", "uuid", "name", "memory.total", "memory.free", "utilization.gpu", "mig.mode.current")
APP_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class GpuProcess:
    """Who uses a GPU. memory: bytes. user: None where the process is not visible from here, as in a container."""

    pid: int
    name: str
    memory: int | None = None
    user: str | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU. device: its name for a run, such as "cuda:0". Memory in bytes, utilization in per cent. mig: it is split
    into instances, of which the driver tells neither memory nor processes here."""

    device: str
    index: int
    uuid: str
    name: str
    memory_total: int | None = None
    memory_free: int | None = None
    utilization: float | None = None
    mig: bool = False
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class Cpu:
    """The processor. Memory in bytes, as far as this process may use it: a container's limit counts."""

    name: str
    cores: int
    memory_total: int
    memory_free: int
    device: str = "cpu"


@dataclass(frozen=True)
class Hardware:
    """note: why there is no GPU, one sentence, None when there are some."""

    cpu: Cpu
    gpus: tuple[Gpu, ...] = ()
    note: str | None = None

    def default_device(self) -> str:
        """Where a run goes that names no device: the first GPU, else the CPU."""
        return self.gpus[0].device if self.gpus else self.cpu.device

    def free_memory(self, device: str) -> int | None:
        """Bytes free on a device; None when it is not here, or does not tell."""
        if device == self.cpu.device:
            return self.cpu.memory_free
        return next((gpu.memory_free for gpu in self.gpus if gpu.device == canonical(device)), None)


def canonical(device: str) -> str:
    """ "cuda" is the first GPU."""
    return "cuda:0" if device == "cuda" else device


def probe() -> Hardware:
    """Look now; takes up to a second where there are GPUs. Never raises for a missing or broken driver."""
    gpus, note = _gpus(os.environ)
    return Hardware(_cpu(), gpus, note)


def _cpu() -> Cpu:
    memory = psutil.virtual_memory()
    limit, used = _cgroup_number("memory.max"), _cgroup_number("memory.current")
    total, free = memory.total, memory.available
    if limit is not None and limit < total:
        total, free = limit, min(free, limit - (used or 0))
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Cpu(_cpu_name(), cores, total, max(free, 0))


def _cgroup_number(name: str) -> int | None:
    try:
        text = (CGROUP / name).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is no limit


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine() or "CPU"


def _gpus(environment: Mapping[str, str]) -> tuple[tuple[Gpu, ...], str | None]:
    try:
        rows = _query("--query-gpu", GPU_FIELDS)
        apps = _query("--query-compute-apps", APP_FIELDS)
    except FileNotFoundError:
        return (), f"No GPU: the program {SMI} is not installed."
    except (OSError, subprocess.SubprocessError) as error:
        said = error.stdout if isinstance(error, subprocess.CalledProcessError) and error.stdout else str(error)
        return (), f"No GPU: {SMI} failed ({' '.join(said.split()).rstrip('.')})."
    found = [_gpu(row, [app for app in apps if app["gpu_uuid"] == row["uuid"]]) for row in rows]
    chosen = visible(found, environment.get("CUDA_VISIBLE_DEVICES"))
    if found and not chosen:
        return (), f"No GPU: CUDA_VISIBLE_DEVICES={environment.get('CUDA_VISIBLE_DEVICES')!r} hides all {len(found)}."
    return chosen, None if chosen else f"No GPU: {SMI} lists none."


def _query(what: str, names: Sequence[str]) -> list[dict[str, str]]:
    command = [SMI, f"{what}={','.join(names)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_SECONDS, check=True)
    # The last field may hold commas, the others cannot.
    rows = [line.split(",", len(names) - 1) for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(names, (value.strip() for value in row))) for row in rows if len(row) == len(names)]


def _gpu(row: Mapping[str, str], apps: Sequence[Mapping[str, str]]) -> Gpu:
    utilization = _number(row["utilization.gpu"])
    return Gpu(
        device="",  # given by `visible`
        index=_number(row["index"]) or 0,
        uuid=row["uuid"],
        name=row["name"],
        memory_total=_bytes(row["memory.total"]),
        memory_free=_bytes(row["memory.free"]),
        utilization=None if utilization is None else float(utilization),
        mig=row["mig.mode.current"] == "Enabled",
        processes=tuple(_process(app) for app in apps if _number(app["pid"]) is not None),
    )


def _process(app: Mapping[str, str]) -> GpuProcess:
    pid = int(app["pid"])
    try:
        user = psutil.Process(pid).username() if pid > 0 else None
    except (psutil.Error, KeyError):
        user = None
    return GpuProcess(pid, app["process_name"], _bytes(app["used_memory"]), user)


def _bytes(text: str) -> int | None:
    number = _number(text)
    return None if number is None else number * MIB


def _number(text: str) -> int | None:
    """None for "[N/A]", "[Not Supported]" and the like."""
    return int(text) if text.isdigit() else None


def visible(gpus: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES names, in its order and with torch's names; all of them when it is not set.

    As in CUDA, it lists indices or beginnings of UUIDs, and what follows an entry that matches nothing is ignored.
    """
    chosen = list(gpus)
    if setting is not None:
        chosen = []
        for entry in setting.split(","):
            match = next((gpu for gpu in gpus if _named(gpu, entry.strip())), None)
            if match is None or match in chosen:
                break
            chosen.append(match)
    return tuple(replace(gpu, device=f"cuda:{i}") for i, gpu in enumerate(chosen))


def _named(gpu: Gpu, entry: str) -> bool:
    if entry.isdigit():
        return gpu.index == int(entry)
    return entry.startswith(("GPU-", "MIG-")) and (gpu.uuid.startswith(entry) or (gpu.mig and entry.startswith("MIG-")))
