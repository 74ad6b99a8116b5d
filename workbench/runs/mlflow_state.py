"""What MLflow says of a run whose process is gone without a word: it must not show it as running for ever."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace

import filelock

from workbench.runs.workspace import LOST, RUNNING, STOPPED, RunFolder, RunStatus, Workspace


def reconcile(workspace: Workspace) -> None:
    """Close the MLflow runs of runs that could not do so, once each; mlflow is imported only when there is one."""
    for run in unsettled(workspace):
        # Someone who is resuming it does the same; a workspace that cannot be written must still be listed.
        with contextlib.suppress(OSError, filelock.Timeout), filelock.FileLock(run.lock_file, timeout=0):
            settle(run)


def unsettled(workspace: Workspace) -> list[RunFolder]:
    """The runs that nobody works on and whose MLflow run may still say that it is running."""
    return [run for run in workspace.runs() if _is_open(run.read_status())]


def settle(run: RunFolder) -> None:
    """Close the MLflow run of a run whose process could not: as killed when someone stopped it, else as failed; and
    remember that it was tried. For the holder of the run's lock."""
    status = run.own_status()
    if not _is_open(status):
        return
    from workbench.tracking.mlflow import FAILED, KILLED, set_run_state

    state = KILLED if status.state == STOPPED else FAILED
    set_run_state(str(status.mlflow_uri), str(status.mlflow_run), state)  # logs why it could not
    if status.state == LOST:
        status = replace(status, state=RUNNING, error=None)  # reads as lost again
    run.write_status(replace(status, mlflow_open=False, mlflow_settled=True))


def _is_open(status: RunStatus) -> bool:
    known = status.mlflow_uri is not None and status.mlflow_run is not None
    return known and not status.mlflow_settled and (status.state == LOST or status.mlflow_open)


if __name__ == "__main__":  # the app leaves it to a process of its own, since mlflow is large
    reconcile(Workspace(sys.argv[1]))
