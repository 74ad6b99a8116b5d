"""What the commands do with a run: train it, resume it, evaluate it, play it.

A training process holds the run's lock, keeps status.json alive, logs to log.txt, and always leaves
a final state behind. This module knows trainers by their interface only.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import filelock

from workbench.runs.build import build_trained, build_trainer, mlflow_config
from workbench.runs.errors import sentence
from workbench.runs.monitor import RunMonitor, StatusKeeper, StopSignals, display_for_stderr
from workbench.runs.spec import ResolvedRun, SpecError
from workbench.runs.workspace import FAILED, FINISHED, STOPPED, RunFolder, RunStatus, WorkspaceError
from workbench.types import Item, RolloutTree

log = logging.getLogger(__name__)
RESUMABLE_KEYS = ("config", "tracking")
"""What `resume` may change; anything else would make it another run."""


def train_run(run: RunFolder, resolved: ResolvedRun) -> RunStatus:
    """Train a new run to its end, or until a signal stops it. Returns the final status.

    Whatever it raises is recorded first: a sentence in status.json, the traceback in log.txt.
    """
    with _session(run):
        return _train(run, resolved, None)


def resume_run(run: RunFolder, overrides: Sequence[str] = ()) -> RunStatus:
    """Continue from the newest readable checkpoint; without one, start the run over in its folder.

    overrides: `config.key=value` or `tracking.key=value`, stored in the run's spec. Raises
    WorkspaceError when the run is still running, or finished without a checkpoint to go on from.
    """
    _check_overrides(overrides)
    with _session(run):
        resolved = run.spec().with_overrides(overrides).resolve()
        checkpoint = _readable_checkpoint(run)
        if run.read_status().state == FINISHED and (checkpoint is None or not overrides):
            raise WorkspaceError(
                f"Run {run.id} is finished; to train longer, resume it with --set config.num_train_epochs=N"
                + (", which needs a checkpoint, and it has none (config.save_interval)." if checkpoint is None else ".")
            )
        run.write_spec(resolved.spec)
        if checkpoint is None:
            log.warning("Run %s has no checkpoint yet; starting it from the beginning.", run.id)
            _forget_trace(run)
        else:
            log.warning("Resuming run %s from %s.", run.id, checkpoint.name)
        return _train(run, resolved, checkpoint)


def evaluate_run(run: RunFolder, samples: int | None = None, checkpoint: int | None = None) -> dict[str, float]:
    """`eval/...` metrics of the trained agents on the first `samples` evaluation items (None = all)."""
    resolved = run.spec().resolve()
    items = resolved.task.load_eval_items()
    if items is None:
        raise WorkspaceError(
            f"Task {resolved.task.name!r} has no eval_items; give it some, or look at: workbench play."
        )
    trainer = build_trained(run, resolved, checkpoint)
    metrics: dict[str, float] = trainer.evaluate(len(items) if samples is None else samples)
    return metrics


def play_run(
    run: RunFolder,
    item: int = 0,
    prompt: str | None = None,
    samples: int = 1,
    checkpoint: int | None = None,
    untrained: bool = False,
) -> list[RolloutTree]:
    """`samples` independent episodes of one item: number `item` of the evaluation items (the training
    items when the task has none), or `{"prompt": prompt}`.
    """
    resolved = run.spec().resolve()
    chosen: Item = {"prompt": prompt} if prompt is not None else _play_item(resolved, item)
    trainer = build_trained(run, resolved, checkpoint, untrained)
    trees: list[RolloutTree] = trainer.play([chosen] * samples)
    return trees


def _play_item(resolved: ResolvedRun, index: int) -> Item:
    items = resolved.task.load_eval_items() or resolved.task.load_train_items()
    if not 0 <= index < len(items):
        raise WorkspaceError(f"Task {resolved.task.name!r} has items 0 to {len(items) - 1}; there is no item {index}.")
    return items[index]


def _train(run: RunFolder, resolved: ResolvedRun, checkpoint: Path | None) -> RunStatus:
    keeper = StatusKeeper(run)
    keeper.begin()
    log.info("Process %s trains %s on %s.", keeper.status.pid, resolved.algorithm.name, resolved.task.name)
    for message in resolved.warnings:
        log.warning("%s", message)
    with contextlib.closing(display_for_stderr()) as display, StopSignals() as stop:
        try:
            state = _fit(run, resolved, checkpoint, RunMonitor(keeper, display, stop))
        except KeyboardInterrupt:
            log.warning("Interrupted; nothing was saved after the last checkpoint.")
            keeper.finish(STOPPED, "Interrupted before a checkpoint could be written.")
            raise
        except (Exception, SystemExit) as error:
            log.error("Training failed.", exc_info=True)
            keeper.finish(FAILED, sentence(error))
            raise
    return keeper.finish(state)


def _fit(run: RunFolder, resolved: ResolvedRun, checkpoint: Path | None, monitor: RunMonitor) -> str:
    from workbench.tracking.trace import TraceWriter

    trace = TraceWriter(run.trace_file)  # first, since it fails fast where the disk does not allow it
    trackers = {"mlflow_config": mlflow_config(run, resolved), "wandb_config": resolved.spec.tracking.wandb}
    trainer = build_trainer(resolved, **trackers)
    trainer.tracker.trackers.append(trace)
    trainer.monitor = monitor
    trainer.checkpoint_dir = run.checkpoint_folder
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.stopped:
        return STOPPED
    try:
        _save_model(trainer, run)
    except BaseException:
        trainer.tracker.end("FAILED")  # train() ended it as finished, but the run is worth nothing without its model
        raise
    return FINISHED


def _save_model(trainer: Any, run: RunFolder) -> None:
    """Write the models aside and swap them in, so that an earlier good model survives a failure."""
    draft = run.path / ".saving" / run.model_folder.name  # keeps the name under which MLflow files it
    old = run.path / ".saving" / "old"
    shutil.rmtree(draft.parent, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        trainer.save_model(draft)
        if run.model_folder.exists():
            run.model_folder.rename(old)
        draft.rename(run.model_folder)
    finally:
        shutil.rmtree(draft.parent, ignore_errors=True)


def _check_overrides(overrides: Sequence[str]) -> None:
    for override in overrides:
        key = override.partition("=")[0].partition(".")[0].strip()
        if key not in RESUMABLE_KEYS:
            raise SpecError(
                f"resume can change {' and '.join(RESUMABLE_KEYS)} but not {key!r}; "
                "start a new run from a copy of spec.yaml."
            )


def _readable_checkpoint(run: RunFolder) -> Path | None:
    from workbench import checkpoint

    for folder in reversed(run.checkpoints().values()):
        try:
            checkpoint.read(folder)
        except ValueError as error:
            log.warning("%s", error)
        else:
            return folder
    return None


def _forget_trace(run: RunFolder) -> None:
    for suffix in ("", "-wal", "-shm"):
        run.trace_file.with_name(run.trace_file.name + suffix).unlink(missing_ok=True)


@contextlib.contextmanager
def _session(run: RunFolder) -> Iterator[None]:
    """Sole use of the run by this process, with everything logged to its log.txt."""
    lock = filelock.FileLock(run.lock_file)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        pid = run.read_status().pid
        raise WorkspaceError(f"Run {run.id} is running (process {pid}); stop it or wait for its end.") from None
    try:
        with _logging_to(run.log_file):
            yield
    finally:
        lock.release()


class _LogFile(logging.FileHandler):
    """A log file that a full disk cannot turn into a traceback on the screen."""

    def handleError(self, record: logging.LogRecord) -> None: ...


@contextlib.contextmanager
def _logging_to(file: Path) -> Iterator[None]:
    """The package's messages from INFO, everyone's warnings, and `warnings.warn` go to the file."""
    handler = _LogFile(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root, ours = logging.getLogger(), logging.getLogger("workbench")
    level = ours.level
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _log_warning
            yield
    finally:
        ours.setLevel(level)
        root.removeHandler(handler)
        handler.close()


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A user's warning as one line on the screen and in the log; those between programmers in the log only."""
    level = logging.WARNING if category is UserWarning else logging.INFO
    log.log(level, "%s", message)
