"""Bounded reading: all nodes of a short trace, evenly spread ones of a long one, and honest numbers."""

import time

import numpy as np
import pytest

from workbench.insight.sampling import MAX_NODES, sample_nodes, spread, with_completions
from workbench.tracking.trace import TraceError, read_node_ids
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord


@pytest.mark.parametrize(("count", "limit"), [(0, 5), (4, 5), (5, 5), (6, 5), (1000, 7), (100_000, 2000)])
def test_one_position_in_each_equal_slice(count, limit):
    places = spread(count, limit)
    assert len(places) == min(count, limit)
    assert (np.diff(places) > 0).all()
    if count > limit:
        assert (places * limit // count).tolist() == pytest.approx(list(range(limit)), abs=1)
    else:
        assert places.tolist() == list(range(count))


@pytest.mark.parametrize("period", [2, 3, 5, 10, 65])
def test_a_pattern_that_repeats_is_met_in_proportion(period):
    places = spread(100_000, 2000)  # a fixed distance of 50 would meet the same place of a period of 5 each time
    share = (places % period == 0).mean()
    assert share == pytest.approx(1 / period, rel=0.35)


def node(node_id, phase="train", turn=1, parent=(None, None), item=0):
    rows = (CompletionRecord(0, 0, "prompt", "text", 3, True, -1.0, return_=node_id + 0.5),)
    return NodeRecord(
        node_id, phase, node_id * 2, 0, item, turn, *parent, False, (JointRecord(0, (0,), 1.0, 1.0),), rows
    )


@pytest.fixture
def path(tmp_path):
    writer = TraceWriter(tmp_path / "trace.db")
    writer.nodes(
        [node(0), node(1, turn=2, parent=(0, 0)), node(2, "eval"), node(3, item=4), node(4, turn=2, parent=(3, 0))]
    )
    return writer.path


def test_a_short_trace_is_read_as_a_whole(path):
    sample = sample_nodes(path)
    assert (sample.ids, sample.shown, sample.total, sample.exact) == ([0, 1, 3, 4], 4, 4, True)
    assert sample_nodes(path, phase=None).ids == [0, 1, 2, 3, 4]
    assert sample_nodes(path, turn=2).ids == [1, 4]
    assert sample_nodes(path, roots=True, after=0).ids == [3]
    assert sample_nodes(path, phase="eval", turn=2).ids == []
    few = sample_nodes(path, limit=2)
    assert (few.shown, few.total, few.exact) == (2, 4, False)


def test_completions_come_with_the_step_and_turn_of_their_node(path):
    frame = with_completions(path, sample_nodes(path, turn=2), ["return"])
    assert list(frame.columns) == ["node_id", "agent", "k", "return", "step", "turn"]
    assert frame.to_numpy().tolist() == [[1, 0, 0, 1.5, 2, 2], [4, 0, 0, 4.5, 8, 2]]
    assert with_completions(path, sample_nodes(path, turn=9), ["return"]).empty


def test_ids_by_phase_item_step_and_position(path):
    assert read_node_ids(path).tolist() == [0, 1, 2, 3, 4]
    assert read_node_ids(path, roots=True, newest_first=True, limit=2).tolist() == [3, 2]
    assert read_node_ids(path, item=4).tolist() == [3]
    assert read_node_ids(path, step=6, phase="train").tolist() == [3, 4]
    assert read_node_ids(path, after=1, before=4).tolist() == [2, 3]


def test_a_file_that_is_no_trace_is_one_error(tmp_path):
    with pytest.raises(TraceError, match="There is no trace"):
        sample_nodes(tmp_path / "trace.db")


def test_a_long_trace_is_sampled_quickly(big_trace):
    start = time.process_time()
    sample = sample_nodes(big_trace)
    frame = with_completions(big_trace, sample, ["advantage"])
    assert time.process_time() - start < 2.0
    assert (sample.shown, sample.total) == (MAX_NODES, 98_000)  # every 50th tree is an evaluation
    assert len(frame) == MAX_NODES * 8
    # 3 of 4 trees have four children among five nodes, the others are roots: 3/4 * 4/5
    assert (sample.nodes["turn"] == 2).mean() == pytest.approx(0.6, abs=0.05)
    assert sample.ids[0] < 100 and sample.ids[-1] > 99_800
