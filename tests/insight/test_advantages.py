"""Advantages of a node and over a run: hand-worked numbers, NULLs, and a trace of 100,000 nodes."""

import math
import time

import pytest

from workbench.insight.advantages import histogram, node_detail, sign_flips, signal_over_time, what_if
from workbench.tracking.trace import read_completions
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord


def completions(agent, returns, advantages=None, **numbers):
    advantages = advantages or [None] * len(returns)
    return tuple(
        CompletionRecord(agent, k, f"prompt {agent}", f"text {k}", 3, True, -1.0, reward=r, return_=r, baseline=0.25,
                         advantage=a, normalized=a, **numbers)
        for k, (r, a) in enumerate(zip(returns, advantages))
    )  # fmt: skip


def node(node_id, *groups, turn=1, phase="train"):
    count = len(groups[0])
    joints = tuple(JointRecord(k, (k,) * len(groups), groups[0][k].reward, groups[0][k].return_) for k in range(count))
    rows = tuple(row for group in groups for row in group)
    return NodeRecord(node_id, phase, 10 * node_id, 0, 3, turn, None, None, False, joints, rows)


@pytest.fixture
def writer(tmp_path):
    return TraceWriter(tmp_path / "trace.db")


def test_the_detail_of_a_node(writer):
    writer.nodes(
        [node(0, completions(0, [1.0, None]), completions(1, [2.0, 4.0], [-1.0, 1.0])), node(1, completions(0, [9.0]))]
    )
    detail = node_detail(writer.path, 0)
    assert (detail.node["item"], detail.node["turn"], detail.has_critic) == (3, 1, False)
    assert [group.prompt for group in detail.agents] == ["prompt 0", "prompt 1"]
    assert [group.agent for group in detail.agents] == [0, 1]
    assert detail.agents[0].completions["text"].tolist() == ["text 0", "text 1"]
    assert math.isnan(detail.agents[0].completions["return"].iloc[1])
    assert detail.agents[1].completions["advantage"].tolist() == [-1.0, 1.0]
    assert detail.joints["responses"].tolist() == [[0, 0], [1, 1]]
    with pytest.raises(ValueError, match=r"^The trace has no node 8;"):
        node_detail(writer.path, 8)


def test_a_critic_s_node_says_so(writer):
    writer.nodes([node(0, completions(0, [1.0], [0.5], value=0.5, target=1.0, td_error=0.5))])
    detail = node_detail(writer.path, 0)
    assert detail.has_critic
    assert detail.agents[0].completions[["value", "target", "td_error"]].to_numpy().tolist() == [[0.5, 1.0, 0.5]]


def test_what_the_other_baselines_would_have_given(writer):
    # scored returns 1 and 4: mean 2.5, others 4 and 1, max 4; normalised -1 and 1 whatever the baseline
    writer.nodes([node(0, completions(0, [1.0, None, 4.0], [0.75, None, 3.75]))])
    table = what_if(node_detail(writer.path, 0))
    assert table["mode"].drop_duplicates().tolist() == ["used", "raw", "mean", "rloo", "max"]
    found = {mode: rows["advantage"].dropna().tolist() for mode, rows in table.groupby("mode")}
    assert found == {
        "used": [0.75, 3.75], "raw": [1.0, 4.0], "mean": [-1.5, 1.5], "rloo": [-3.0, 3.0], "max": [-3.0, 0.0],
    }  # fmt: skip
    for mode in ("raw", "mean", "rloo", "max"):
        rows = table[table["mode"] == mode]
        assert rows["normalized"].dropna().tolist() == pytest.approx([-1, 1])
        assert rows["advantage"].isna().tolist() == [False, True, False]
    assert table[table["mode"] == "used"]["baseline"].tolist() == [0.25] * 3


def test_what_was_used_is_what_its_own_baseline_gives_again(big_trace):
    table = what_if(node_detail(big_trace, 60_001))
    used, mean = (table[table["mode"] == mode].set_index(["agent", "k"]) for mode in ("used", "mean"))
    for column in ("return", "baseline", "advantage", "normalized"):
        assert used[column].tolist() == pytest.approx(mean[column].tolist(), abs=1e-9, nan_ok=True)


def test_a_histogram_counts_every_number_once(writer):
    writer.nodes([
        node(0, completions(0, [0.0] * 4, [0.0, 0.5, 1.0, None]), completions(1, [0.0] * 4, [1.0, 1.0, 1.0, 4.0])),
        node(1, completions(0, [0.0], [math.inf]), completions(1, [0.0], [2.0]), turn=2),
        node(2, completions(0, [0.0], [100.0]), completions(1, [0.0], [100.0]), phase="eval"),
    ])  # fmt: skip
    found = histogram(writer.path, bins=4)  # edges 0 1 2 3 4; a value on an edge counts to its right, 4 to the last
    counts = {key: rows["count"].tolist() for key, rows in found.table.groupby(["agent", "turn"])}
    assert counts == {(0, 1): [2, 1, 0, 0], (1, 1): [0, 3, 0, 1], (1, 2): [0, 0, 1, 0]}
    assert found.table["left"].tolist()[:4] == [0, 1, 2, 3] and found.table["right"].tolist()[:4] == [1, 2, 3, 4]
    assert (found.shown, found.total, found.exact, found.unscored) == (2, 2, True, 1)


