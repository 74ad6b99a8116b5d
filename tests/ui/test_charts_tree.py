"""The rollout tree as a figure: what a point means, its colour, and what is drawn when there is little or much."""

import json

import numpy as np
import pandas as pd
import pytest

from workbench.insight.tree import RolloutView
from workbench.ui.charts.tree import tree_figure


def say(key, **values):
    return f"{key} {values}" if values else key


def view(advantages=(0.5, -0.25)):
    """One prompt (node 7, turn 1) with two joint responses; the second leads to node 8 with one unscored response."""
    nodes = pd.DataFrame({
        "node_id": [7, 8], "turn": [1, 2], "reward": [0.5, np.nan], "return": [0.75, np.nan],
        "max_advantage": [0.5, np.nan], "hidden_children": [0, 0], "x": [0.5, 1.0], "y": [0.0, -2.0],
    })  # fmt: skip
    joints = pd.DataFrame({
        "node_id": [7, 7, 8], "joint": [0, 1, 0], "responses": [[0, 0], [1, 1], [0, 0]], "reward": [1.0, 0.0, np.nan],
        "return": [1.0, 0.5, np.nan], "advantage": [*advantages, np.nan],
        "child_id": pd.Series([None, 8, None], dtype="Int64"), "x": [0.0, 1.0, 1.0], "y": [-1.0, -1.0, -3.0],
    })  # fmt: skip
    return RolloutView(nodes, joints, 2)


def named(figure, name):
    return next(trace for trace in figure.data if trace.name == name)


def test_a_point_says_what_a_click_on_it_means():
    traces = {trace.get("name"): trace for trace in json.loads(tree_figure(view(), 7, None, say).to_json())["data"]}
    assert traces["adv.legend_prompt"]["customdata"] == [[7, -1], [8, -1]]
    assert traces["adv.legend_joint"]["customdata"] == [[7, 0], [7, 1]]
    assert traces["adv.legend_unscored"]["customdata"] == [[8, 0]]


def test_colours_are_advantages_around_zero():
    marker = named(tree_figure(view(), 7, None, say), "adv.legend_joint").marker
    assert marker.color.tolist() == [0.5, -0.25]
    assert (marker.cmin, marker.cmax) == (-0.5, 0.5)
    assert marker.colorbar.title.text == "adv.colour"


def test_without_any_signal_everything_is_white():
    marker = named(tree_figure(view((0.0, 0.0)), 7, None, say), "adv.legend_joint").marker
    assert marker.cmin < 0 < marker.cmax


def test_lines_lead_from_prompts_over_responses_to_the_next_prompt():
    edges = tree_figure(view(), 7, None, say).data[0]
    pieces = np.split(np.column_stack([edges.x, edges.y]), range(3, len(edges.x), 3))
    lines = {tuple(map(tuple, piece[:2].tolist())) for piece in pieces}
    assert lines == {
        ((0.5, 0.0), (0.0, -1.0)), ((0.5, 0.0), (1.0, -1.0)), ((1.0, -2.0), (1.0, -3.0)),  # prompt to response
        ((1.0, -2.0), (1.0, -1.0)),  # response 1 and the node it led to
    }  # fmt: skip


@pytest.mark.parametrize(("response", "rings"), [(None, [1, 0]), (1, [1, 1])])
def test_the_choice_has_a_ring(response, rings):
    figure = tree_figure(view(), 7, response, say)
    assert [len(trace.x) for trace in figure.data[1:3]] == rings


def test_a_node_without_joint_responses_is_drawn():
    empty = view()
    alone = RolloutView(empty.nodes.head(1), empty.joints.head(0), 1)
    figure = tree_figure(alone, 7, None, say)
    assert named(figure, "adv.legend_prompt").x.tolist() == [0.5]


def test_many_responses_get_small_circles_without_numbers():
    one = view()
    many = pd.concat([one.joints.head(1)] * 300, ignore_index=True).assign(joint=range(300), x=np.arange(300.0))
    figure = tree_figure(RolloutView(one.nodes.head(1), many, 1), 7, None, say)
    trace = named(figure, "adv.legend_joint")
    assert trace.mode == "markers"
    assert trace.marker.size == 5
