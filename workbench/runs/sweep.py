"""Running a sweep: one ordinary run after the other, each found again by the next call, whatever happened to this one.

A sweep's folder in the workspace remembers which run belongs to which member. The runs are started, queued, stopped and
resumed by workbench.runs.launch, so that the app shows them like any other; a killed sweep leaves the present one
running, and the next call waits for it. This module prints nothing and judges no result.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import filelock
import pydantic

from workbench.runs import launch
from workbench.runs.monitor import StopSignals
from workbench.runs.order import TRAINER
from workbench.runs.spec import SpecError
from workbench.runs.supervision import SAVE, TERMINATE, read_exit
from workbench.runs.sweep_spec import Member, Sweep
from workbench.runs.workspace import (
    ACTIVE,
    CREATED,
    FINISHED,
    LOST,
    STOPPED,
    RunFolder,
    RunStatus,
    Workspace,
    WorkspaceError,
    replace_text,
)
from workbench.tracking.mlflow_parent import ParentRun

RESUMABLE = (STOPPED, LOST, CREATED)
"""States from which the next call goes on by itself. What failed would fail again, unless something was changed."""
POLL_SECONDS = 0.5
LEAVE_SECONDS = 60.0  # for a run that was told to leave at once
NOT_STARTED = "not started"


@dataclass(frozen=True)
class Record:
    """sweep.json. members: key -> run id; mlflow_run: the parent, in the database that the runs name."""

    members: dict[str, str] = field(default_factory=dict)
    mlflow_run: str | None = None


class Watcher(Protocol):
    """Is told how a sweep advances; members are counted from 1."""

    def begins(self, number: int, member: Member, run: RunFolder, how: str) -> None:
        """how: started, resumed, found running."""

    def looks(self, status: RunStatus) -> None:
        """Every POLL_SECONDS, of the present run."""

    def ends(self, number: int, member: Member, run: RunFolder, status: RunStatus) -> None:
        """Also for a run that needed nothing; status.error says what is wrong with one that is not finished."""


class SweepFolder:
    """What the workspace knows of a sweep; reading it creates nothing."""

    def __init__(self, workspace: Workspace, sweep: Sweep) -> None:
        self.workspace, self.sweep = workspace, sweep
        self.path = workspace.root / "sweeps" / sweep.id

    def record(self) -> Record:
        """Empty when the sweep never ran; WorkspaceError when the file is damaged."""
        file = self.path / "sweep.json"
        try:
            return RECORD.validate_json(file.read_bytes())
        except FileNotFoundError:
            return Record()
        except pydantic.ValidationError as error:
            raise WorkspaceError(f"{file} is damaged; remove it, and the sweep starts all its runs anew.") from error

    def write(self, record: Record) -> None:
        replace_text(self.path / "sweep.json", RECORD.dump_json(record, indent=2).decode())

    def runs(self) -> dict[str, RunFolder]:
        """Member key -> its run, in the sweep's order; a deleted run is one that was never started."""
        known = self.record().members
        here = {run.id: run for run in self.workspace.runs()}
        found = {member.key: here.get(known.get(member.key, "")) for member in self.sweep.members}
        return {key: run for key, run in found.items() if run is not None}

    @contextlib.contextmanager
    def sole_use(self) -> Iterator[None]:
        """WorkspaceError while another process directs this sweep."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with filelock.FileLock(self.path / ".lock", timeout=0):
                yield
        except filelock.Timeout:
            raise WorkspaceError(f"The sweep {self.sweep.name!r} is run by another process already.") from None


def run_sweep(
    workspace: Workspace, sweep: Sweep, watcher: Watcher, retry_failed: bool = False, trainer: str = TRAINER
) -> bool:
    """Bring every run of the sweep to its end, one after the other. True when all are finished.

    A finished run is left alone, a stopped or lost one is resumed, a failed one only with retry_failed; a run that ends
    badly does not keep the next one from starting. The first SIGINT, SIGTERM or SIGHUP lets the present run save and
    leave, and the second stops it at once; then KeyboardInterrupt is raised. trainer: as in launch.launch.
    Raises ValueError with one sentence before anything starts, for a run of this sweep that has other settings than
    its file says now.
    """
    folder = SweepFolder(workspace, sweep)
    with folder.sole_use():
        refuse_changed(sweep, folder.runs())
        launch.reconcile(workspace)
        return _Runner(folder, watcher, retry_failed, trainer).run()


def has_work(workspace: Workspace, sweep: Sweep, retry_failed: bool = False) -> bool:
    """True when `run_sweep` would start or resume a run; then workbench.runs.sweep_check is worth its time first."""
    runs = SweepFolder(workspace, sweep).runs()
    return any(_is_to_do(runs.get(member.key), retry_failed) for member in sweep.members)


def refuse_changed(sweep: Sweep, runs: Mapping[str, RunFolder]) -> None:
    """SpecError when a run has other settings than the sweep file says: their results must not be mixed."""
    for member in sweep.members:
        run = runs.get(member.key)
        if run is None:
            continue
        now, then = member.resolved.spec.data(), run.spec().data()
        changed = _changed(then, now)
        if changed:
            raise SpecError(
                f"Run {run.id} of this sweep has other settings than {sweep.file.name} says now "
                f"({', '.join(changed)}); give the sweep another name, or delete that run."
            )


def _changed(then: Mapping[str, object], now: Mapping[str, object], prefix: str = "") -> list[str]:
    found = []
    for key in dict.fromkeys([*then, *now]):
        old, new = then.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _changed(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key}: {old!r} then, {new!r} now")
    return found


def state_of(run: RunFolder | None) -> RunStatus:
    """A member's status for people; error tells of the last end, also of a resume that never began."""
    if run is None:
        return RunStatus(NOT_STARTED)
    status = run.read_status()
    if status.state in (*ACTIVE, FINISHED) or status.error:
        return status
    ended = read_exit(run.exit_file)
    return status if ended is None else replace(status, error=ended.reason)


