"""Deleting runs in two steps: into the workspace's trash, from which they come back, and out of it for good."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import filelock

from workbench.runs.locks import exclusive
from workbench.runs.play_process import RUNNING, plays
from workbench.runs.workspace import ACTIVE, RunFolder, Workspace, WorkspaceError

FOLDER = "trash"
STAMP = ".deleted"
"""File in a deleted run: when that was, in seconds since the epoch."""


@dataclass(frozen=True)
class Deleted:
    """A run in the trash. deleted: seconds since the epoch; size: bytes on disk."""

    run: RunFolder
    deleted: float
    size: int


def delete(workspace: Workspace, run: RunFolder) -> None:
    """Move a run to the trash. Raises WorkspaceError while somebody trains it, or plays it in the app."""
    target = workspace.root / FOLDER / run.id
    if target.exists():
        raise WorkspaceError(f"A run {run.id} is in the trash already; empty it or restore that one first.")
    try:
        with exclusive(run.supervisor_lock):
            state = run.read_status().state
            if state in ACTIVE:
                raise WorkspaceError(f"Run {run.id} is {state}; stop it before you delete it.")
            if any(play.state == RUNNING for play in plays(run)):
                raise WorkspaceError(f"Run {run.id} is being played; cancel that, or wait for its end.")
            with filelock.FileLock(run.lock_file, timeout=0):  # whoever closes it in MLflow now
                target.parent.mkdir(exist_ok=True)
                (run.path / STAMP).write_text(str(time.time()), encoding="ascii")
                run.path.rename(target)
    except filelock.Timeout:
        raise WorkspaceError(f"Run {run.id} is in use by another process; wait for its end.") from None


def restore(workspace: Workspace, run_id: str) -> RunFolder:
    """Bring a run back from the trash. Raises WorkspaceError when it is not there, or its place is taken."""
    source, target = _entry(workspace, run_id), workspace.runs_folder / run_id
    if target.exists():
        raise WorkspaceError(f"There is a run {run_id} already; delete that one first.")
    workspace.runs_folder.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    (target / STAMP).unlink(missing_ok=True)
    return RunFolder(target)


def contents(workspace: Workspace) -> list[Deleted]:
    """What is in the trash, the latest first."""
    folder = workspace.root / FOLDER
    paths = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    found = [Deleted(RunFolder(path), _deleted(path), _size(path)) for path in paths]
    return sorted(found, key=lambda entry: entry.deleted, reverse=True)


def empty(workspace: Workspace, run_id: str | None = None) -> int:
    """Delete one run in the trash for good, or all of them; returns how many. Raises OSError when the disk refuses."""
    paths = [_entry(workspace, run_id)] if run_id is not None else [entry.run.path for entry in contents(workspace)]
    for path in paths:
        shutil.rmtree(path)
    return len(paths)


def _entry(workspace: Workspace, run_id: str) -> Path:
    """A run in the trash by its id, which is a name and not a path."""
    known = {entry.run.id: entry.run.path for entry in contents(workspace)}
    if run_id not in known:
        raise WorkspaceError(f"There is no run {run_id!r} in the trash of {workspace.root}.")
    return known[run_id]


def _deleted(path: Path) -> float:
    try:
        return float((path / STAMP).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return path.stat().st_mtime


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())
