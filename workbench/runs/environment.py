"""The environment variables with which this package's own processes run."""

from __future__ import annotations

import os

from workbench.runs.processes import MARK

QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Environment of a command unless the user set it otherwise: no telemetry, no chatter, works offline."""
GPU_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Makes cuda:0 the GPU that nvidia-smi calls 0; CUDA's own order starts with the fastest."""


def trainer_environment(mark: str, cpu_slots: int) -> dict[str, str]:
    """Of a training process. Runs that share the CPU get their share of its threads, unless the user set a number."""
    share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // cpu_slots))} if cpu_slots > 1 else {}
    return {**QUIET, **GPU_ORDER, **share, **os.environ, MARK: mark}
