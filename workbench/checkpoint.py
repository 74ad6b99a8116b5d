"""Checkpoint folders: written beside their final name and renamed, so a reader never sees half of one."""

from __future__ import annotations

import os
import random
import shutil
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.parallel.handles import WorkerDiedError

VERSION = 3
MODEL_FILE = "model_{}.pt"


def write(
    folder: Path, step: int, state: dict[str, Any], write_models: Sequence[Callable[[Path], Future[None]]]
) -> Path:
    """Store a checkpoint as folder/step-%08d and return that path.

    state: tensors, numbers, text, containers. write_models: each starts to write one model's file.
    """
    target = folder / f"step-{step:08d}"
    draft = folder / f".draft-{step:08d}-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        calls = [start(draft / MODEL_FILE.format(i)) for i, start in enumerate(write_models)]
        wait(calls)  # all of them, so that none still writes when a failure of one takes the draft away
        for call in calls:
            call.result()
        torch.save({"version": VERSION, "models": len(write_models), **state}, draft / "state.pt")
        _swap(draft, target)
    except WorkerDiedError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
        shutil.rmtree(draft, ignore_errors=True)
        raise OSError(
            f"Cannot write the checkpoint {target}: {error}. Free some disk space or change save_interval."
        ) from error
    return target


def _swap(draft: Path, target: Path) -> None:
    """Put the draft in the target's place; an older target is deleted only when the new one stands there."""
    old = draft.with_name(f"{draft.name}-old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    draft.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def read(folder: Path) -> dict[str, Any]:
    """The state stored in one checkpoint folder, "models" being the models' files; ValueError when it is unreadable."""
    path = Path(folder) / "state.pt"
    if not path.is_file():
        raise ValueError(
            f"{folder} is not a checkpoint (it has no state.pt); give a folder such as checkpoints/step-00000120."
        )
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and zipfile raise many types for a damaged file
        raise ValueError(f"The checkpoint {folder} cannot be read ({error}); use an earlier one.") from error
    version = state.get("version") if isinstance(state, dict) else None
    if version != VERSION or "models" not in state:
        raise ValueError(
            f"The checkpoint {folder} has version {version}, or is incomplete; this library reads {VERSION}."
        )
    return {**state, "models": [_model_file(Path(folder), i) for i in range(state["models"])]}


def _model_file(folder: Path, index: int) -> Path:
    file = folder / MODEL_FILE.format(index)
    if not zipfile.is_zipfile(file):  # torch writes zip files, whose directory stands at the end
        raise ValueError(f"The checkpoint {folder} has no readable {file.name}; use an earlier one.")
    return file


def seed_everything(seed: int) -> None:
    """Seed the process's random generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state() -> dict[str, Any]:
    """The process's random states, which user callbacks may draw from."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Inverse of random_state."""
    random.setstate(_tuples(state["python"]))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    for device, generator in zip(range(torch.cuda.device_count()), state["cuda"]):
        torch.cuda.set_rng_state(generator, device)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
