"""Which episodes a run has, newest first, and the rollout tree of any of them, laid out for drawing.

An episode is one item's rollout: its root node and everything below. Both views read a bounded number of rows,
however long the trace, and say where they stopped. Colours and marks are the screen's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from workbench.tracking import trace

SIGNAL = 1e-9
"""An |advantage| above this moves the weights; equal returns leave at most rounding errors."""

TREE_NODES = 100  # of each listed tree, how many nodes are searched for an advantage
SEARCH_NODES = 5000  # one call looks through about this many nodes for episodes that match
CHUNK = 250  # episodes looked at together
MAX_JOINTS = 5000
LAST = 2**62


@dataclass(frozen=True)
class EpisodePage:
    """A page of episodes. searched: how many were looked at; older: where the next page starts, None at the end.

    A page may be short, even empty, with `older` set: rare matches are searched piece by piece.
    """

    rows: pd.DataFrame
    searched: int
    older: int | None


def list_episodes(
    path: str | Path, before: int | None = None, size: int = 20, phase: str | None = None, item: int | None = None,
    signal: bool | None = None, turns: int | None = None,
) -> EpisodePage:  # fmt: skip
    """Episodes with root ids below `before` (None = the newest), newest first, one row each.

    Columns: those of trace.read_nodes for the root, nodes and turns of its tree, reward and return (means of the
    root's scored joint responses), max_advantage (of the tree's first 100 nodes) and has_signal. Filters: phase, item,
    signal (True = some advantage is not zero) and turns (that many were played). Raises TraceError.
    """
    found: list[pd.DataFrame] = []
    missing, searched, nodes, chunk = size, 0, 0, max(size, CHUNK)
    if signal is None and turns is None:
        chunk = size
    while missing > 0 and nodes < SEARCH_NODES:
        roots = trace.read_node_ids(
            path, phase, item=item, roots=True, before=before, limit=chunk, newest_first=True
        ).tolist()
        rows = _episodes(path, roots)
        kept = rows[_matches(rows, signal, turns)].head(missing)
        missing -= len(kept)
        # A full page stops at its last row: what follows it in this chunk belongs to the next page.
        looked_at = rows if missing else rows[rows["node_id"] >= kept["node_id"].min()]
        searched, nodes = searched + len(looked_at), nodes + int(looked_at["nodes"].sum())
        found.append(kept)
        if len(roots) < chunk and len(looked_at) == len(roots):
            return EpisodePage(pd.concat(found, ignore_index=True), searched, None)
        before = int(looked_at["node_id"].min())
    return EpisodePage(pd.concat(found, ignore_index=True), searched, before)


def root_of(path: str | Path, node_id: int) -> int:
    """The root of the tree a node belongs to; ValueError when there is no such node."""
    if trace.read_nodes(path, node_ids=[node_id]).empty:
        raise ValueError(f"The trace has no node {node_id}; it may have been taken back by a resume.")
    return int(trace.read_node_ids(path, roots=True, before=node_id + 1, limit=1, newest_first=True)[0])


def root_at_step(path: str | Path, step: int, phase: str = "train") -> int | None:
    """The root of the tree that reached env_step `step`; the newest if the run is not there yet, None without any."""
    ids = trace.read_node_ids(path, phase, step=step, limit=1)
    if not len(ids):
        ids = trace.read_node_ids(path, phase, limit=1, newest_first=True)
    return root_of(path, int(ids[0])) if len(ids) else None


@dataclass(frozen=True)
class RolloutView:
    """The tree below one node, cut to what can be drawn, see `rollout`."""

    nodes: pd.DataFrame
    joints: pd.DataFrame
    tree_nodes: int  # nodes of the whole tree

    @property
    def cut(self) -> bool:
        """True: some children are left out; open one of their parents as the top to see them."""
        return bool(self.nodes["hidden_children"].any())


def rollout(path: str | Path, top: int, max_joints: int = MAX_JOINTS) -> RolloutView:
    """Node -> joint responses -> child nodes, from `top` (a root or any other node) down, breadth first.

    nodes: columns of trace.read_nodes, reward and return (means of the scored joint responses), max_advantage,
    hidden_children, x, y. joints: node_id, joint, responses, reward, return, advantage (mean of its completions'),
    child_id (<NA>: none in view), x, y. Joints stand at least 1 apart; a node stands centred above its joints, a child
    below its joint; y counts down from 0, two per turn. At most `max_joints` joints, but always those of the top.
    """
    stop = end_of_tree(path, root := root_of(path, top))
    nodes = _read_below(path, top, stop, max_joints)
    ids = nodes["node_id"].tolist()
    joints = trace.read_joints(path, node_ids=ids)
    joints["child_id"] = _children_of_joints(nodes, joints)
    completions = trace.read_completions(path, node_ids=ids, columns=("node_id", "agent", "k", "advantage"))
    joints["advantage"] = _joint_advantages(joints, completions)
    means = joints.groupby("node_id")[["reward", "return"]].mean()
    largest = completions["advantage"].abs().groupby(completions["node_id"]).max().rename("max_advantage")
    nodes = nodes.join(means, on="node_id").join(largest, on="node_id")
    nodes["hidden_children"] = _hidden(path, nodes, stop)
    _lay_out(nodes, joints)
    columns = ["node_id", "joint", "responses", "reward", "return", "advantage", "child_id", "x", "y"]
    return RolloutView(nodes, joints[columns], len(trace.read_node_ids(path, after=root - 1, before=stop)))


def _episodes(path: str | Path, roots: list[int]) -> pd.DataFrame:
    rows = trace.read_nodes(path, node_ids=roots).merge(trace.read_trees(path, roots, TREE_NODES), on="node_id")
    rows["has_signal"] = rows["max_advantage"] > SIGNAL
    return rows.sort_values("node_id", ascending=False, ignore_index=True)


def _matches(rows: pd.DataFrame, signal: bool | None, turns: int | None) -> pd.Series:
    fits = pd.Series(True, index=rows.index)
    if signal is not None:
        fits &= rows["has_signal"] == signal
    if turns is not None:
        fits &= rows["turns"] == turns
    return fits


def end_of_tree(path: str | Path, root: int) -> int:
    """The first id after the tree with this root: the ids of a tree are consecutive."""
    following = trace.read_node_ids(path, roots=True, after=root, limit=1)
    return int(following[0]) if len(following) else LAST


def _read_below(path: str | Path, top: int, stop: int, max_joints: int) -> pd.DataFrame:
    """The top and its descendants, level by level, until their joints would be too many."""
    width = len(trace.read_joints(path, node_ids=[top]))
    room = max(1, max_joints // max(1, width)) - 1
    levels = [trace.read_nodes(path, node_ids=[top])]
    while room > 0 and len(levels[-1]):
        levels.append(trace.read_children(path, levels[-1]["node_id"].tolist(), stop, room))
        room -= len(levels[-1])
    return pd.concat([level for level in levels if len(level)], ignore_index=True)


def _children_of_joints(nodes: pd.DataFrame, joints: pd.DataFrame) -> pd.Series:
    children = {(p, j): c for p, j, c in zip(nodes["parent_id"], nodes["parent_joint"], nodes["node_id"])}
    found = [children.get(key) for key in zip(joints["node_id"], joints["joint"])]
    return pd.Series(found, index=joints.index, dtype="Int64")


def _joint_advantages(joints: pd.DataFrame, completions: pd.DataFrame) -> list[float]:
    keys = zip(completions["node_id"], completions["agent"], completions["k"])
    known: Mapping[tuple[int, int, int], float] = dict(zip(keys, completions["advantage"]))
    return [
        sum(known.get((node, agent, k), math.nan) for agent, k in enumerate(response)) / len(response)
        for node, response in zip(joints["node_id"], joints["responses"])
    ]


def _hidden(path: str | Path, nodes: pd.DataFrame, stop: int) -> list[int]:
    ids = nodes["node_id"].tolist()
    children, shown = trace.count_children(path, ids, stop), nodes["parent_id"].value_counts()
    return [children.get(node, 0) - int(shown.get(node, 0)) for node in ids]


def _lay_out(nodes: pd.DataFrame, joints: pd.DataFrame) -> None:
    """Adds x and y to both frames, in place."""
    node_x: dict[int, float] = {}
    joint_x = dict.fromkeys(joints.index, 0.0)
    below = {node: list(zip(rows.index, rows["child_id"])) for node, rows in joints.groupby("node_id")}
    slot = 0.0

    def place(node: int) -> float:
        nonlocal slot
        for index, child in below.get(node, []):
            if child is pd.NA:
                joint_x[index], slot = slot, slot + 1
            else:
                joint_x[index] = place(int(child))
                slot += 1  # a gap between the families of two cousins
        rows = [joint_x[index] for index, _ in below.get(node, [])]
        node_x[node] = (rows[0] + rows[-1]) / 2 if rows else slot
        return node_x[node]

    place(int(nodes["node_id"].iloc[0]))
    depth = 2.0 * (nodes["turn"].iloc[0] - nodes["turn"])
    nodes["x"], nodes["y"] = nodes["node_id"].map(node_x), depth
    joints["x"] = list(joint_x.values())
    joints["y"] = joints["node_id"].map(dict(zip(nodes["node_id"], depth - 1)))
