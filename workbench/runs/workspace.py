"""The workspace: run folders on disk, found, created and read without starting anything.

Disk is the truth. A run appears all at once and its status is replaced as a whole, so that readers
never see half of either. This module knows neither trainers nor models.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import threading
import time
import unicodedata
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import pydantic

from workbench.fields import did_you_mean
from workbench.runs.processes import Identity
from workbench.runs.spec import RunSpec
from workbench.runs.supervision import Supervision, read_supervision

CREATED, RUNNING = "created", "running"
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
QUEUED, LOST, DAMAGED, UNKNOWN = "queued", "lost", "damaged", "unknown"  # only ever read, never written
STATES = (CREATED, RUNNING, FINISHED, STOPPED, FAILED)
ACTIVE = (QUEUED, RUNNING)
"""States of a run that somebody is working on."""
CHECKPOINT = re.compile(r"step-(\d+)")
SLUG_BYTES = 80  # of a run's name in its id, so that the folder's name stays far below every file system's limit
YEAR_9999 = 253402300799  # the last second that every platform can show as a date
Time = Annotated[float, pydantic.Field(ge=0, le=YEAR_9999)]
Count = Annotated[int, pydantic.Field(ge=0, le=2**53)]


class WorkspaceError(ValueError):
    """A run or workspace that cannot be found or written; the message is one sentence with the remedy."""


@dataclass(frozen=True)
class RunStatus:
    """What status.json says. Times are seconds since the epoch, step and total count items.

    state: created, running, finished, stopped, failed; readers also see queued (a supervisor has it and
    waits for its devices), lost (its process is gone), damaged (unreadable file) and unknown (no file).
    phase: load, rollout, reward, update, eval, save; start and end while the process starts and is cleared away.
    process_started: with pid, the identity of the process, since pids are used again. mlflow_uri and
    mlflow_run: where MLflow keeps this run, once that is known; mlflow_settled: this process is gone, and
    MLflow was told (see workbench.runs.mlflow_state); mlflow_open: the process could not close its MLflow run
    itself. memory: the most bytes used so far per device, see workbench.runs.monitor.
    """

    state: str
    phase: str = ""
    step: Count = 0
    total: Count = 0
    reward: float | None = None  # latest logged mean reward
    pid: Annotated[int, pydantic.Field(ge=1, le=2**31 - 1)] | None = None
    process_started: Time | None = None
    started: Time | None = None
    heartbeat: Time | None = None
    ended: Time | None = None
    error: str | None = None
    mlflow_uri: str | None = None
    mlflow_run: str | None = None
    mlflow_settled: bool = False
    mlflow_open: bool = False
    memory: dict[str, Count] | None = None

    def process(self) -> Identity | None:
        """The process that wrote this, as far as it is known."""
        return Identity(self.pid, self.process_started) if self.pid and self.process_started is not None else None

    def process_alive(self) -> bool:
        """True while the process that wrote this still runs."""
        process = self.process()
        return process is not None and process.alive()

    def written_by(self, process: Identity) -> bool:
        return self.pid == process.pid and self.process_started is not None and process.started_at(self.process_started)


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def spec_file(self) -> Path:
        return self.path / "spec.yaml"

    @property
    def status_file(self) -> Path:
        return self.path / "status.json"

    @property
    def log_file(self) -> Path:
        return self.path / "log.txt"

    @property
    def lock_file(self) -> Path:
        return self.path / ".lock"

    @property
    def supervision_file(self) -> Path:
        return self.path / "supervisor.json"

    @property
    def supervisor_lock(self) -> Path:
        """Held for moments, by whoever gives the run to a supervisor or takes it away."""
        return self.path / ".supervisor.lock"

    @property
    def stop_file(self) -> Path:
        return self.path / "stop"

    @property
    def exit_file(self) -> Path:
        return self.path / "exit.json"

    @property
    def trace_file(self) -> Path:
        return self.path / "trace.db"

    @property
    def checkpoint_folder(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model_folder(self) -> Path:
        return self.path / "model"

    def spec(self) -> RunSpec:
        """The resolved spec; SpecError when it is missing or damaged."""
        return RunSpec.load(self.spec_file)

    def checkpoints(self) -> dict[int, Path]:
        """Complete checkpoints by step, oldest first."""
        if not self.checkpoint_folder.is_dir():
            return {}
        found = {}
        for folder in self.checkpoint_folder.iterdir():
            match = CHECKPOINT.fullmatch(folder.name)
            if match and (folder / "state.pt").is_file():
                found[int(match[1])] = folder
        return dict(sorted(found.items()))

    def read_status(self) -> RunStatus:
        """The status as a reader should show it; never raises for a bad file, see RunStatus.state."""
        status = self.own_status()
        if status.state == RUNNING:
            return status
        supervision = read_supervision(self.supervision_file)
        # The file may have been replaced, and the supervisor gone, between the two readings.
        return _supervised(self, self.own_status(), supervision) if supervision is not None else status

    def own_status(self) -> RunStatus:
        """What the run's last training process said, whoever else has the run now."""
        try:
            status = _status_from(self.status_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return RunStatus(UNKNOWN, error="status.json is missing.")
        except (OSError, ValueError) as error:
            return RunStatus(DAMAGED, error=f"status.json cannot be read ({' '.join(str(error).split())}).")
        if status.state == RUNNING and not status.process_alive():
            reason = f"Process {status.pid} is gone without a word; continue with: workbench resume {self.id}"
            return replace(status, state=LOST, error=reason)
        return status

    def write_status(self, status: RunStatus) -> None:
        """Replace status.json as a whole."""
        replace_text(self.status_file, json.dumps(asdict(status), indent=2) + "\n")

    def overwrite_status(self, status: RunStatus) -> None:
        """Write over status.json where it lies: the last resort on a full disk, since it needs no new space."""
        with self.status_file.open("r+", encoding="utf-8") as file:
            file.write(json.dumps(asdict(status)) + "\n")
            file.truncate()

    def write_supervision(self, supervision: Supervision) -> None:
        """Replace supervisor.json as a whole."""
        replace_text(self.supervision_file, supervision.dump())

    def write_spec(self, spec: RunSpec) -> None:
        """Replace spec.yaml as a whole."""
        replace_text(self.spec_file, spec.dump())


class Workspace:
    """A folder whose `runs/` holds one folder per run. `root` need not exist before the first run."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().resolve()
        self.runs_folder = self.root / "runs"

    def create_run(self, spec: RunSpec) -> RunFolder:
        """A new run folder with its spec and a status. Raises OSError when the disk refuses."""
        self.runs_folder.mkdir(parents=True, exist_ok=True)
        run = RunFolder(
            self.runs_folder / f"{_slug(spec.name)}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        )
        draft = RunFolder(self.runs_folder / f".{run.id}")  # hidden, so that listings pass over it
        try:
            draft.checkpoint_folder.mkdir(parents=True)
            draft.write_spec(spec)
            draft.log_file.touch()
            draft.write_status(RunStatus(CREATED, started=time.time()))
            draft.path.rename(run.path)
        except BaseException:
            shutil.rmtree(draft.path, ignore_errors=True)
            raise
        return run

    def runs(self) -> list[RunFolder]:
        """All runs, newest first; folders that are not runs are passed over."""
        if not self.runs_folder.is_dir():
            return []
        found = [RunFolder(path) for path in self.runs_folder.iterdir() if _is_run(path)]
        return sorted(found, key=lambda run: (run.read_status().started or _changed(run.path), run.id), reverse=True)

    def run(self, id_or_path: str) -> RunFolder:
        """A run by its id in this workspace or by its folder; WorkspaceError with a suggestion."""
        for path in (self.runs_folder / id_or_path, Path(id_or_path).expanduser()):
            if id_or_path and _is_run(path):
                return RunFolder(path.resolve())
        hint = did_you_mean(id_or_path, [run.id for run in self.runs()])
        raise WorkspaceError(f"There is no run {id_or_path!r} in {self.root}{hint}; list them with: workbench runs")


def replace_text(path: Path, text: str) -> None:
    """Write a file so that readers see the old text or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk does not name the file


def _supervised(run: RunFolder, status: RunStatus, supervision: Supervision) -> RunStatus:
    """The status of a run that a supervisor has or had; until its trainer spoke, status is that of an earlier life."""
    trainer, watched = supervision.trainer, supervision.supervisor.alive()
    if trainer is not None and status.written_by(trainer):
        return replace(status, state=RUNNING, phase="end", error=None) if watched and status.state == LOST else status
    now = replace(status, error=None, ended=None)
    if trainer is not None and (watched or trainer.alive()):
        return replace(now, state=RUNNING, phase="start", pid=trainer.pid, process_started=trainer.started)
    if watched:
        owner = supervision.supervisor
        return replace(now, state=QUEUED, phase="", pid=owner.pid, process_started=owner.started)
    if status.state == CREATED:
        reason = f"Its supervisor is gone and training never began; start it with: workbench resume {run.id}"
        return replace(status, state=LOST, error=reason)
    return status


def _slug(name: str) -> str:
    """A name as part of a folder's name: its letters and digits, of any script, in lower case."""
    kept = (c if c.isalnum() or unicodedata.category(c).startswith("M") else "-" for c in name.lower())
    text = re.sub("-+", "-", unicodedata.normalize("NFC", "".join(kept))).strip("-")
    return text.encode()[:SLUG_BYTES].decode(errors="ignore").strip("-") or "run"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted since it was listed
        return 0.0


def _is_run(path: Path) -> bool:
    hidden = path.name.startswith(".")
    # os.path, since a Path raises OSError for a name that is too long to exist
    return not hidden and os.path.isdir(path) and any(os.path.exists(path / n) for n in ("spec.yaml", "status.json"))


def _status_from(text: str) -> RunStatus:
    """Raises ValueError when the text is not a status. Keys of newer versions are passed over."""
    try:
        status = STATUS.validate_json(text)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'text'}: {first['msg']}") from error
    if status.state not in STATES:
        raise ValueError(f"it holds an unknown state {status.state!r}")
    return status


STATUS = pydantic.TypeAdapter(RunStatus)
