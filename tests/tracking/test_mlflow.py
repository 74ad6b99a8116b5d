"""MLflow: what a run leaves in the database, several runs on a new workspace, and failures that stop nothing."""

from __future__ import annotations

import logging
import math
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.tracking import MLflowTracker, build_trackers
from workbench.tracking.mlflow import flatten, init_database, mlflow_uri, set_run_state

LOGGER = "workbench.tracking.mlflow"


@pytest.fixture(autouse=True)
def no_uri_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One initialised database for the module: creating it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        folder = tmp_path_factory.mktemp("a workspace")
        init_database(mlflow_uri(folder))
        yield folder


@pytest.fixture(scope="module")
def client(workspace: Path) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{workspace}/mlflow.db")


def begun(workspace: Path, **config: Any) -> MLflowTracker:
    tracker = MLflowTracker({"workspace": str(workspace), **config})
    tracker.begin({"algorithm": "magrpo", "config": {"num_turns": 1}})
    assert tracker.run_id is not None
    return tracker


def history(client: Any, tracker: MLflowTracker, key: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client.get_metric_history(tracker.run_id, key)]


def test_the_uri_is_absolute_and_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert mlflow_uri(".") == f"sqlite:////{str(tmp_path.resolve()).lstrip('/')}/mlflow.db"
    assert mlflow_uri(tmp_path, "sqlite:///sub/my.db?timeout=5") == f"sqlite:///{tmp_path}/sub/my.db?timeout=5"
    assert mlflow_uri(tmp_path, "http://127.0.0.1:5000") == "http://127.0.0.1:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5001")
    assert mlflow_uri(tmp_path) == "http://127.0.0.1:5001"
    assert mlflow_uri(tmp_path, "http://127.0.0.1:5000") == "http://127.0.0.1:5000"


def test_flatten_joins_names_and_keeps_lists_readable() -> None:
    nested = {"a": {"b": {"c": 1}, "d": {}}, "agents": ["x", "y"], "critic": None}
    assert flatten(nested) == {"a.b.c": "1", "a.d": "{}", "agents": '["x", "y"]', "critic": "None"}


def test_unknown_keys_are_named() -> None:
    with pytest.raises(ValueError, match=r"no key 'experimnt' \(did you mean 'experiment'\?\)"):
        MLflowTracker({"experimnt": "x"})


def test_a_run_leaves_params_tags_spec_and_metrics(workspace: Path, client: Any, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("task: echo\n")
    tracker = MLflowTracker(
        {"workspace": workspace, "run_name": "first", "tags": {"task": "echo"}, "spec": tmp_path / "spec.yaml"}
    )
    many = {f"p{i}": i for i in range(150)}  # more than one batch holds
    tracker.begin({"algorithm": "magrpo", "config": {"num_turns": 2, "odd[name]": "x" * 7000}, **many})
    tracker.metrics(4, {"turn_1/reward_mean": 0.25, "bad//name[0]": 1.0})
    tracker.metrics(8, {"turn_1/reward_mean": 0.5})
    run = client.get_run(tracker.run_id)
    assert client.get_experiment(run.info.experiment_id).name == "marl-workbench"
    assert (run.info.run_name, run.info.status, run.data.tags["task"]) == ("first", "RUNNING", "echo")
    assert len(run.data.params) == 153
    assert run.data.params["config.num_turns"] == "2"
    assert run.data.params["config.odd_name_"] == "x" * 6000
    assert history(client, tracker, "turn_1/reward_mean") == [(4, 0.25), (8, 0.5)]
    assert run.data.metrics["bad/name_0_"] == 1.0
    assert [file.path for file in client.list_artifacts(tracker.run_id)] == ["spec.yaml"]
    assert run.info.artifact_uri.startswith(f"{workspace.resolve()}/mlartifacts/")


def test_values_that_are_not_finite_do_no_harm(workspace: Path, client: Any, caplog: pytest.LogCaptureFixture) -> None:
    tracker = begun(workspace)
    tracker.metrics(1, {"loss": math.nan, "kl": math.inf, "reward": 1.0})
    values = client.get_run(tracker.run_id).data.metrics
    assert math.isnan(values["loss"])
    assert math.isnan(values["kl"])
    assert values["reward"] == 1.0
    assert not caplog.records


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED"])
def test_the_state_at_the_end(workspace: Path, client: Any, state: str) -> None:
    tracker = begun(workspace)
    tracker.end(state)
    info = client.get_run(tracker.run_id).info
    assert info.status == state
    assert info.end_time is not None
    tracker.end(state)
    assert client.get_run(tracker.run_id).info.end_time == info.end_time  # the second call changes nothing


def test_artifacts_are_really_there_also_after_the_end(workspace: Path, client: Any, tmp_path: Path) -> None:
    agent = tmp_path / "model" / "agent_0"
    agent.mkdir(parents=True)
    (agent / "weights.bin").write_bytes(b"123")
    tracker = begun(workspace)
    tracker.end("FINISHED")
    tracker.artifacts(tmp_path / "model")
    assert [file.path for file in client.list_artifacts(tracker.run_id, "model/agent_0")] == [
        "model/agent_0/weights.bin"
    ]
    stored = Path(client.get_run(tracker.run_id).info.artifact_uri) / "model" / "agent_0" / "weights.bin"
    assert stored.read_bytes() == b"123"
    assert stored.is_absolute()


def test_a_resumed_run_goes_on_without_repeating_points(workspace: Path, client: Any) -> None:
    first = begun(workspace)
    first.metrics(2, {"a": 0.1})
    mark = first.mark()
    assert mark == {"run_id": first.run_id}
    first.metrics(4, {"a": 0.2})
    first.end("KILLED")
    second = MLflowTracker({"workspace": workspace})
    second.rewind(mark)
    assert second.run_id == first.run_id
    assert client.get_run(first.run_id).info.status == "RUNNING"
    second.metrics(4, {"a": 0.2, "b": 1.0})
    second.metrics(6, {"a": 0.3})
    second.end("FINISHED")
    assert history(client, second, "a") == [(2, 0.1), (4, 0.2), (6, 0.3)]
    assert history(client, second, "b") == [(4, 1.0)]
    assert client.get_run(first.run_id).info.status == "FINISHED"


@pytest.mark.parametrize("vanish", ["deleted", "unknown", "never opened"])
def test_a_vanished_run_is_continued_by_a_new_one(
    workspace: Path, client: Any, caplog: pytest.LogCaptureFixture, vanish: str
) -> None:
    old = begun(workspace).run_id if vanish == "deleted" else "0" * 32
    if vanish == "deleted":
        client.delete_run(old)
    tracker = MLflowTracker({"workspace": workspace})
    tracker.rewind({} if vanish == "never opened" else {"run_id": old})
    assert tracker.run_id not in (None, old)
    assert client.get_run(tracker.run_id).info.status == "RUNNING"
    assert "a new one continues it" in caplog.text


def test_metrics_wait_while_mlflow_does_not_answer(
    workspace: Path, client: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = begun(workspace)
    with monkeypatch.context() as patch:

        def refuse(*args: object, **kwargs: object) -> None:
            raise ConnectionError("the server is away")

        patch.setattr(tracker._mlflow, "log_batch", refuse)
        for step in range(1, 60):
            tracker.metrics(step, {"a": float(step)})
            tracker._retry_at = 0.0
    warnings = [record for record in caplog.records if record.name == LOGGER]
    assert len(warnings) == 1
    assert "metrics are late: the server is away" in warnings[0].message
    tracker.end("FINISHED")
    assert history(client, tracker, "a") == [(step, float(step)) for step in range(1, 60)]


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["closed port", "no folder", "no database", "unknown scheme"])
def test_a_failure_is_one_warning_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    (tmp_path / "file").write_text("this is no database " * 100)
    uri = {
        "closed port": closed_port(),
        "no folder": f"sqlite:///{tmp_path}/file/mlflow.db",
        "no database": f"sqlite:///{tmp_path}/file",
        "unknown scheme": "gopher://127.0.0.1/x",
    }[kind]
    started = time.monotonic()
    tracker = MLflowTracker({"workspace": tmp_path, "tracking_uri": uri})
    tracker.begin({"a": 1})
    for step in range(5):
        tracker.metrics(step, {"a": 1.0})
    tracker.artifacts(tmp_path)
    tracker.end("FINISHED")
    assert tracker.mark() == {"run_id": None}
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING and record.name == LOGGER]
    assert len(warnings) == 1
    assert uri in warnings[0].message
    assert "the run could not be opened, so nothing is tracked" in warnings[0].message
    assert time.monotonic() - started < 20