def _is_to_do(run: RunFolder | None, retry_failed: bool) -> bool:
    state = state_of(run).state
    return state in (NOT_STARTED, *RESUMABLE) or (retry_failed and state not in (FINISHED, *ACTIVE))


class _Runner:
    """One call of run_sweep."""

    def __init__(self, folder: SweepFolder, watcher: Watcher, retry_failed: bool, trainer: str) -> None:
        self.folder, self.watcher, self.retry_failed, self.trainer = folder, watcher, retry_failed, trainer
        self.record = folder.record()
        self.runs = folder.runs()
        self.adopted: set[str] = set()
        tracking = folder.sweep.members[0].resolved.spec.tracking
        uri = tracking.mlflow if isinstance(tracking.mlflow, str) else None
        self.parent = ParentRun(folder.workspace.root, uri, self.record.mlflow_run) if tracking.mlflow else None

    def run(self) -> bool:
        self._open_parent()
        done = {}
        with StopSignals() as stop:
            try:
                for number, member in enumerate(self.folder.sweep.members, start=1):
                    done[member.key] = self._bring_to_its_end(number, member, stop)
                    if stop.requested:
                        raise KeyboardInterrupt
            except BaseException:
                self._close_parent("KILLED")
                raise
        complete = all(state == FINISHED for state in done.values())
        self._close_parent("FINISHED" if complete else "FAILED")
        return complete

    def _bring_to_its_end(self, number: int, member: Member, stop: StopSignals) -> str:
        run, how = self._started(member)
        if how:
            self.watcher.begins(number, member, run, how)
        self._wait(run, stop)
        status = state_of(run)
        self._adopt(status)
        self.watcher.ends(number, member, run, status)
        return status.state

    def _started(self, member: Member) -> tuple[RunFolder, str]:
        """The member's run, and what was done with it: "" for nothing."""
        run = self.runs.get(member.key)
        if run is None:
            run = launch.launch(self.folder.workspace, member.resolved.spec, self._token(member), self.trainer)
            self.runs[member.key] = run
            self._remember(member, run)
            return run, "started"
        if run.read_status().state in ACTIVE:
            return run, "found running"
        if _is_to_do(run, self.retry_failed):
            launch.resume(run, trainer=self.trainer)
            return run, "resumed"
        return run, ""

    def _token(self, member: Member) -> str:
        """Finds the run again that was launched by a sweep that died before it could remember it."""
        digest = hashlib.sha256(member.resolved.spec.dump().encode()).hexdigest()
        return f"sweep {self.folder.sweep.id} {member.key} {digest}"

    def _remember(self, member: Member, run: RunFolder) -> None:
        self.record = replace(self.record, members={**self.record.members, member.key: run.id})
        self.folder.write(self.record)

    def _wait(self, run: RunFolder, stop: StopSignals) -> None:
        asked = False
        try:
            while (status := run.read_status()).state in ACTIVE:
                if stop.requested and not asked:
                    _ask(run, SAVE)
                    asked = True
                self._adopt(status)
                self.watcher.looks(status)
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            _ask(run, TERMINATE)
            deadline = time.monotonic() + LEAVE_SECONDS
            while run.read_status().state in ACTIVE and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
            raise

    # --- MLflow ---------------------------------------------------------------------------------

    def _open_parent(self) -> None:
        if self.parent is None:
            return
        sweep = self.folder.sweep
        experiment = sweep.members[0].resolved.spec.tracking.experiment
        tags = {"sweep": sweep.name, "factor": sweep.factor, "runs": str(len(sweep.members))}
        self.parent.open(experiment, f"sweep {sweep.name}", tags, sweep.text, "sweep.yaml")
        self.record = replace(self.record, mlflow_run=self.parent.run_id)
        self.folder.write(self.record)

    def _adopt(self, status: RunStatus) -> None:
        """Put the run below the sweep's in MLflow, as soon as it has a place there."""
        child, uri = status.mlflow_run, status.mlflow_uri
        if self.parent is not None and child is not None and uri is not None and child not in self.adopted:
            self.adopted.add(child)
            self.parent.adopt(child, uri)

    def _close_parent(self, state: str) -> None:
        if self.parent is not None:
            self.parent.close(state)


def _ask(run: RunFolder, level: str) -> None:
    with contextlib.suppress(WorkspaceError):  # it has just ended
        launch.stop(run, level)


RECORD = pydantic.TypeAdapter(Record)
