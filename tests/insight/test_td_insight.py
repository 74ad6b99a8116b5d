"""Critics: TD errors over time, realised returns, calibration and explained variance, by hand and on real runs."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from real_runs import iac_run, maac_run, magrpo_run  # noqa: F401 - fixtures

from workbench.insight import td
from workbench.tracking import trace
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord


def node(node_id, turn, step, agents, parent=None, phase="train", k=1):
    """agents: per agent a list of k (reward, value, target); a value of None is an unscored or REINFORCE completion."""
    rows = tuple(
        CompletionRecord(
            agent, i, "p", "t", 3, True, -1.0, reward=reward, return_=target, value=value, target=target,
            td_error=None if value is None else target - value,
        )
        for agent, group in enumerate(agents)
        for i, (reward, value, target) in enumerate(group)
    )  # fmt: skip
    joints = tuple(JointRecord(i, (i,) * len(agents), 0.0, 0.0) for i in range(k))
    return NodeRecord(node_id, phase, step, 0, 0, turn, parent, None if parent is None else 0, False, joints, rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.db"


def test_realised_returns_by_hand(path: Path) -> None:
    # discount 0.5, agent 0 over three turns: rewards 1, 2, 4, values 0.5, 3, 6
    #   targets 1 + 0.5*3 = 2.5, 2 + 0.5*6 = 5, 4; realised 4, 2 + 0.5*4 = 4, 1 + 0.5*4 = 3
    # agent 1: rewards 0, 0, 8, values 1, 1, 1: targets 0.5, 0.5, 8; realised 2, 4, 8
    TraceWriter(path).nodes([
        node(0, 1, 1, [[(1, 0.5, 2.5)], [(0, 1, 0.5)]]),
        node(1, 2, 2, [[(2, 3, 5)], [(0, 1, 0.5)]], parent=0),
        node(2, 3, 3, [[(4, 6, 4)], [(8, 1, 8)]], parent=1),
    ])  # fmt: skip
    rows = td.read_td(path, discount=0.5)
    assert (rows.has_critic, rows.nodes, rows.total) == (True, 3, 3)
    by_agent = rows.frame.pivot(index="turn", columns="agent", values="realised")
    assert by_agent[0].tolist() == [3, 4, 4]
    assert by_agent[1].tolist() == [2, 4, 8]
    assert rows.frame["td_error"].tolist() == [2, -0.5, 2, -0.5, -2, 7]


def test_the_leaves_of_one_turn_stand_alone_and_unscored_ones_are_left_out(path: Path) -> None:
    TraceWriter(path).nodes([node(0, 1, 3, [[(1, 0.5, 1), (2, 0.5, 2), (None, None, None)]], k=3)])
    frame = td.read_td(path).frame
    assert frame["k"].tolist() == [0, 1]
    assert frame["realised"].tolist() == [1, 2]


def test_what_follows_an_unscored_turn_is_unknown(path: Path) -> None:
    TraceWriter(path).nodes([node(0, 1, 1, [[(1, 0, 1.5)]]), node(1, 2, 2, [[(None, None, None)]], parent=0)])
    frame = td.read_td(path).frame
    assert frame[["target", "td_error"]].iloc[0].tolist() == [1.5, 1.5]
    assert np.isnan(frame["realised"].iloc[0])


def test_heat_map_by_hand(path: Path) -> None:
    # steps 0..10 in two stretches [0, 5) and [5, 10]; td errors of agent 0: 1, -3 | 5
    TraceWriter(path).nodes([
        node(0, 1, 0, [[(0, 0, 1)]]), node(1, 1, 4, [[(0, 3, 0)]]), node(2, 1, 10, [[(0, 0, 5)]]),
        node(3, 1, 10, [[(9, 9, 9)]], phase="eval"),
    ])  # fmt: skip
    table = td.heat_map(td.read_td(path), buckets=2)
    assert table.to_dict("list") == {
        "agent": [0, 0], "turn": [1, 1], "bucket": [0, 1], "step_from": [0, 5], "step_to": [5, 10],
        "td_error_mean": [-1, 5], "td_error_abs": [2, 5], "count": [2, 1],
    }  # fmt: skip


def rows_of(values, targets, realised=None, steps=None) -> td.TdRows:
    count = len(values)
    frame = pd.DataFrame({"node_id": range(count), "step": range(count) if steps is None else steps, "turn": 1,
                          "agent": 0, "k": 0, "reward": 0.0, "value": values, "target": targets})  # fmt: skip
    frame["td_error"] = frame["target"] - frame["value"]
    frame["realised"] = frame["target"] if realised is None else realised
    return td.TdRows(frame, count, count)


def test_calibration_by_hand() -> None:
    # two bins of two: values 0, 1 | 2, 3 with realised 1, 2 | 2, 6: distances |0.5 - 1.5| = 1 and |2.5 - 4| = 1.5
    table = td.calibration(rows_of([3.0, 0, 1, 2], [0.0, 0, 0, 4], [6.0, 1, 2, 2]), bins=2)
    assert table["value_mean"].tolist() == [0.5, 2.5]
    assert table["realised_mean"].tolist() == [1.5, 4]
    assert table["target_mean"].tolist() == [0, 2]
    assert table["realised_std"].tolist() == [0.5, 2]
    assert table["count"].tolist() == [2, 2]
    assert td.calibration_error(table) == pytest.approx(1.25)


def test_equal_values_share_one_bin() -> None:
    table = td.calibration(rows_of([1.0] * 6, [0.0, 1, 2, 3, 4, 5]), bins=3, per_turn=True)
    assert table[["turn", "bin", "count"]].to_numpy().tolist() == [[1, 0, 6]]
    assert table["realised_mean"].tolist() == [2.5]


def test_explained_variance_of_each_window_by_hand() -> None:
    # targets 0, 2, 0, 2 ... of variance 1; values exact up to step 7, then always 0; windows of 10, 6 and 1 samples
    steps = [*range(16), 30]
    targets = [0.0, 2] * 8 + [1]
    values = [0.0, 2] * 4 + [0.0] * 8 + [0]
    table = td.explained_variance(rows_of(values, targets, steps=steps), windows=3)  # edges 0, 10, 20, 30
    assert table["count"].tolist() == [10, 6, 1]
    # first window: 8 exact and targets 0, 2 with value 0: errors 0 x 9 and one 2: variance 4/10 - 0.04 = 0.36 of 1
    assert table["explained_variance"].tolist() == pytest.approx([0.64, np.nan, np.nan], nan_ok=True)
    assert table["step_to"].tolist() == [10, 20, 30]


def test_no_critic_and_no_data_are_reasons(path: Path, magrpo_run) -> None:  # noqa: F811
    TraceWriter(path)
    assert td.read_td(path).reason == td.NO_DATA
    rows = td.read_td(magrpo_run.trace_file)
    assert not rows.has_critic
    assert rows.reason == td.NO_CRITIC
    assert td.heat_map(rows).empty and td.calibration(rows).empty and td.explained_variance(rows).empty
    assert np.isnan(td.calibration_error(td.calibration(rows)))
    assert td.beside({"a": rows}).empty


def test_real_maac_agrees_with_the_undiscounted_returns_of_its_joints(maac_run) -> None:  # noqa: F811
    """Rendezvous rewards are shared and discount is 1: realised = joint return - 0.5 * KL of this and later turns."""
    rows = td.read_td(maac_run.trace_file)
    nodes = trace.read_nodes(maac_run.trace_file, phase="train").set_index("node_id")
    returns = trace.read_joints(maac_run.trace_file).set_index("node_id")["return"]
    kl = trace.read_completions(maac_run.trace_file).set_index(["node_id", "agent"])["kl"]
    children = {int(p): node_id for node_id, p in nodes["parent_id"].dropna().items()}
    assert len(rows.frame) == 2 * len(nodes) > 0
    assert kl.loc[nodes.index].max() > 0
    for row in rows.frame.itertuples():
        penalty = kl[row.node_id, row.agent]
        if row.node_id in children:
            penalty += kl[children[row.node_id], row.agent]
        assert row.realised == pytest.approx(returns[row.node_id] - 0.5 * penalty, abs=1e-6)


def test_real_maac_beside_iac(maac_run, iac_run) -> None:  # noqa: F811
    runs = {"MAAC": td.read_td(maac_run.trace_file), "IAC": td.read_td(iac_run.trace_file)}
    table = td.beside(runs, buckets=4)
    for name, rows in runs.items():
        mine = table[table["run"] == name]
        assert mine["count"].sum() == len(rows.frame)
        lone = td.explained_variance(rows, windows=4)  # both runs have the same steps, so the stretches agree
        pd.testing.assert_series_equal(
            mine["explained_variance"].reset_index(drop=True), lone["explained_variance"], check_names=False
        )
        weighted = (mine["td_error_mean"] * mine["count"]).sum() / mine["count"].sum()
        assert weighted == pytest.approx(rows.frame["td_error"].mean())
    assert sorted(set(table["step_from"])) == [1, 4.75, 8.5, 12.25]  # 16 rewards each


def test_a_long_run_is_sampled_by_whole_rollouts(big_critic_trace) -> None:
    start = time.process_time()
    rows = td.read_td(big_critic_trace)
    tables = td.heat_map(rows), td.calibration(rows), td.explained_variance(rows)
    assert time.process_time() - start < 2
    assert (rows.nodes, rows.total) == (2 * td.MAX_ROLLOUTS, 98_000)  # every 50th of 50,000 trees is an evaluation
    assert rows.frame.groupby(["turn", "agent"]).size().tolist() == [td.MAX_ROLLOUTS] * 4
    # that critic starts as noise and ends at 0.9 of the truth: 10 % noise of size 1 beside returns of size 0.4 * sqrt 2
    explained = tables[2][(tables[2]["agent"] == 0) & (tables[2]["turn"] == 2)]["explained_variance"]
    assert explained.iloc[0] < 0 < 0.5 < explained.iloc[-1]
    assert [len(table) > 0 for table in tables] == [True] * 3


def test_a_long_run_without_critic_is_known_at_once(big_trace) -> None:
    start = time.process_time()
    assert td.read_td(big_trace).reason == td.NO_CRITIC
    assert time.process_time() - start < 2
