"""Episodes page by page, and rollout trees with hand-worked positions, cut where they are too wide."""

import itertools
import math
import time

import pytest

from workbench.insight.tree import list_episodes, rollout, root_at_step, root_of
from workbench.tracking.trace import read_nodes
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord

SECONDS = 2.0


def node(node_id, turn=1, parent=(None, None), rewards=(1.0, 3.0), advantages=(0.5, -0.5), phase="train", item=0):
    """One agent; joint response k is its completion k."""
    joints = tuple(JointRecord(k, (k,), r, None if r is None else r + 1) for k, r in enumerate(rewards))
    rows = tuple(
        CompletionRecord(0, k, "prompt", "text", 3, True, -1.0, advantage=a)
        for k, a in enumerate(itertools.islice(itertools.cycle(advantages), len(rewards)))
    )
    return NodeRecord(node_id, phase, 10 * node_id + 10, 0, item, turn, *parent, turn == 2, joints, rows)


def grow(first_id, width, turns, rewards=None):
    """A full tree in breadth-first order; returns its records."""
    records, level = [node(first_id, rewards=rewards or [1.0] * width)], [first_id]
    for turn in range(2, turns + 1):
        parents = list(itertools.product(level, range(width)))
        start = first_id + len(records)
        records += [node(start + i, turn, parent, [1.0] * width) for i, parent in enumerate(parents)]
        level = list(range(start, start + len(parents)))
    return records


@pytest.fixture
def writer(tmp_path):
    return TraceWriter(tmp_path / "trace.db")


def test_a_small_tree_by_hand(writer):
    #        node 0 at 2          its joints stand above their children: 0.5 and 3.5
    #   node 1 at 0.5  node 2 at 3.5       leaves at 0 1 and, after a gap for the other family, 3 4
    writer.nodes([node(7), *grow(10, 2, 2, rewards=[1.0, None]), node(20)])
    view = rollout(writer.path, 10)
    assert view.nodes[["node_id", "x", "y"]].to_numpy().tolist() == [[10, 2, 0], [11, 0.5, -2], [12, 3.5, -2]]
    assert view.joints[["node_id", "joint", "x", "y"]].to_numpy().tolist() == [
        [10, 0, 0.5, -1], [10, 1, 3.5, -1], [11, 0, 0, -3], [11, 1, 1, -3], [12, 0, 3, -3], [12, 1, 4, -3],
    ]  # fmt: skip
    assert view.joints["child_id"].tolist()[:2] == [11, 12]
    assert view.joints["child_id"].isna().tolist() == [False, False, True, True, True, True]
    assert view.nodes["reward"].tolist() == [1.0, 1.0, 1.0]  # the unscored response does not count
    assert view.nodes["return"].tolist() == [2.0, 2.0, 2.0]
    assert view.nodes["max_advantage"].tolist() == [0.5, 0.5, 0.5]
    assert view.joints["advantage"].tolist() == [0.5, -0.5] * 3
    assert view.nodes["terminated"].tolist() == [False, True, True]
    assert view.nodes["parent_joint"].tolist()[1:] == [0, 1]
    assert (view.tree_nodes, view.cut) == (3, False)


def test_a_branch_can_be_the_top(writer):
    writer.nodes(grow(0, 2, 3))
    view = rollout(writer.path, 2)  # under joint response 1 of the root: children 5 and 6
    assert view.nodes["node_id"].tolist() == [2, 5, 6]
    assert view.nodes["y"].tolist() == [0, -2, -2]
    assert view.tree_nodes == 7


@pytest.mark.parametrize(("width", "turns", "nodes"), [(64, 2, 65), (8, 4, 585), (1, 4, 4)])
def test_wide_trees_are_tidy(writer, width, turns, nodes):
    writer.nodes(grow(0, width, turns))
    start = time.process_time()
    view = rollout(writer.path, 0)
    assert time.process_time() - start < SECONDS
    assert (len(view.nodes), len(view.joints), view.cut) == (nodes, nodes * width, False)
    for frame in (view.nodes, view.joints):
        for _, level in frame.groupby("y"):
            gaps = level["x"].diff().dropna()
            assert (gaps >= 1 - 1e-9).all()  # in the order of ids from left to right, and never on top of each other
    own = view.joints.groupby("node_id")["x"].agg(["min", "max"]).mean(axis=1)
    assert view.nodes["x"].tolist() == pytest.approx(own.tolist())
    placed = view.joints.dropna(subset="child_id").set_index("child_id")["x"]
    assert view.nodes.set_index("node_id")["x"].loc[placed.index].tolist() == placed.tolist()


def test_a_tree_that_is_too_wide_is_cut_and_says_where(writer):
    writer.nodes([*grow(0, 64, 2), *grow(100, 4, 4)])
    view = rollout(writer.path, 0, max_joints=640)  # 640 / 64 = the root and 9 children
    assert (len(view.nodes), len(view.joints), view.cut) == (10, 640, True)
    assert view.nodes["hidden_children"].tolist() == [55] + [0] * 9
    assert view.tree_nodes == 65
    deep = rollout(writer.path, 100, max_joints=60)  # 15 nodes: 1, 4 and 10 of 16; below those nothing is read
    assert deep.nodes["turn"].tolist() == [1] + [2] * 4 + [3] * 10
    assert deep.nodes["hidden_children"].tolist() == [0, 0, 0, 2, 4] + [4] * 10
    assert len(rollout(writer.path, 100, max_joints=1).joints) == 4  # the top always


