"""What the machine has, read from a real process named nvidia-smi that says what real ones say."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from workbench.runs import hardware
from workbench.runs.hardware import Gpu, GpuProcess, probe, visible

GPUS = """\
0, GPU-aaaa-1, NVIDIA H200, 143771, 140000, 3, Disabled
1, GPU-bbbb-2, NVIDIA H200, 143771, 1000, 97, Disabled
"""
MIB = 2**20


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Make `script` the machine's nvidia-smi."""
    file = folder / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def says(gpus: str, apps: str = "") -> str:
    return f'case "$1" in --query-gpu=*) printf "%s" \'{gpus}\';; *) printf "%s" \'{apps}\';; esac'


def test_gpus_with_memory_and_who_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apps = f"GPU-bbbb-2, {os.getpid()}, 5000, python, with a comma\nGPU-bbbb-2, 4194303, [N/A], [Not Found]\n"
    install(tmp_path, monkeypatch, says(GPUS, apps))
    found = probe()
    assert found.note is None
    assert found.default_device() == "cuda:0"
    first, second = found.gpus
    assert first == Gpu("cuda:0", 0, "GPU-aaaa-1", "NVIDIA H200", 143771 * MIB, 140000 * MIB, 3.0)
    assert second.processes == (
        GpuProcess(os.getpid(), "python, with a comma", 5000 * MIB, psutil.Process().username()),
        GpuProcess(4194303, "[Not Found]"),  # of another container
    )
    assert found.free_memory("cuda") == found.free_memory("cuda:0") == 140000 * MIB
    assert found.free_memory("cuda:9") is None
    assert found.free_memory("cpu") == found.cpu.memory_free


def test_what_the_driver_does_not_tell_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With MIG the memory and the use of the whole GPU are not told."""
    install(tmp_path, monkeypatch, says("0, GPU-aaaa-1, NVIDIA A100, [N/A], [N/A], [N/A], Enabled\nbroken line\n"))
    (gpu,) = probe().gpus
    assert gpu == Gpu("cuda:0", 0, "GPU-aaaa-1", "NVIDIA A100", None, None, None, mig=True)


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("echo 'No devices were found.'; exit 6", "No GPU: nvidia-smi failed (No devices were found)."),
        ("exit 9", "No GPU: nvidia-smi failed (Command"),
        ("true", "No GPU: nvidia-smi lists none."),
    ],
)
def test_a_broken_driver_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, note: str) -> None:
    install(tmp_path, monkeypatch, script)
    found = probe()
    assert found.gpus == ()
    assert str(found.note).startswith(note)
    assert found.default_device() == "cpu"


def test_a_driver_that_hangs_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(hardware, "SMI_SECONDS", 0.2)
    assert "timed out" in str(probe().note)


def test_a_machine_without_a_gpu_has_its_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe()
    assert found.note == "No GPU: the program nvidia-smi is not installed."
    assert found.cpu.name
    assert found.cpu.cores >= 1
    assert 0 < found.cpu.memory_free <= found.cpu.memory_total


@pytest.mark.parametrize(
    ("limit", "used", "total", "free"),
    [("max", 5, 2**40, 2**39), (1000, 400, 1000, 600), (1000, 1400, 1000, 0), (2**41, 0, 2**40, 2**39)],
)
def test_a_containers_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: object, used: int, total: int, free: int
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    machine = psutil.virtual_memory()._replace(total=2**40, available=2**39)
    monkeypatch.setattr(hardware, "CGROUP", tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine)
    cpu = probe().cpu
    assert (cpu.memory_total, cpu.memory_free) == (total, free)


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-b", [1]),
        ("", []),
        ("-1", []),
        ("1,9,0", [1]),  # CUDA ignores what follows an entry that it does not know
        (" 1 , 2", [1, 2]),
    ],
)
def test_torch_numbers_the_visible_ones(setting: str | None, indices: list[int]) -> None:
    gpus = [Gpu("", i, f"GPU-{letter}", "x") for i, letter in enumerate("abc")]
    found = visible(gpus, setting)
    assert [gpu.index for gpu in found] == indices
    assert [gpu.device for gpu in found] == [f"cuda:{i}" for i in range(len(indices))]


def test_hidden_gpus_are_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, says(GPUS))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert probe().note == "No GPU: CUDA_VISIBLE_DEVICES='' hides all 2."


@pytest.mark.parametrize("module", ["hardware", "memory_plan", "launch", "supervisor", "trash"])
def test_none_of_it_loads_torch(module: str) -> None:
    code = (
        f"import sys, workbench.runs.{module} as m\n"
        "if hasattr(m, 'probe'): m.probe()\n"
        "print([m for m in ('torch', 'transformers', 'mlflow', 'streamlit') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
