"""What the commands do with a run: train it, resume it, evaluate it, play it.

A training process holds the run's lock, keeps status.json alive, logs to log.txt, and always leaves
a final state behind. This module knows trainers by their interface only.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import filelock

from workbench.runs.build import build_trained, build_trainer, mlflow_config
from workbench.runs.errors import sentence
from workbench.runs.mlflow_state import settle
from workbench.runs.monitor import RunMonitor, StatusKeeper, StopSignals, display_for_stderr
from workbench.runs.spec import ResolvedRun, SpecError
from workbench.runs.workspace import FAILED, FINISHED, RUNNING, STOPPED, RunFolder, RunStatus, WorkspaceError
from workbench.tracking.base import NullTracker
from workbench.types import Item, RolloutTree

log = logging.getLogger(__name__)
RESUMABLE_KEYS = ("config", "tracking")
"""What `resume` may change; anything else would make it another run."""


def train_run(run: RunFolder, resolved: ResolvedRun) -> RunStatus:
    """Train a new run to its end, or until a signal stops it. Returns the final status.

    Whatever it raises is recorded first: a sentence in status.json, the traceback in log.txt.
    """
    with _session(run):
        return _Training(run, resolved, None, resumes=False).run_to_end()


def resume_run(run: RunFolder, overrides: Sequence[str] = ()) -> RunStatus:
    """Continue from the newest readable checkpoint; without one, start the run over in its folder.

    overrides: `config.key=value` or `tracking.key=value`, stored in the run's spec once training with
    them has begun; when it cannot begin, spec.yaml and status.json stay as they were. Raises
    WorkspaceError when the run is still running, or finished without a checkpoint to go on from.
    """
    check_overrides(overrides)
    with _session(run):
        resolved = run.spec().with_overrides(overrides).resolve()
        checkpoint = _readable_checkpoint(run)
        if run.own_status().state == FINISHED and (checkpoint is None or not overrides):
            raise WorkspaceError(
                f"Run {run.id} is finished; to train longer, resume it with --set config.num_train_epochs=N"
                + (", which needs a checkpoint, and it has none (config.save_interval)." if checkpoint is None else ".")
            )
        settle(run)
        if checkpoint is None:
            log.warning("Run %s has no checkpoint yet; starting it from the beginning.", run.id)
        else:
            log.warning("Resuming run %s from %s.", run.id, checkpoint.name)
        return _Training(run, resolved, checkpoint, resumes=True).run_to_end()


def evaluate_run(run: RunFolder, samples: int | None = None, checkpoint: int | None = None) -> dict[str, float]:
    """`eval/...` metrics of the trained agents on the first `samples` evaluation items (None = all)."""
    resolved = run.spec().resolve()
    items = resolved.task.load_eval_items()
    if items is None:
        raise WorkspaceError(
            f"Task {resolved.task.name!r} has no eval_items; give it some, or look at: workbench play."
        )
    with contextlib.closing(build_trained(run, resolved, checkpoint)) as trainer:
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
    with contextlib.closing(build_trained(run, resolved, checkpoint, untrained)) as trainer:
        trees: list[RolloutTree] = trainer.play([chosen] * samples)
    return trees


def _play_item(resolved: ResolvedRun, index: int) -> Item:
    items = resolved.task.load_eval_items() or resolved.task.load_train_items()
    if not 0 <= index < len(items):
        raise WorkspaceError(f"Task {resolved.task.name!r} has items 0 to {len(items) - 1}; there is no item {index}.")
    return items[index]


class _Training:
    """One process's training of a run, from the first status to the last."""

    def __init__(self, run: RunFolder, resolved: ResolvedRun, checkpoint: Path | None, resumes: bool) -> None:
        self.run, self.resolved, self.checkpoint, self.resumes = run, resolved, checkpoint, resumes
        self.keeper = StatusKeeper(run)
        self.begun = False

    def run_to_end(self) -> RunStatus:
        self.keeper.begin()
        pid, algorithm, task = self.keeper.status.pid, self.resolved.algorithm.name, self.resolved.task.name
        log.info("Process %s trains %s on %s.", pid, algorithm, task)
        for message in self.resolved.warnings:
            log.warning("%s", message)
        with contextlib.closing(display_for_stderr()) as display, StopSignals(self.run.stop_file) as stop:
            try:
                state = self._fit(RunMonitor(self.keeper, display, stop))
            except KeyboardInterrupt:
                log.warning("Interrupted; nothing was saved after the last checkpoint.")
                self._failed(STOPPED, "Interrupted before a checkpoint could be written.")
                raise
            except (Exception, SystemExit) as error:
                log.error("Training failed.", exc_info=True)
                self._failed(FAILED, sentence(error))
                raise
        return self.keeper.finish(state)

    def _failed(self, state: str, error: str) -> None:
        if self.resumes and not self.begun:
            self.keeper.withdraw()  # the run is worth what it was worth before
        else:
            self.keeper.finish(state, error)

    def _fit(self, monitor: RunMonitor) -> str:
        from workbench.tracking.trace_writer import TraceWriter, continue_trace

        with contextlib.ExitStack() as ending:
            # First, since it fails fast where the disk does not allow it.
            trace = (continue_trace if self.resumes else TraceWriter)(self.run.trace_file)
            ending.callback(trace.end, FINISHED)
            trackers = {
                "mlflow_config": mlflow_config(self.run, self.resolved),
                "wandb_config": self.resolved.spec.tracking.wandb,
            }
            trainer = ending.enter_context(contextlib.closing(build_trainer(self.resolved, **trackers)))
            if self.resumes and self.checkpoint is None:
                trace.clear()
            # The trace first: if it cannot go back to the checkpoint, the others must not have started.
            trainer.tracker.trackers.insert(0, trace)
            trainer.tracker.trackers.append(_Beginning(lambda: self._begin(trainer)))
            trainer.monitor = monitor
            trainer.checkpoint_dir = self.run.checkpoint_folder
            trainer.train(resume_from_checkpoint=self.checkpoint)
            return STOPPED if trainer.stopped else self._finish(trainer)

    def _begin(self, trainer: Any) -> None:
        """The trainer is built, restored and tracked: from here on this is what the run is."""
        if self.begun:
            return
        self.run.write_spec(self.resolved.spec)
        self.begun = True
        # Known by its name, since a run without MLflow must not import it.
        mlflow = next((t for t in trainer.tracker.trackers if type(t).__name__ == "MLflowTracker"), None)
        if mlflow is not None and mlflow.run_id is not None:
            self.keeper.note(mlflow_uri=mlflow.uri, mlflow_run=mlflow.run_id)

    def _finish(self, trainer: Any) -> str:
        try:
            _save_model(trainer, self.run)
        except BaseException:
            trainer.tracker.end(
                "FAILED"
            )  # train() ended it as finished, but the run is worth nothing without its model
            raise
        return FINISHED