def test_a_missing_folder_of_artifacts_is_one_warning(
    workspace: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun(workspace).artifacts(tmp_path / "gone")
    assert "gone was not uploaded" in caplog.text


def test_a_lost_run_gets_its_state(workspace: Path, client: Any, tmp_path: Path) -> None:
    tracker = begun(workspace)
    assert set_run_state(tracker.uri, str(tracker.run_id), "KILLED")
    assert client.get_run(tracker.run_id).info.status == "KILLED"
    assert not set_run_state(tracker.uri, "0" * 32, "KILLED")
    assert not set_run_state(mlflow_uri(tmp_path), str(tracker.run_id), "KILLED")
    assert not list(tmp_path.iterdir())  # no new database appears
    with pytest.raises(ValueError, match="state must be"):
        set_run_state(tracker.uri, str(tracker.run_id), "LOST")


def test_six_runs_start_together_on_a_new_workspace(tmp_path: Path) -> None:
    script = (
        "import sys; from workbench.tracking import build_trackers\n"
        "group = build_trackers({'workspace': sys.argv[1], 'experiment': 'together', 'run_name': sys.argv[2]})\n"
        "group.begin({'a': 1})\n"
        "for step in range(1, 6): group.metrics(step, {'a': 1.0, 'b': 2.0})\n"
        "group.end('FINISHED'); assert group.mark()['MLflowTracker']['run_id']\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "new"), f"run-{i}"],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(6)
    ]
    outputs = [run.communicate(timeout=240)[0] for run in runs]
    assert [(run.returncode, text) for run, text in zip(runs, outputs)] == [(0, "")] * 6  # and quietly so
    with sqlite3.connect(tmp_path / "new" / "mlflow.db") as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        names = database.execute("SELECT name FROM runs WHERE status = 'FINISHED' ORDER BY name").fetchall()
        assert names == [(f"run-{i}",) for i in range(6)]
        assert database.execute("SELECT count(*) FROM metrics").fetchone() == (60,)
        assert database.execute("SELECT count(*) FROM experiments WHERE name = 'together'").fetchone() == (1,)
    assert [file.name for file in tmp_path.iterdir()] == ["new"]  # nothing is left in the working folder


def test_absent_trackers_are_left_out_and_mlflow_is_not_imported() -> None:
    assert build_trackers(None, None).trackers == []
    code = (
        "import sys; from workbench.tracking import build_trackers; build_trackers({}, {})\n"
        "assert not {'mlflow', 'wandb', 'torch'} & {*sys.modules}"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
