"""What the machine that writes a report is and has installed. A run folder does not say on which one it was trained."""

from __future__ import annotations

import importlib.metadata
import platform

from workbench.runs.hardware import Hardware, probe

PACKAGES = ("marl-workbench", "torch", "transformers", "tokenizers", "safetensors", "numpy", "pandas", "datasets",
            "mlflow", "plotly")  # fmt: skip
GIB = 2**30


def machine(found: Hardware | None = None) -> list[tuple[str, str]]:
    """Names and values; a package that is not installed is left out. found: the hardware, looked at now."""
    hardware = found or probe()
    cpu = hardware.cpu
    gpus = "; ".join(
        f"{gpu.device} {gpu.name}" + (f", {gpu.memory_total / GIB:.0f} GiB" if gpu.memory_total else "")
        for gpu in hardware.gpus
    )
    return [
        ("System", platform.platform(terse=True)),
        ("CPU", f"{cpu.name}, {cpu.cores} cores, {cpu.memory_total / GIB:.1f} GiB of memory"),
        ("GPU", gpus or hardware.note or "none"),
        ("Python", platform.python_version()),
        *((name, version) for name in PACKAGES if (version := _version(name))),
    ]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
