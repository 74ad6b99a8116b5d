"""Several runs: the list, what differs, curves with bands over seeds by hand, end values beside parameters."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pandas as pd
import pytest
from real_runs import train

from workbench.insight.compare import COLUMNS, config_diff, factors, filtered, runs_table, spec_of, warning
from workbench.insight.curves import advance
from workbench.insight.overlay import final_value, groups, overlay, parallel, t_quantile
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import NodeRecord

KEY = "turn_1/reward_mean"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def spec(algorithm: str = "magrpo", name: str = "run", model: str = "builtin:tiny", **config) -> RunSpec:
    critic = "builtin:tiny" if algorithm in ("maac", "iac") else None
    return RunSpec(name=name, task="rendezvous", algorithm=algorithm, model=model, critic=critic, config=config)


def made(workspace: Workspace, of: RunSpec, points: list[tuple[int, float]] = (), key: str = KEY) -> RunFolder:
    run = workspace.create_run(of)
    writer = TraceWriter(run.trace_file)
    for step, value in points:
        writer.metrics(step, {key: value})
    writer.end("FINISHED")
    return run


# --- the list ------------------------------------------------------------------------------------


def test_the_list_says_what_specs_statuses_and_traces_say(workspace: Workspace) -> None:
    run = made(workspace, spec("marloo", name="a name", seed=3))
    TraceWriter(run.trace_file).nodes([NodeRecord(0, "train", 48, 0, 0, 1, None, None, False, (), ())])
    run.write_status(RunStatus("finished", step=3, total=3, reward=0.5, started=100.0, ended=160.0))
    (row,) = runs_table([run]).to_dict("records")
    assert row == {
        "id": run.id, "name": "a name", "state": "finished", "algorithm": "marloo", "task": "rendezvous",
        "model": "builtin:tiny", "seed": 3, "reward": 0.5, "env_step": 48,
        "started": pd.Timestamp("1970-01-01 00:01:40", tz="UTC"), "duration": 60.0, "problem": "",
    }  # fmt: skip


def test_a_running_run_has_lasted_until_its_heartbeat(workspace: Workspace) -> None:
    run = made(workspace, spec())
    run.write_status(RunStatus("stopped", started=100.0, heartbeat=130.0))
    assert runs_table([run])["duration"].tolist() == [30]


def test_damaged_runs_are_listed_with_the_reason(workspace: Workspace) -> None:
    broken, torn, fresh = (made(workspace, spec(name=name)) for name in ("broken", "torn", "fresh"))
    broken.spec_file.write_text("algorithm: [")
    torn.trace_file.write_bytes(b"no database" * 500)
    fresh.trace_file.unlink()  # a run that has only just begun
    table = runs_table([broken, torn, fresh])
    assert table["id"].tolist() == [broken.id, torn.id, fresh.id]
    assert "spec.yaml" in table["problem"][0] and table["env_step"][0] == 0
    assert "trace.db" in table["problem"][1] and table["algorithm"][1] == "magrpo"
    assert table["problem"][2] == "" and pd.isna(table["env_step"][2])
    assert filtered(table, text="magrpo").empty  # the text looks at names, not at algorithms


def test_an_empty_workspace_has_an_empty_list(workspace: Workspace) -> None:
    table = runs_table(workspace.runs())
    assert list(table.columns) == list(COLUMNS) and table.empty
    assert filtered(table, text="x", states=["finished"]).empty


@pytest.mark.parametrize(("filters", "names"), [
    ({}, ["One [a]", "two"]),
    ({"text": "ONE [A"}, ["One [a]"]),
    ({"text": "rendez"}, ["One [a]", "two"]),
    ({"algorithms": ["maac", "iac"]}, ["two"]),
    ({"states": ["created"], "text": "nothing"}, []),
    ({"states": ["running"]}, []),
    ({"tasks": ["rendezvous"], "algorithms": ["magrpo"]}, ["One [a]"]),
])  # fmt: skip
def test_filters(workspace: Workspace, filters: dict, names: list[str]) -> None:
    runs = [made(workspace, spec(name="One [a]")), made(workspace, spec("maac", name="two"))]
    assert filtered(runs_table(runs), **filters)["name"].tolist() == names


def test_a_changed_spec_is_read_again(workspace: Workspace) -> None:
    run = made(workspace, spec(seed=1))
    assert spec_of(run).config == {"seed": 1}
    run.write_spec(spec(seed=10))
    assert spec_of(run).config == {"seed": 10}


# --- what differs --------------------------------------------------------------------------------


def test_the_diff_holds_only_what_differs_with_defaults_filled_in() -> None:
    table = config_diff({"a": spec(seed=1), "b": spec(seed=1, num_turns=1, top_p=1.0)})
    assert table.to_dict("index") == {"config.num_turns": {"a": 2, "b": 1}}


DIFFERENCES = {
    "seed and name": (spec(seed=1), spec(name="other", seed=2), []),
    "written-out default": (spec(), spec(num_generations=4), []),
    "one parameter": (spec(), spec(agent_learning_rate=1e-4), ["config.agent_learning_rate"]),
    "two": (spec(), spec(model="builtin:storyteller", num_turns=1), ["model", "config.num_turns"]),
    "a baseline brings its mode": (spec(), spec("marloo"), ["algorithm"]),
    "a critic comes with its algorithm": (spec(), spec("maac"), ["algorithm"]),
    "two critics": (spec("maac"), spec("iac"), ["algorithm"]),
    "algorithm and turns": (spec(num_turns=1), spec("maac"), ["algorithm", "config.num_turns"]),
    "mode of its own": (spec(), spec("marloo", advantage_mode="max"), ["algorithm", "config.advantage_mode"]),
    "a field only one has": (spec(), spec("maac", critic_type="q"), ["algorithm"]),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_factors(name: str) -> None:
    one, other, expected = DIFFERENCES[name]
    assert factors({"a": one, "b": other}) == expected
    assert (warning({"a": one, "b": other}) is None) == (len(expected) < 2)


def test_three_runs_with_two_critics() -> None:
    others = spec("maac").model_copy(update={"critic": "builtin:storyteller"})
    assert factors({"a": spec(), "b": spec("maac"), "c": others}) == ["algorithm", "critic"]


def test_the_warning_names_the_factors() -> None:
    words = warning({"a": spec(), "b": spec(num_turns=1, top_p=0.9)})
    assert words is not None
    assert "2 things at once (config.num_turns, config.top_p)" in words["en"]
    assert "2 处不同（config.num_turns, config.top_p）" in words["zh"]


# --- overlay -------------------------------------------------------------------------------------


def test_bands_over_two_seeds_by_hand(workspace: Workspace) -> None:
    # stretches [0, 5) and [5, 10]: means 2, 6 and 4, 10; mean 3, 8
    # standard deviation sqrt 2 and 2 sqrt 2, over sqrt 2 runs: 1 and 2; t of one degree of freedom 12.706
    one = made(workspace, spec(seed=1), [(1, 1.0), (3, 3.0), (7, 5.0), (10, 7.0)])
    two = made(workspace, spec(seed=2, name="again"), [(2, 4.0), (4, math.nan), (5, math.inf), (8, 10.0)])
    found = overlay([one, two], KEY, grid=2)
    assert found.problems == {}
    assert found.lines.to_dict("list") == {
        "run": [one.id, one.id, two.id, two.id], "group": ["magrpo"] * 4, "step": [2.5, 7.5] * 2,
        "value": [2, 6, 4, 10],
    }  # fmt: skip
    assert found.bands["mean"].tolist() == [3, 8]
    assert found.bands["low"].tolist() == pytest.approx([3 - 12.706, 8 - 25.412])
    assert found.bands["high"].tolist() == pytest.approx([3 + 12.706, 8 + 25.412])
    assert found.bands["runs"].tolist() == [2, 2]


def test_gaps_are_bridged_and_ends_are_not_made_up(workspace: Workspace) -> None:
    # stretches of 2 up to step 8: the first has points in 0 and 2, the second in 1 and 3
    one = made(workspace, spec(num_turns=1), [(1, 0.0), (5, 4.0)])
    two = made(workspace, spec(num_turns=2), [(2, 1.0), (8, 2.0)])
    found = overlay([one, two], KEY, grid=4)
    assert found.lines["step"].tolist() == [1, 3, 5, 3, 5, 7]
    assert found.lines["value"].tolist() == [0, 2, 4, 1, 1.5, 2]
    assert found.lines["group"].unique().tolist() == ["num_turns=1", "num_turns=2"]
    assert found.bands["runs"].tolist() == [1] * 6
    assert found.bands["low"].isna().all()  # one run has no band


def test_runs_without_the_metric_are_named(workspace: Workspace) -> None:
    runs = [
        made(workspace, spec(), [(1, 1.0)]),
        made(workspace, spec()),
        made(workspace, spec()),
        made(workspace, spec()),
    ]
    runs[2].trace_file.unlink()
    runs[3].spec_file.unlink()
    TraceWriter(runs[3].trace_file).metrics(1, {KEY: 1.0})
    found = overlay(runs, KEY)
    assert set(found.lines["run"]) == {runs[0].id}
    assert found.problems.keys() == {run.id for run in runs[1:]}
    assert found.problems[runs[1].id] == f"Run {runs[1].id} has not logged {KEY}."
    assert "no trace at" in found.problems[runs[2].id]
    nothing = overlay([], KEY)
    assert nothing.lines.empty and list(nothing.bands.columns) == ["group", "step", "mean", "low", "high", "runs"]


def test_groups_are_labelled_by_what_tells_them_apart() -> None:
    specs = {"a": spec(seed=1), "b": spec(seed=2, name="b"), "c": spec("maac"), "d": spec("marloo", top_p=0.5)}
    assert groups(specs) == {
        "a": "algorithm=magrpo, top_p=1.0", "b": "algorithm=magrpo, top_p=1.0", "c": "algorithm=maac, top_p=1.0",
        "d": "algorithm=marloo, top_p=0.5",
    }  # fmt: skip
    assert set(groups({"a": spec(), "b": spec(seed=9)}).values()) == {"magrpo"}


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (4, 2.776), (30, 2.042), (31, 2.040), (60, 2.000), (120, 1.980)]
)
def test_quantiles_are_those_of_the_table(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=0.004)


# --- end values ----------------------------------------------------------------------------------


def test_end_values_and_axes(workspace: Workspace) -> None:
    # the last tenth of 20 points are two: 18, 19 -> 18.5; of 3 points one
    one = made(workspace, spec(seed=1, top_p=0.5), [(i, float(i)) for i in range(20)])
    two = made(workspace, spec("maac", seed=2, top_k=5), [(0, 1.0), (1, math.nan), (2, 0.25), (3, math.inf)])
    without = made(workspace, spec(top_p=0.25))
    assert [final_value(run, KEY) for run in (one, two)] == [18.5, 0.25]
    assert math.isnan(final_value(without, KEY))
    names, axes = parallel([one, two, without], KEY)
    assert names == [one.id, two.id]
    by_key = {axis.key: axis for axis in axes}
    assert by_key["config.top_p"].values == (0.5, 1.0)
    assert by_key["algorithm"].texts == ("magrpo", "maac") and by_key["algorithm"].values == (0, 1)
    assert by_key["config.top_k"].texts == ("None", "5")
    assert not by_key.keys() & {"name", "config.seed"}
    assert (axes[-1].key, axes[-1].values) == (KEY, (18.5, 0.25))
    assert parallel([without], KEY) == ([], [])


def test_two_real_seeds(tmp_path: Path) -> None:
    runs = [train(tmp_path, "magrpo", name=f"seed {seed}", seed=seed, num_turns=1) for seed in (1, 2)]
    table = runs_table(Workspace(tmp_path).runs())
    assert sorted(table["seed"]) == [1, 2] and (table["env_step"] == 32).all()  # 2 epochs of 4 items of 4 responses
    found = overlay(runs, KEY, grid=4)
    assert found.problems == {} and found.bands["group"].unique().tolist() == ["magrpo"]
    for run in runs:
        curve = advance(run.trace_file).curves[KEY]
        mine = found.lines[found.lines["run"] == run.id]
        assert mine["value"].between(curve.values.min(), curve.values.max()).all()
        assert final_value(run, KEY) == curve.last
    assert factors({run.id: run.spec() for run in runs}) == []
    assert (found.bands["low"] <= found.bands["mean"]).all()


def test_a_long_run_is_laid_over_quickly(workspace: Workspace, big_trace: Path) -> None:
    run = workspace.create_run(spec())
    run.trace_file.symlink_to(big_trace)
    start = time.process_time()
    found = overlay([run], KEY)
    assert final_value(run, KEY) > -1
    assert runs_table([run])["env_step"].tolist() == [400_000]
    assert time.process_time() - start < 2
    assert len(found.lines) == 200
