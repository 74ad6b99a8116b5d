"""What MLflow says of a run whose process was killed: failed, said once, and without loading mlflow for nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_trainer import FakeTrainer, fail_with
from shell import Shell

import workbench.tracking.mlflow
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.tracking.base import NullTracker
from workbench.tracking.mlflow import MLflowTracker

GONE = {"pid": 2**22 + 1, "process_started": 1.0}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What MLflow was told."""
    calls: list[tuple[str, str, str]] = []
    monkeypatch.setattr(workbench.tracking.mlflow, "set_run_state", lambda *said: calls.append(said))
    return calls


def lost(workspace: Workspace, run: RunFolder) -> RunFolder:
    status = replace(run.read_status(), state="running", mlflow_uri="sqlite:///x.db", mlflow_run="abc", **GONE)
    run.write_status(status)
    return run


def test_the_run_remembers_where_mlflow_keeps_it(shell: Shell) -> None:
    class MLflowTracker(NullTracker):  # found by its name
        uri, run_id = "sqlite:///x.db", None

        def begin(self, params: Any) -> None:
            self.run_id = "abc"

    def during(trainer: FakeTrainer) -> None:
        seen.append(json.loads(shell.run.status_file.read_text()))

    seen: list[dict[str, Any]] = []
    FakeTrainer.building = lambda trainer: trainer.tracker.trackers.append(MLflowTracker())
    FakeTrainer.during = during
    assert shell.train().exit_code == 0
    assert (seen[0]["mlflow_uri"], seen[0]["mlflow_run"]) == ("sqlite:///x.db", "abc")  # at once, not at the end
    assert shell.run.read_status().mlflow_run == "abc"


@pytest.mark.parametrize("command", ["runs", "train", "resume"])
def test_a_lost_run_is_settled_once(shell: Shell, told: list[tuple[str, str, str]], command: str) -> None:
    shell.train()
    first = lost(shell.workspace, shell.run)
    assert (
        shell(*{"runs": ["runs"], "train": ["train", shell.spec], "resume": ["resume", first.id]}[command]).exit_code
        == 0
    )
    assert set(told) == {("sqlite:///x.db", "abc", "FAILED")}
    count = len(told)
    status = first.read_status()
    if command != "resume":
        assert (status.state, status.mlflow_settled) == ("lost", True)
        assert "workbench resume" in str(status.error)
        assert json.loads(first.status_file.read_text())["error"] is None
    shell("runs")
    assert len(told) == count


def test_a_lost_run_that_cannot_be_resumed_stays_lost_and_settled(
    shell: Shell, told: list[tuple[str, str, str]]
) -> None:
    shell.train()
    run = lost(shell.workspace, shell.run)
    FakeTrainer.building = fail_with(ValueError("no device"))
    assert shell("resume", run.id).exit_code == 1
    assert (run.read_status().state, run.read_status().mlflow_settled, bool(told)) == ("lost", True, True)


def test_listing_runs_loads_no_mlflow_when_there_is_nothing_to_tell(shell: Shell) -> None:
    shell.train()
    run = lost(shell.workspace, shell.run)
    run.write_status(RunStatus("running", mlflow_uri="x", mlflow_run="y", mlflow_settled=True, **GONE))  # type: ignore[arg-type]
    code = (
        "import sys\nfrom workbench.runs.workspace import Workspace\n"
        "from workbench.runs.mlflow_state import reconcile\nfrom workbench.terminal import show_runs\n"
        f"w = Workspace({str(shell.workspace.root)!r})\nreconcile(w)\nshow_runs(w)\n"
        "sys.exit('mlflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_mlflow_itself_shows_a_killed_run_as_failed(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = MLflowTracker({"workspace": str(tmp_path / "tracked")})
    tracker.begin({})
    shell.train()
    run = lost(shell.workspace, shell.run)
    run.write_status(replace(run.read_status(), state="running", mlflow_uri=tracker.uri, mlflow_run=tracker.run_id))
    assert tracker._mlflow.get_run(tracker.run_id).info.status == "RUNNING"
    assert shell("runs").exit_code == 0
    assert tracker._mlflow.get_run(tracker.run_id).info.status == "FAILED"
