"""A workspace whose runs are started by the real launcher and supervisor, and never outlive the test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fake_run import processes_of

from workbench.runs.workspace import Workspace


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("WORKBENCH_LOCKS", "WORKBENCH_CPU_SLOTS", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    workspace = Workspace(tmp_path / "work")
    yield workspace
    for run in workspace.runs():
        for pid in processes_of(run):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
