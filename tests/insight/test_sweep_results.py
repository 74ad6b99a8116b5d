"""A sweep's numbers by hand: one value per run at equal env_step, t-intervals over seeds, and what else differs."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from workbench.insight.sweep import EVAL_REWARD, TRAIN_REWARD, SweepResults, interval, sweep_results, value_of
from workbench.runs.spec import RunSpec
from workbench.runs.sweep_spec import Sweep, load_sweep
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import NodeRecord

TEXT = """
name: two
base: {task: rendezvous, model: builtin:tiny}
grid: {algorithm: [magrpo, marloo]}
seeds: [0, 1, 2]
"""
Points = list[tuple[int, float]]


def loaded(folder: Path, text: str = TEXT) -> Sweep:
    (folder / "sweep.yaml").write_text(text)
    return load_sweep(folder / "sweep.yaml")


def made(
    folder: Path, spec: RunSpec, points: Points, key: str = EVAL_REWARD, last: int = 40, state: str = "finished"
) -> RunFolder:
    run = Workspace(folder).create_run(spec)
    writer = TraceWriter(run.trace_file)
    writer.nodes([NodeRecord(0, "train", last, 0, 0, 1, None, None, False, (), ())])
    for step, value in points:
        writer.metrics(step, {key: value})
    writer.end("FINISHED")
    run.write_status(RunStatus(state, started=100.0, ended=130.0))
    return run


def rows(frame: pd.DataFrame) -> list[dict]:
    return frame.to_dict("records")


def test_the_interval_is_students() -> None:
    # Mean 0.4, deviation 0.2; with 2 degrees of freedom t = 4.303: half = 4.303 * 0.2 / sqrt(3) = 0.496868.
    assert interval([0.2, 0.4, 0.6]) == pytest.approx((0.4, -0.096868, 0.896868), abs=1e-6)
    # 0 and 1: deviation 0.707107, t = 12.706 for one degree: half = 12.706 * 0.707107 / 1.414214 = 6.353.
    assert interval([0.0, 1.0]) == pytest.approx((0.5, -5.853, 6.853), abs=1e-4)
    assert interval([0.5, 0.5, 0.5]) == (0.5, 0.5, 0.5)
    mean, low, high = interval([0.7])
    assert (mean, math.isnan(low), math.isnan(high)) == (0.7, True, True)
    assert all(map(math.isnan, interval([])))


def test_an_evaluation_counts_by_its_last_point_and_training_by_its_last_tenth() -> None:
    points = pd.DataFrame({"step": range(1, 21), "value": [float(i) for i in range(1, 21)]})
    assert value_of(points, EVAL_REWARD, None) == (20.0, 20)
    assert value_of(points, EVAL_REWARD, 12) == (12.0, 12)
    assert value_of(points, TRAIN_REWARD, None) == (19.5, 20)  # a tenth of 20 points: 19 and 20
    assert value_of(points, TRAIN_REWARD, 12) == (12.0, 12)  # of 12 points: one
    value, step = value_of(points, TRAIN_REWARD, 0)
    assert (math.isnan(value), step) == (True, None)


def results(folder: Path, ends: tuple[int, ...] = (40,) * 6, **options: bool) -> SweepResults:
    """Evaluations at 16, 32 and, where a run got that far, 48; by seed 0.2, 0.4, 0.6 at 32 for magrpo, +0.1 marloo."""
    sweep = loaded(folder)
    runs = {}
    for number, member in enumerate(sweep.members):
        at_32 = 0.2 + 0.2 * member.seed + 0.1 * (number > 2)
        points = [(16, 0.0), (32, at_32), (48, 0.9)][: 3 if ends[number] >= 48 else 2]
        runs[member.key] = made(folder, member.resolved.spec, points, last=ends[number])
    return sweep_results(sweep, runs, **options)


def test_cells_are_means_over_seeds(tmp_path: Path) -> None:
    found = results(tmp_path)
    assert (found.metric, found.rule, found.cut, found.warnings) == (EVAL_REWARD, "last point", 40, ())
    first, second = rows(found.cells)
    assert (first["algorithm"], first["n"], first["env_step"], first["wall_s"]) == ("magrpo", 3, 32, 30.0)
    assert (first["mean"], first["low"], first["high"]) == pytest.approx((0.4, -0.096868, 0.896868), abs=1e-6)
    assert (second["mean"], second["low"], second["high"]) == pytest.approx((0.5, 0.003132, 0.996868), abs=1e-6)
    assert [row["seed"] for row in rows(found.runs)] == [0, 1, 2, 0, 1, 2]


def test_all_runs_are_cut_at_the_least_last_env_step(tmp_path: Path) -> None:
    ends = (64, 64, 64, 64, 64, 40)  # one run ended at 40, before the others' evaluation at 48
    assert results(tmp_path, ends).cut == 40
    assert rows(results(tmp_path, ends).cells)[0]["mean"] == pytest.approx(0.4)
    free = results(tmp_path, ends, equal=False)
    assert free.cut is None
    assert rows(free.cells)[0]["mean"] == pytest.approx(0.9)
    assert rows(free.cells)[1]["env_step"] == 32  # the least of the cell
    assert [row["last_step"] for row in rows(free.runs)] == [64, 64, 64, 64, 64, 40]


def test_only_finished_runs_with_a_value_count_and_the_others_say_why(tmp_path: Path) -> None:
    sweep = loaded(tmp_path)
    specs = {member.key: member.resolved.spec for member in sweep.members}
    a, b, c, d, e, _ = specs
    runs = {
        a: made(tmp_path, specs[a], [(16, 0.5), (32, math.nan)]),
        b: made(tmp_path, specs[b], [(16, 0.7)], state="stopped"),
        d: made(tmp_path, specs[d], [(32, 0.3)]),
        e: made(tmp_path, specs[e], [(32, 0.4)]),
    }
    runs[e].trace_file.write_bytes(b"no trace at all" * 100)
    found = sweep_results(sweep, runs)
    by_key = dict(zip(specs, rows(found.runs)))
    assert found.metric == EVAL_REWARD  # of the runs that can be read
    assert (by_key[a]["value"], by_key[a]["problem"]) == (0.5, "1 of 2 points are not numbers and left out.")
    assert (by_key[b]["state"], math.isnan(by_key[b]["value"])) == ("stopped", True)
    assert by_key[c]["state"] == "not started"
    assert "damaged or not a trace" in by_key[e]["problem"]
    assert [row["n"] for row in rows(found.cells)] == [1, 1]
    assert rows(found.cells)[0]["mean"] == 0.5


def test_without_evaluations_the_training_reward_counts(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, TEXT.replace("[0, 1, 2]", "[0]"))
    points = [(step, float(step >= 30)) for step in range(1, 41)]  # the last 4 of 40 points are 1
    runs = {m.key: made(tmp_path, m.resolved.spec, points, TRAIN_REWARD) for m in sweep.members}
    found = sweep_results(sweep, runs)
    assert (found.metric, found.rule) == (TRAIN_REWARD, "mean of the last tenth of its points")
    assert [(row["mean"], math.isnan(row["low"])) for row in rows(found.cells)] == [(1.0, True)] * 2


def test_a_misspelt_metric_gets_a_suggestion(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, TEXT + "metric: eval/turn_1/reward_men\n")
    member = sweep.members[0]
    found = sweep_results(sweep, {member.key: made(tmp_path, member.resolved.spec, [(16, 0.5)])})
    assert "(did you mean 'eval/turn_1/reward_mean'?)" in rows(found.runs)[0]["problem"]
    assert rows(found.cells)[0]["n"] == 0


def test_nothing_run_yet_is_a_table_of_gaps(tmp_path: Path) -> None:
    found = sweep_results(loaded(tmp_path), {})
    assert [row["n"] for row in rows(found.cells)] == [0, 0]
    assert found.cut is None
    assert {row["state"] for row in rows(found.runs)} == {"not started"}


# --- what else differs ---------------------------------------------------------------------------


def test_a_run_that_was_resumed_with_other_settings_is_flagged(tmp_path: Path) -> None:
    sweep = loaded(tmp_path)
    member = sweep.members[1]
    other = member.resolved.spec.with_overrides(["config.num_train_epochs=7"])
    (warning,) = sweep_results(sweep, {member.key: made(tmp_path, other, [(16, 0.5)])}).warnings
    assert "The runs differ in more than algorithm: config.num_train_epochs." in warning


def test_what_a_case_sets_beyond_its_label_is_said(tmp_path: Path) -> None:
    text = """
    name: cases
    base: {task: rendezvous, model: builtin:tiny}
    factor:
      - {label: team, algorithm: magrpo}
      - {label: critic, algorithm: maac, critic: builtin:tiny, config.agent_learning_rate: 1e-4}
    """
    (warning,) = sweep_results(loaded(tmp_path, text), {}).warnings
    assert "The cases set 3 keys at once (algorithm, critic, config.agent_learning_rate)" in warning


def test_the_other_keys_of_the_grid_are_no_second_factor(tmp_path: Path) -> None:
    grid = "grid: {algorithm: [magrpo, marloo], config.num_generations: [4, 8]}\nfactor: algorithm"
    text = TEXT.replace("grid: {algorithm: [magrpo, marloo]}", grid)
    assert sweep_results(loaded(tmp_path, text), {}).warnings == ()