def test_an_evaluation_has_no_advantage(writer):
    writer.nodes([node(0, rewards=(1.0,), advantages=(None,), phase="eval")])
    view = rollout(writer.path, 0)
    assert math.isnan(view.nodes["max_advantage"].iloc[0])
    assert list_episodes(writer.path).rows["has_signal"].tolist() == [False]


def test_episodes_come_newest_first_and_page_by_page(writer):
    writer.nodes([record for i in range(7) for record in grow(3 * i, 2, 2)])
    first = list_episodes(writer.path, size=3)
    assert first.rows["node_id"].tolist() == [18, 15, 12]
    assert (
        first.rows[["nodes", "turns", "reward", "return", "max_advantage"]].to_numpy().tolist()
        == [[3, 2, 1.0, 2.0, 0.5]] * 3
    )
    writer.nodes(grow(21, 2, 2))  # training goes on: the next page stays where it was
    second = list_episodes(writer.path, before=first.older, size=3)
    assert second.rows["node_id"].tolist() == [9, 6, 3]
    last = list_episodes(writer.path, before=second.older, size=3)
    assert (last.rows["node_id"].tolist(), last.older) == ([0], None)


def test_episodes_are_filtered(writer):
    dull = (0.0, 1e-12)
    writer.nodes([
        *grow(0, 2, 2), node(3, item=5), node(4, phase="eval", advantages=(None,)), node(5, advantages=dull, item=5),
        node(6, advantages=dull), node(7, 2, (6, 0)), node(8, 2, (6, 1), advantages=dull),
    ])  # fmt: skip

    def ids(**filters):
        return list_episodes(writer.path, **filters).rows["node_id"].tolist()

    assert ids() == [6, 5, 4, 3, 0]
    assert ids(phase="eval") == [4]
    assert ids(item=5) == [5, 3]
    assert ids(turns=2) == [6, 0]
    assert ids(signal=True) == [6, 3, 0]  # of 6 only a child has signal
    assert ids(signal=False) == [5, 4]
    assert ids(signal=False, phase="train", item=5, turns=1) == [5]
    assert ids(item=99) == []


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_pages_of_a_filter_leave_nothing_out(writer, size):
    writer.nodes([node(i, advantages=(0.0 if i % 3 else 1.0,)) for i in range(20)])
    found, before, pages = [], None, 0
    while before is not None or not pages:
        page = list_episodes(writer.path, before=before, size=size, signal=True)
        found += page.rows["node_id"].tolist()
        before, pages = page.older, pages + 1
    assert found == [18, 15, 12, 9, 6, 3, 0]


def test_a_rare_match_is_searched_piece_by_piece(big_trace):
    start = time.process_time()
    page = list_episodes(big_trace, turns=9)
    assert time.process_time() - start < SECONDS
    assert page.rows.empty
    assert 0 < page.searched < 10_000
    assert page.older > 0


def test_where_a_node_or_a_step_belongs(writer):
    writer.nodes([*grow(0, 2, 2), *grow(3, 2, 2), node(6, phase="eval")])  # node i ends at env_step 10 i + 10
    assert [root_of(writer.path, i) for i in range(7)] == [0, 0, 0, 3, 3, 3, 6]
    assert root_at_step(writer.path, 25) == 0  # node 2 reaches 30
    assert root_at_step(writer.path, 31) == 3
    assert root_at_step(writer.path, 10_000) == 3  # not reached yet: the newest in training
    with pytest.raises(ValueError, match=r"^The trace has no node 9;"):
        root_of(writer.path, 9)


def test_an_empty_trace_has_no_episodes(writer):
    page = list_episodes(writer.path)
    assert (page.rows.empty, page.searched, page.older) == (True, 0, None)
    assert root_at_step(writer.path, 1) is None


def test_a_long_trace_is_quick(big_trace):
    last = int(read_nodes(big_trace, after=99_990)["node_id"].iloc[-1])
    calls = {
        "page": lambda: list_episodes(big_trace),
        "old page": lambda: list_episodes(big_trace, before=5000),
        "signal": lambda: list_episodes(big_trace, signal=True),
        "no signal": lambda: list_episodes(big_trace, signal=False, phase="train"),
        "item": lambda: list_episodes(big_trace, item=96),
        "tree": lambda: rollout(big_trace, 50_000),
        "last tree": lambda: rollout(big_trace, last),
        "step": lambda: root_at_step(big_trace, 399_000),
    }
    for name, call in calls.items():
        start = time.process_time()
        call()
        assert time.process_time() - start < SECONDS, name
    assert len(list_episodes(big_trace, signal=False).rows) == 20