class _Beginning(NullTracker):
    """The last of the trackers: calls `begun` when a new run was opened or a resumed one was restored."""

    def __init__(self, begun: Callable[[], None]) -> None:
        self.begun = begun

    def begin(self, params: Mapping[str, Any]) -> None:
        self.begun()

    def rewind(self, mark: Mapping[str, Any]) -> None:
        self.begun()


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
        try:
            draft.rename(run.model_folder)
        except OSError:
            if old.exists():
                old.rename(run.model_folder)
            raise
    finally:
        shutil.rmtree(draft.parent, ignore_errors=True)


def check_overrides(overrides: Sequence[str]) -> None:
    """SpecError for one that would make it another run."""
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


@contextlib.contextmanager
def _session(run: RunFolder) -> Iterator[None]:
    """Sole use of the run by this process, with everything logged to its log.txt."""
    lock = filelock.FileLock(run.lock_file)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        status = run.own_status()
        # Another process may hold the run without training it yet, or no longer; the pid is then an old one.
        what = f"running (process {status.pid})" if status.state == RUNNING else "in use by another process"
        raise WorkspaceError(f"Run {run.id} is {what}; stop it or wait for its end.") from None
    try:
        with _logging_to(run.log_file):
            yield
    finally:
        run.stop_file.unlink(missing_ok=True)  # obeyed, or too late
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
