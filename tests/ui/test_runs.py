"""The runs page: the list with filters, broken runs, the queue, opening a run, the trash."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from opened import opened, words

from workbench.runs import trash
from workbench.runs.processes import Identity
from workbench.runs.spec import RunSpec
from workbench.runs.supervision import TRAIN, Supervision
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import NodeRecord
from workbench.ui.pages.runs import SHOWN, row_store
from workbench.ui.run_rows import RowStore


def made(workspace: Workspace, name: str, algorithm: str = "magrpo", state: str = "finished", **status) -> RunFolder:
    critic = "builtin:tiny" if algorithm in ("maac", "iac") else None
    spec = RunSpec(name=name, task="rendezvous", algorithm=algorithm, model="builtin:tiny", critic=critic)
    run = workspace.create_run(spec)
    run.write_status(RunStatus(state, **{"started": 100.0, "ended": 160.0} | status))
    return run


def shown_table(at) -> list[dict]:
    """The rows of the list, as the browser gets them."""
    (table,) = (frame for frame in at.dataframe if set(SHOWN) <= set(frame.value.columns))
    return table.value.to_dict("records")


@pytest.mark.parametrize(("lang", "said"), [("en", "There are no runs"), ("zh", "还没有任何运行")])
def test_an_empty_workspace_says_what_to_do(shown: Workspace, lang: str, said: str) -> None:
    at = opened("runs", lang=lang)
    assert said in words(at)
    assert not at.dataframe


@pytest.mark.parametrize(("lang", "state"), [("en", "finished"), ("zh", "已完成")])
def test_real_runs_in_both_languages(runs: dict[str, RunFolder], lang: str, state: str) -> None:
    rows = shown_table(opened("runs", lang=lang))
    assert [row["algorithm"] for row in rows] == ["iac", "maac", "magrpo"]  # the newest first
    assert all(list(row["state"]) == [state] and row["share"] == 1.0 and row["note"] == "" for row in rows)
    # 2 epochs of 4 items, 4 joint responses at the first turn and 4 times 4 at the second
    assert rows[2]["env_step"] == 2 * 4 * 20
    assert rows[0]["env_step"] == 2 * 4 * 2  # one path of two turns


def test_broken_runs_are_rows_with_a_reason(shown: Workspace) -> None:
    made(shown, "sound", step=1, total=4, reward=0.5)
    made(shown, "torn status", started=90.0).status_file.write_text("{")
    made(shown, "torn spec", started=80.0).spec_file.write_text("algorithm: [")
    made(shown, "torn trace", started=70.0).trace_file.write_bytes(b"no database" * 500)
    made(shown, "no spec", started=60.0).spec_file.unlink()
    made(shown, "lost", state="running", started=50.0, ended=None, pid=2**22 + 1, process_started=1.0)
    notes = {row["id"].rsplit("-", 3)[0]: (list(row["state"]), row["note"]) for row in shown_table(opened("runs"))}
    assert notes["sound"] == (["finished"], "")
    assert (
        notes["torn-status"][0] == ["damaged status file"] and "status.json cannot be read" in notes["torn-status"][1]
    )
    assert "spec.yaml" in notes["torn-spec"][1] and "spec.yaml" in notes["no-spec"][1]
    assert "trace.db" in notes["torn-trace"][1]
    assert "gone without a word" in notes["lost"][1]


def test_filters(shown: Workspace) -> None:
    for name, algorithm, state in (
        ("first", "magrpo", "finished"),
        ("second", "maac", "failed"),
        ("third", "iac", "failed"),
    ):
        made(shown, name, algorithm, state)
    at = opened("runs")
    at.multiselect(key="runs-state").set_value(["failed"]).run()
    assert {row["name"] for row in shown_table(at)} == {"second", "third"}
    assert "showing 2 of 3" in words(at)
    at.text_input(key="runs-text").set_value(" THIRD ").run()
    assert [row["name"] for row in shown_table(at)] == ["third"]
    at.multiselect(key="runs-algorithm").set_value(["magrpo"]).run()
    assert shown_table(at) == []
    assert not at.exception


def test_a_queued_run_says_what_it_waits_for(shown: Workspace) -> None:
    run = made(shown, "patient", state="created", ended=None)
    run.write_supervision(Supervision(Identity.own(), TRAIN, time.time(), waits_for=("cpu (the other run)",)))
    at = opened("runs")
    assert "**patient** is waiting for cpu (the other run)." in words(at)
    assert [list(row["state"]) for row in shown_table(at)] == [["waiting for its device"]]


@pytest.mark.parametrize("selection", [{"rows": [1]}, {"cells": [(1, "task")]}])
def test_a_picked_row_opens_that_run(shown: Workspace, selection: dict) -> None:
    older = made(shown, "older", started=50.0)
    made(shown, "newer", started=60.0)
    at = opened("runs")
    at.session_state["runs-table"] = {"selection": {"rows": [], "columns": [], "cells": []} | selection}
    at.run()
    assert not at.exception
    assert at.query_params["run"] in (older.id, [older.id])
    assert at.title[0].value == "Run"


def test_the_trash_gives_back_and_empties(shown: Workspace) -> None:
    kept, gone = made(shown, "kept"), made(shown, "gone")
    for run in (kept, gone):
        trash.delete(shown, run)
    at = opened("runs")
    at.toggle(key="runs-trash").set_value(True).run()
    at.selectbox(key="runs-trash-chosen").set_value(kept.id).run()
    at.button(key="runs-restore").click().run()
    assert [run.id for run in shown.runs()] == [kept.id]
    at.button(key="runs-empty").click().run()
    assert trash.contents(shown) == [] and [run.id for run in shown.runs()] == [kept.id]
    assert not at.exception
    assert "The trash is empty." in words(at)


def test_a_refusal_of_the_trash_is_one_sentence(shown: Workspace) -> None:
    run = made(shown, "twice")
    trash.delete(shown, run)
    run.path.mkdir()
    run.write_status(RunStatus("finished"))
    at = opened("runs")
    at.toggle(key="runs-trash").set_value(True).run()
    at.button(key="runs-restore").click().run()
    assert f"There is a run {run.id} already" in words(at)


# --- cost ----------------------------------------------------------------------------------------


def test_rows_follow_the_disk(shown: Workspace) -> None:
    store = RowStore()
    own = Identity.own()
    living = {"state": "running", "ended": None, "pid": own.pid, "process_started": own.started}
    first, second = made(shown, "first", reward=0.25), made(shown, "second", **living)
    assert store.table([first, second])["reward"].tolist()[0] == 0.25
    first.write_status(RunStatus("finished", started=100.0, ended=160.0, reward=0.75, step=1, total=2))
    table = store.table([second, first])
    assert table.index.tolist() == [second.id, first.id]
    assert table.loc[first.id, "reward"] == 0.75 and table.loc[first.id, "share"] == 0.5
    assert table.loc[second.id, "state"] == "running"
    second.write_status(RunStatus("failed", error="Why."))
    assert store.table([second])["note"].tolist() == ["Why."]
    assert store.table([]).empty


def test_a_tick_over_two_hundred_runs_is_cheap(shown: Workspace, tmp_path: Path) -> None:
    trace = tmp_path / "trace.db"
    TraceWriter(trace).nodes([NodeRecord(0, "train", 48, 0, 0, 1, None, None, False, (), ())])
    first = made(shown, "many")
    for number in range(200):
        copy = shown.runs_folder / f"many-{number}"
        copy.mkdir()
        (copy / "spec.yaml").write_text(first.spec_file.read_text())
        (copy / "status.json").write_text(json.dumps({"state": "finished", "started": float(number), "ended": 300.0}))
        (copy / "trace.db").symlink_to(trace)
    store = row_store(str(shown.root))
    assert len(store.table(shown.runs())) == 201
    begin = time.process_time()
    assert store.table(shown.runs())["env_step"].dropna().eq(48).all()
    assert time.process_time() - begin < 0.3  # measured: 0.02
