"""What MLflow says of a run whose process is gone without a word: it must not show it as running for ever."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import filelock

from workbench.runs.workspace import LOST, RUNNING, RunFolder, Workspace


def reconcile(workspace: Workspace) -> None:
    """Mark the MLflow runs of lost runs as failed, once each; mlflow is imported only when there is one to mark."""
    for run in workspace.runs():
        status = run.read_status()
        if status.state != LOST or status.mlflow_run is None or status.mlflow_settled:
            continue
        # Someone who is resuming it does the same; a workspace that cannot be written must still be listed.
        with contextlib.suppress(OSError, filelock.Timeout), filelock.FileLock(run.lock_file, timeout=0):
            settle(run)


def settle(run: RunFolder) -> None:
    """Mark the MLflow run of a lost run as failed and remember that it was tried. For the holder of the run's lock."""
    status = run.read_status()
    if status.state != LOST or status.mlflow_uri is None or status.mlflow_run is None:
        return
    from workbench.tracking.mlflow import FAILED, set_run_state

    set_run_state(status.mlflow_uri, status.mlflow_run, FAILED)  # logs why it could not
    run.write_status(replace(status, state=RUNNING, error=None, mlflow_settled=True))  # reads as lost again
