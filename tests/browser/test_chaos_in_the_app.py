"""Six runs that are started in the app at once, while trainer, supervisor and app are killed; and MLflow beside it."""

from __future__ import annotations

import contextlib
import re
import socket
import urllib.request
from collections.abc import Sequence

from fake_run import processes_of, supervisor_of, until, until_gone, until_state, until_training
from playwright.sync_api import expect
from served import App
from test_chaos import assert_sound, kill
from watched import PATIENCE, OpenWindow

from workbench.runs.launch import stop
from workbench.runs.workspace import RunFolder, WorkspaceError
from workbench.tracking.trace import read_completions, read_joints, read_nodes


def test_six_at_once_and_one_of_everything_killed(app: App, window: OpenWindow) -> None:
    """Six readers start the same preset without waiting for each other, so that one app launches six runs at once. The
    quickstart takes long enough to be killed and stopped in the middle."""
    readers = [window() for _ in range(6)]
    for reader in readers:
        reader.open("")
    for reader in readers:
        reader.button("preset-start-quickstart").click()
    for reader in readers:
        reader.page.wait_for_url(re.compile(r"/run\?.*run="), timeout=PATIENCE)
    assert len(app.workspace.runs()) == 6
    readers[0].open("runs")
    trainer_dies, supervisor_dies, *healthy = first_to_train(app.workspace.runs(), 2)
    kill(until_training(trainer_dies))
    kill(supervisor_of(supervisor_dies))
    for reader in readers:
        reader.server_is_down = True
    app.kill()
    assert until_state(trainer_dies, "failed").error is not None
    app.start()
    later = window()
    later.open("runs")
    until(lambda: supervisor_of(supervisor_dies).alive())  # the new app gave it another one
    for run in (supervisor_dies, *healthy):
        until(lambda: trains(run) or is_over(run))  # noqa: B023 - waited for at once
        with contextlib.suppress(WorkspaceError):  # it may finish at this very moment
            stop(run)
    for run in (trainer_dies, supervisor_dies, *healthy):
        until_state(run, "failed", "stopped", "finished")
        until_gone(run)
        assert_sound(run)
        assert_complete(run)
    assert [run for run in app.workspace.runs() if processes_of(run)] == []
    ends = [run.read_status().state for run in (supervisor_dies, *healthy)]
    assert set(ends) <= {"stopped", "finished"} and "stopped" in ends
    later.open("runs")


def first_to_train(runs: Sequence[RunFolder], count: int) -> list[RunFolder]:
    """All runs, those that train first, once `count` do: six that start at once do not wait for the last of them."""
    until(lambda: sum(map(trains, runs)) >= count)
    return sorted(runs, key=trains, reverse=True)


def trains(run: RunFolder) -> bool:
    status = run.read_status()
    return status.state == "running" and status.step > 0


def is_over(run: RunFolder) -> bool:
    return run.read_status().state in ("failed", "stopped", "finished")


def assert_complete(run: RunFolder) -> None:
    """Every node has the completions of both agents and its joint responses: a kill leaves whole nodes or none."""
    nodes = read_nodes(run.trace_file)
    size = run.spec().resolve().config.num_generations
    train = set(nodes.loc[nodes["phase"] == "train", "node_id"])
    assert len(train) >= run.read_status().step > 0
    completions, joints = read_completions(run.trace_file), read_joints(run.trace_file)
    assert set(completions["node_id"]) == set(joints["node_id"]) == set(nodes["node_id"])
    found = completions[completions["node_id"].isin(train)].groupby(["node_id", "agent"]).size()
    assert len(found) == 2 * len(train)
    assert set(found) == {size}


def test_mlflow_opens_beside_the_app_and_ends_with_it(app: App, window: OpenWindow) -> None:
    here = window()
    here.open("compare")
    here.button("mlflow-start").click()
    opened = here.key("mlflow-open").locator("a")
    expect(opened).to_be_visible(timeout=3 * PATIENCE)
    address = opened.get_attribute("href") or ""
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/?.*", address)
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert b"MLflow" in answer.read()
    here.server_is_down = True
    app.kill()
    until(lambda: not listening(int(address.split(":")[2].split("/")[0])))


def listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
