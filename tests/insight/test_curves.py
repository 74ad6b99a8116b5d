"""Curves: increments, resumed runs, thinning that keeps spikes, smoothing, and a meaning for every key."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
from real_runs import maac_run, magrpo_run  # noqa: F401 - fixtures

from workbench.insight.curves import Curves, advance, decimate, line, smooth, table
from workbench.insight.metric_names import METRICS, label, meaning, panels, parse
from workbench.tracking import trace
from workbench.tracking.trace_writer import TraceWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.db"


@pytest.fixture
def writer(path: Path) -> TraceWriter:
    return TraceWriter(path)


def points(curves: Curves, key: str) -> list[tuple[int, float]]:
    curve = curves.curves[key]
    return list(zip(curve.steps.tolist(), curve.values.tolist()))


def test_a_tick_adds_what_is_new_and_leaves_the_old_state_as_it_was(writer: TraceWriter, path: Path) -> None:
    assert advance(path).keys == []
    writer.metrics(8, {"turn_1/reward_mean": 0.25})
    first = advance(path)
    writer.metrics(8, {"eval/turn_1/reward_mean": 0.5})  # an evaluation does not advance env_step
    writer.metrics(16, {"turn_1/reward_mean": math.inf, "tokens_per_s": math.nan})
    second = advance(path, first)
    assert points(first, "turn_1/reward_mean") == [(8, 0.25)]
    assert points(second, "turn_1/reward_mean") == [(8, 0.25), (16, math.inf)]
    assert points(second, "eval/turn_1/reward_mean") == [(8, 0.5)]
    assert math.isnan(second.curves["tokens_per_s"].last)
    assert second.last_step == 16
    again = advance(path, second)
    assert (again.curves, again.last_row) == (second.curves, second.last_row)


def test_a_long_trace_is_read_in_portions(writer: TraceWriter, path: Path) -> None:
    for step in range(5):
        writer.metrics(step, {"a": float(step)})
    state = advance(path, max_rows=2)
    assert (points(state, "a"), state.behind) == ([(0, 0.0), (1, 1.0)], 3)
    state = advance(path, advance(path, state, max_rows=2), max_rows=2)
    assert (state.curves["a"].steps.tolist(), state.behind) == ([0, 1, 2, 3, 4], 0)


@pytest.mark.parametrize("after_the_resume", [1, 2, 5])  # rows: fewer, as many, and more than were taken back
def test_a_resumed_run_does_not_zigzag(writer: TraceWriter, path: Path, after_the_resume: int) -> None:
    writer.metrics(1, {"a": 1.0})
    mark = writer.mark()
    writer.metrics(2, {"a": 2.0})
    writer.metrics(3, {"a": 3.0})
    state = advance(path)
    writer.rewind(mark)
    assert points(advance(path, state), "a") == [(1, 1.0)]
    for step in range(after_the_resume):
        writer.metrics(2 + step, {"a": -1.0})
    state = advance(path, state)
    assert state.restarted
    assert points(state, "a") == [(1, 1.0)] + [(2 + step, -1.0) for step in range(after_the_resume)]
    assert not advance(path, state).restarted


def test_a_missing_trace_says_so(path: Path) -> None:
    with pytest.raises(trace.TraceError, match="no trace at"):
        advance(path)


def test_short_curves_are_kept_whole() -> None:
    assert decimate(np.arange(6.0), limit=6).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="limit must be at least 6"):
        decimate(np.arange(9.0), limit=5)


def test_thinning_keeps_least_and_greatest_of_each_bucket() -> None:
    # limit 6: (6 - 2) / 2 = 2 buckets of 5: [5 9 1 2 3] and [4 0 6 8 7]; first and last are kept besides
    values = np.array([5.0, 9, 1, 2, 3, 4, 0, 6, 8, 7])
    assert decimate(values, limit=6).tolist() == [0, 1, 2, 6, 8, 9]


def test_no_spike_and_no_missing_number_vanishes() -> None:
    values = np.sin(np.arange(100_000) / 1000)
    values[[40_001, 60_002, 70_003, 80_004]] = [50.0, -50.0, np.nan, -np.inf]
    kept = decimate(values)
    assert {0, 40_001, 60_002, 70_003, 80_004, 99_999} <= set(kept.tolist())
    assert len(kept) <= 1_500
    assert (np.diff(kept) > 0).all()


@pytest.mark.parametrize("count", [1_501, 1_502, 2_997, 4_000, 99_991])
def test_any_length_fits_the_limit(count: int) -> None:
    noise = np.random.default_rng(0).normal(size=count)
    noise[::7] = np.nan
    noise[3::11] = np.inf
    kept = decimate(noise)
    assert 300 < len(kept) <= 1_500
    assert kept[0] == 0 and kept[-1] == count - 1


def test_only_missing_numbers_are_drawn_too() -> None:
    assert 0 < len(decimate(np.full(5_000, np.nan))) <= 1_500


def test_smoothing_by_hand() -> None:
    # weight 0.5: 4; (0.5*4 + 8)/(1.5) = 20/3; the NaN is passed over; (0.25*4 + 0.5*8 + 1)/1.75 = 24/7
    assert smooth(np.array([4.0, 8, np.nan, 1]), 0.5) == pytest.approx([4, 20 / 3, np.nan, 24 / 7], nan_ok=True)
    assert smooth(np.array([4.0, 8]), 0).tolist() == [4, 8]
    with pytest.raises(ValueError, match="below 1, got 1"):
        smooth(np.array([4.0]), 1)


def test_what_is_drawn_says_how_much_is_shown(writer: TraceWriter, path: Path) -> None:
    with writer._transaction() as database:
        database.executemany("INSERT INTO metrics VALUES (?, 'a', ?, 0)", [(i, float(i % 7)) for i in range(20_000)])
    drawn = line(advance(path).curves["a"], smoothing=0.9)
    assert drawn.total == 20_000
    assert 1_000 < drawn.shown <= 1_500
    frame = table(advance(path), ["a", "never logged"])
    assert list(frame.columns) == ["key", "step", "time", "value", "smoothed"]
    assert len(frame) == drawn.shown
    assert table(Curves(), ["a"]).empty


KEYS = ["agent_1/turn_2/entropy", "agent_0/turn_10/entropy", "agent_0/turn_2/entropy", "turn_1/reward_mean",
        "eval/turn_1/reward_mean", "eval/turn_1/length_ratio", "mine"]  # fmt: skip


def test_keys_are_taken_apart_and_grouped() -> None:
    key = parse("agent_1/turn_2/entropy")
    assert (key.agent, key.turn, key.name, key.pattern) == (1, 2, "entropy", "agent_*/turn_*/entropy")
    found = panels(KEYS)
    assert [panel.pattern for panel in found] == [
        "turn_*/reward_mean", "eval/turn_*/reward_mean", "agent_*/turn_*/entropy", "eval/turn_*/length_ratio", "mine",
    ]  # fmt: skip
    assert found[2].keys == ("agent_0/turn_2/entropy", "agent_0/turn_10/entropy", "agent_1/turn_2/entropy")
    assert [label(key) for key in found[2].keys] == ["agent 0, turn 2", "agent 0, turn 10", "agent 1, turn 2"]
    assert label("turn_3/reward_mean", "zh") == "第 3 轮"
    assert meaning("eval/turn_1/length_ratio").title["en"] == "eval/length_ratio"


def test_every_metric_of_real_runs_has_a_meaning(maac_run, magrpo_run) -> None:  # noqa: F811
    for run in (maac_run, magrpo_run):
        state = advance(run.trace_file)
        assert {"agent_1/turn_2/entropy", "eval/turn_1/reward_mean", "tokens_per_s"} <= set(state.keys)
        unknown = {parse(key).pattern for key in state.keys} - METRICS.keys()
        assert unknown <= {"eval/turn_*/met", "eval/turn_*/symbol_share"}  # the task's own
        for curve in state.curves.values():
            assert (np.diff(curve.steps) >= 0).all()
    assert len(unknown) == 2


def test_every_meaning_is_complete_in_both_languages() -> None:
    for pattern, row in METRICS.items():
        assert row.title.keys() == row.text.keys() == {"en", "zh"}, pattern
        assert row.text["en"].endswith(".") and row.text["zh"].endswith("。"), pattern
        assert row.title["en"].isascii() and not row.title["zh"].isascii(), pattern


def test_a_live_tick_on_a_long_metric_table_is_quick(writer: TraceWriter, path: Path) -> None:
    rows = [(i // 40, f"agent_{i % 2}/turn_1/m{i % 40}", 0.5, float(i)) for i in range(400_000)]
    with writer._transaction() as database:
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?)", rows)
    state = advance(path)
    while state.behind:
        state = advance(path, state)
    ticks = []
    for step in range(3):
        writer.metrics(10_001 + step, {f"agent_{i % 2}/turn_1/m{i % 40}": 0.5 for i in range(40)})
        start = time.process_time()
        state = advance(path, state)
        ticks.append(time.process_time() - start)
    assert state.curves["agent_0/turn_1/m0"].steps[-1] == 10_003
    assert min(ticks) < 0.3, ticks
