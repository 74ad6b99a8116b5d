"""Why each agent got its advantage: the rollout tree of any step, one node in detail, and the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from workbench.insight.tree import RolloutView
from workbench.runs.workspace import RunFolder
from workbench.ui.charts.tree import tree_figure
from workbench.ui.run_tabs import readers
from workbench.ui.run_tabs.episodes import choose_episode
from workbench.ui.run_tabs.node_view import show_node
from workbench.ui.run_tabs.over_run import show_over_run
from workbench.ui.text import t
from workbench.ui.widgets import csv, download, tolerant

MOST_JOINTS = 1000
"""Joint responses drawn at once; with their prompts and lines a browser still draws them at once."""


def tab(run: RunFolder) -> None:
    """The rollout tree, the chosen node and completion, and what the whole run looks like."""
    st.caption(t("adv.about"))
    if not run.trace_file.exists():
        st.info(t("adv.none"))
        return
    with tolerant():
        root = choose_episode(run)
        if root is None:
            return
        show_node(run, _choose_node(run, root))
    with tolerant():
        show_over_run(run)


def _choose_node(run: RunFolder, root: int) -> int:
    """Draws the tree; the node that was clicked, chosen or addressed."""
    node = readers.address("node")
    node = root if node is None else node
    zoomed = node != root and st.session_state.get("adv-zoom", False)
    view = readers.rollout(run, node if zoomed else root, MOST_JOINTS)
    if node not in set(view.nodes["node_id"]):  # too far down for a tree of this size: draw from here
        view = readers.rollout(run, node, MOST_JOINTS)
    figure = tree_figure(view, node, readers.address("joint"), t)
    clicked = partial(_clicked, dict(zip(zip(view.joints["node_id"], view.joints["joint"]), view.joints["responses"])))
    st.plotly_chart(
        figure, key="adv-tree", on_select=clicked, selection_mode="points", alt=t("adv.tree_title"),
        config={"displaylogo": False},
    )  # fmt: skip
    st.caption(t("adv.tree_help"))
    _choice(view, node, node != root)
    _about_tree(view)
    return node


def _clicked(responses: dict[tuple[int, int], list[int]]) -> None:
    """A click on a prompt chooses its node; one on a joint response its node and this completion."""
    points = st.session_state["adv-tree"]["selection"]["points"]
    place = points[0].get("customdata") if points else None
    if not place:
        return
    node, joint = int(place[0]), int(place[1])
    readers.set_address(node=node)
    if joint >= 0:
        agent = readers.address("agent") or 0
        response = responses[node, joint]
        readers.set_address(joint=joint, k=response[agent] if agent < len(response) else response[0])
    else:
        st.query_params.pop("joint", None)


def _choice(view: RolloutView, node: int, below: bool) -> None:
    """The same choice without a mouse."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    labels = dict(zip(view.nodes["node_id"].tolist(), _labels(view.nodes)))
    st.session_state["adv-node"] = node
    left.selectbox(
        t("adv.node"), list(labels), format_func=labels.__getitem__, key="adv-node", on_change=_chosen,
        help=t("adv.node_help"),
    )  # fmt: skip
    right.toggle(t("adv.zoom"), key="adv-zoom", disabled=not below, help=t("adv.zoom_help"))


def _chosen() -> None:
    st.query_params.pop("joint", None)
    readers.set_address(node=st.session_state["adv-node"])


def _labels(nodes: pd.DataFrame) -> Sequence[str]:
    return [
        t("adv.node_root", node=node, turn=turn, value=value)
        if joint is pd.NA
        else t("adv.node_child", node=node, turn=turn, joint=joint, value=value)
        for node, turn, joint, value in zip(
            nodes["node_id"], nodes["turn"], nodes["parent_joint"], nodes["return"]
        )
    ]  # fmt: skip


def _about_tree(view: RolloutView) -> None:
    parts = [t("adv.tree_size", nodes=view.tree_nodes, joints=len(view.joints))]
    if view.cut:
        parts.append(t("adv.tree_cut", shown=t("common.showing", shown=len(view.nodes), total=view.tree_nodes)))
    st.caption(" ".join(parts))
    joints = view.joints.drop(columns=["x", "y"])
    download(t("common.download"), partial(csv, joints), "rollout-tree.csv", "adv-tree-csv")
