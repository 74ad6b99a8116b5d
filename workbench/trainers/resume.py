"""What a checkpoint holds of a trainer, and how it is put back."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import checkpoint
from workbench.types import Completion, Sample

if TYPE_CHECKING:
    from workbench.trainers.base import Trainer

log = logging.getLogger(__name__)
COUNTERS = ("env_step", "node_count")


def capture(trainer: Trainer) -> dict[str, Any]:
    """Everything but the models that the next item depends on, as plain containers, numbers and tensors."""
    return {
        "algorithm": trainer.algorithm_name,
        "counters": {name: getattr(trainer, name) for name in COUNTERS},
        "cursor": trainer.cursor.state(),
        "buffers": [[dataclasses.asdict(sample) for sample in buffer] for buffer in trainer.buffers],
        "ledger": trainer.ledger.state(),
        "notes": trainer.notes.state(),
        "latest_metrics": trainer.latest_metrics,
        "tracker": trainer.tracker.mark(),
        "random": checkpoint.random_state(),
    }


def save(trainer: Trainer) -> Path:
    """Write a checkpoint; every model writes its own file where it lives."""
    writers = [functools.partial(worker.submit, "write_state") for worker in trainer.workers()]
    path = checkpoint.write(trainer.checkpoint_dir, trainer.cursor.done, capture(trainer), writers)
    log.info("Checkpoint written: %s", path)
    return path


def restore(trainer: Trainer, folder: Path, tracking: bool) -> None:
    """Inverse of save. tracking True: the trackers forget what they saw after the checkpoint."""
    state = checkpoint.read(folder)
    if state["algorithm"] != trainer.algorithm_name:
        raise ValueError(f"The checkpoint is of {state['algorithm']}, not of {trainer.algorithm_name}.")
    if tracking:  # weights alone may be looked at with other data
        trainer.cursor.check(state["cursor"])
    trainer.cursor.load_state(state["cursor"])
    workers = trainer.workers()
    if len(state["models"]) != len(workers):
        raise ValueError(f"The checkpoint holds {len(state['models'])} models, but there are {len(workers)} here.")
    for call in [worker.submit("read_state", file) for worker, file in zip(workers, state["models"])]:
        call.result()
    for name in COUNTERS:
        setattr(trainer, name, state["counters"][name])
    trainer.buffers = [[_sample(sample) for sample in buffer] for buffer in state["buffers"]]
    trainer.ledger.load_state(state["ledger"])
    trainer.notes.load_state(state["notes"])
    trainer.latest_metrics = dict(state["latest_metrics"])
    checkpoint.restore_random_state(state["random"])
    if tracking:
        trainer.tracker.rewind(state["tracker"])


def _sample(values: Mapping[str, Any]) -> Sample:
    completions = tuple(Completion(**c) for c in values["completions"])
    return Sample(**{**values, "completions": completions})
