"""Six runs started at once on a new workspace, while trainer, supervisor and launcher are killed in turn.

Expected: no process that nobody shows or can stop, no run that says it runs and does not, no trace row lost, no
database locked or half made.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from fake_run import processes_of, supervisor_of, until, until_gone, until_state, until_training

from workbench.runs.launch import reconcile, resume, stop
from workbench.runs.mlflow_state import unsettled
from workbench.runs.processes import Identity
from workbench.runs.workspace import RunFolder, Workspace
from workbench.tracking.trace import read_metrics, read_nodes

LAUNCHER = """
import sys, threading, time
from workbench.runs.launch import launch
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import Workspace
workspace, trainer, data = Workspace(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
spec = RunSpec.parse(data, "test", workspace.root)
threads = [threading.Thread(target=lambda: launch(workspace, spec, trainer=trainer)) for _ in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
print("launched", flush=True)
time.sleep(600)
"""
FAKE = {"name": "forever", "task": "rendezvous", "algorithm": "magrpo", "model": "builtin:tiny"}
REAL = {
    **FAKE,
    "name": "real",
    "config": {"num_train_epochs": 5000, "num_generations": 2, "num_turns": 1, "max_new_tokens": 1, "eval_interval": 0},
}


@pytest.fixture
def six(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("WORKBENCH_CPU_SLOTS", "6")
    return space


def launch_and_die(space: Workspace, trainer: str, data: dict[str, object]) -> list[RunFolder]:
    """What an app does that is killed -9 as soon as it has launched six runs."""
    command = [sys.executable, "-c", LAUNCHER, str(space.root), trainer, repr(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "launched\n"
        launcher.kill()
    runs = space.runs()
    assert len(runs) == 6
    return runs


def kill(process: Identity) -> None:
    assert process.send(signal.SIGKILL)
    until(lambda: not process.alive())


def assert_sound(run: RunFolder) -> None:
    """The trace is whole, and nobody locks it."""
    with contextlib.closing(sqlite3.connect(run.trace_file, timeout=5)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database.execute("BEGIN IMMEDIATE")
        database.rollback()


def test_fakes(six: Workspace) -> None:
    """Each of the three is killed while all six train."""
    runs = launch_and_die(six, "fake_run", FAKE)
    trainers = {run.id: until_training(run) for run in runs}
    trainer_dies, supervisor_dies, both_die, *healthy = runs
    kill(trainers[trainer_dies.id])
    kill(supervisor_of(supervisor_dies))
    kill(supervisor_of(both_die))
    kill(trainers[both_die.id])
    assert until_state(trainer_dies, "failed").error is not None
    until_gone(trainer_dies)
    assert both_die.read_status().state == "lost"
    found = reconcile(six)
    assert (found.adopted, found.lost) == ((supervisor_dies.id,), (both_die.id,))
    until_gone(both_die)
    for run in (supervisor_dies, *healthy):
        until_training(run, run.read_status().step + 1)
        stop(run)
    for run in (supervisor_dies, *healthy):
        until_state(run, "stopped")
        until_gone(run)
    for run in runs:
        assert_sound(run)
        rows, step = read_metrics(run.trace_file), run.read_status().step
        # The fake writes a row and then says so; a kill may come between the two, and never the other way round.
        assert len(rows) in (step, step + 1)
        assert list(rows.step) == list(range(1, len(rows) + 1))
    assert reconcile(six) == type(found)()


def mlflow_states(space: Workspace) -> dict[str, str]:
    """Run id -> what MLflow says, from its own database."""
    query = "SELECT t.value, r.status FROM runs r JOIN tags t ON t.run_uuid = r.run_uuid WHERE t.key = 'run'"
    with contextlib.closing(sqlite3.connect(space.root / "mlflow.db", timeout=5)) as database:
        return dict(database.execute(query).fetchall())


def test_real_trainings(six: Workspace) -> None:
    """The same with real trainings, which make the MLflow database together; one is resumed to its end."""
    runs = launch_and_die(six, "workbench.runs.trainer", REAL)
    trainers = {run.id: until_training(run) for run in runs}
    assert mlflow_states(six) == {run.id: "RUNNING" for run in runs}
    trainer_dies, supervisor_dies, both_die, *healthy = runs
    kill(trainers[trainer_dies.id])
    kill(supervisor_of(supervisor_dies))
    kill(supervisor_of(both_die))
    kill(trainers[both_die.id])
    assert reconcile(six).adopted == (supervisor_dies.id,)
    for run in (supervisor_dies, *healthy):
        stop(run)
    for run in (supervisor_dies, *healthy):
        assert until_state(run, "stopped").error is None
    assert until_state(trainer_dies, "failed").error is not None
    assert both_die.read_status().state == "lost"
    for run in runs:
        until_gone(run)
        assert_sound(run)
        # One turn: a node per item, written before the status counts it.
        assert len(read_nodes(run.trace_file)) >= run.read_status().step > 0
    until(lambda: unsettled(six) == [])
    states = dict.fromkeys([run.id for run in (supervisor_dies, *healthy)], "KILLED")
    assert mlflow_states(six) == states | {trainer_dies.id: "FAILED", both_die.id: "FAILED"}

    run = healthy[0]
    done = run.read_status().step
    assert list(run.checkpoints()) == [done]
    assert len(read_nodes(run.trace_file)) == done
    memory = run.read_status().memory
    assert memory is not None
    assert 1e8 < memory["cpu"] < 4e9
    items = run.read_status().total // 5000
    resume(run, [f"config.num_train_epochs={done // items + 1}"])
    assert until_state(run, "finished").error is None
    until_gone(run)
    assert len(read_nodes(run.trace_file)) == (done // items + 1) * items
    assert mlflow_states(six)[run.id] == "FINISHED"
    assert json.loads(run.exit_file.read_text())["code"] == 0
    assert all(not processes_of(run) for run in runs)


def test_the_workspace_is_where_the_locks_are(six: Workspace) -> None:
    """Nothing of a run is written outside its workspace."""
    runs = launch_and_die(six, "fake_run", {**FAKE, "name": "three"})
    for run in runs:
        until_state(run, "finished")
        until_gone(run)
    names = {path.name for path in Path(six.root).iterdir()}
    assert names == {"runs", "locks"}