def test_groups_without_signal_over_time(writer):
    dull, lively, unscored = [0.0, 1e-12], [0.0, 0.5], [None, None]
    writer.nodes([
        node(i, completions(0, [1.0, 1.0], first), completions(1, [1.0, 1.0], second))
        for i, (first, second) in enumerate([(lively, lively), (dull, lively), (dull, unscored), (dull, dull)])
    ])  # fmt: skip
    found = signal_over_time(writer.path, buckets=2)
    columns = ["bucket", "agent", "step_from", "step_to", "groups", "zero", "unscored", "share"]
    assert found.table[columns].to_numpy().tolist() == [
        [0, 0, 0, 10, 2, 1, 0, 0.5], [0, 1, 0, 10, 2, 0, 0, 0.0],
        [1, 0, 20, 30, 2, 2, 0, 1.0], [1, 1, 20, 30, 2, 1, 1, 1.0],
    ]  # fmt: skip
    assert found.unscored == 2
    alone = signal_over_time(writer.path, buckets=4).table
    assert math.isnan(alone[(alone["bucket"] == 2) & (alone["agent"] == 1)]["share"].iloc[0])


def test_sign_flips_by_hand(writer):
    # returns 1 2 6: raw + + +, mean and rloo - - +, max - - 0;  returns -1 -1: raw - -, all others 0 0
    writer.nodes([
        node(0, completions(0, [1.0, 2.0, 6.0])), node(1, completions(0, [-1.0, None, -1.0])),
        node(2, completions(0, [5.0, None])),  # no group
    ])  # fmt: skip
    found = sign_flips(writer.path)
    table = found.table.set_index(["first", "second"])[["completions", "opposite", "one_zero"]]
    assert {pair: row.tolist() for pair, row in table.iterrows()} == {
        ("raw", "mean"): [5, 2, 2], ("raw", "rloo"): [5, 2, 2], ("raw", "max"): [5, 2, 3],
        ("mean", "rloo"): [5, 0, 0], ("mean", "max"): [5, 0, 1], ("rloo", "max"): [5, 0, 1],
    }  # fmt: skip
    assert found.table["share"].tolist() == pytest.approx([0.8, 0.8, 1.0, 0.0, 0.2, 0.2])
    assert found.unscored == 2


def test_agents_of_one_node_are_groups_of_their_own(writer):
    writer.nodes([node(0, completions(0, [1.0, 3.0]), completions(1, [10.0, 30.0]))])
    table = sign_flips(writer.path).table.set_index(["first", "second"])
    assert table.loc[("raw", "mean"), "opposite"] == 2  # 1 of mean 2, and 10 of mean 20


def test_single_completions_have_no_baseline_to_flip(big_critic_trace):
    table = sign_flips(big_critic_trace).table
    assert table["completions"].tolist() == [0] * 6
    assert table["share"].isna().all()


@pytest.mark.parametrize("statistic", [histogram, signal_over_time, sign_flips])
def test_a_trace_without_training_nodes_gives_an_empty_statistic(writer, statistic):
    writer.nodes([node(0, completions(0, [1.0]), phase="eval")])
    found = statistic(writer.path)
    assert (found.shown, found.total, found.unscored) == (0, 0, 0)
    assert found.table.empty or found.table["completions"].sum() == 0


@pytest.mark.parametrize("name", ["big_trace", "big_critic_trace"])
def test_a_long_trace_is_quick_and_says_what_it_shows(request, name):
    path = request.getfixturevalue(name)
    for statistic in (histogram, signal_over_time, sign_flips):
        start = time.process_time()
        found = statistic(path)
        assert time.process_time() - start < 2.0, statistic.__name__
        assert 0 < found.shown < found.total == 98_000
        assert not found.exact
    start = time.process_time()
    what_if(node_detail(path, 99_000))
    assert time.process_time() - start < 2.0


def test_a_sample_is_near_the_whole(big_trace):
    found = signal_over_time(big_trace, buckets=4)
    zero = found.table["zero"].sum() / (found.table["groups"] - found.table["unscored"]).sum()
    rows = read_completions(big_trace, phase="train", columns=("node_id", "agent", "advantage"))
    largest = rows["advantage"].abs().groupby([rows["node_id"], rows["agent"]]).max().dropna()
    assert zero == pytest.approx((largest <= 1e-9).mean(), abs=0.03)
    assert (
        found.table["share"].is_monotonic_increasing
        or found.table["share"].iloc[-1] > found.table["share"].iloc[0] + 0.2
    )
