"""The rollout tree of one item: prompts as squares, joint responses as circles coloured by their advantage.

Positions come from workbench.insight.tree. `say` gives the words of a key, so that this module knows no language.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.insight.tree import RolloutView

Say = Callable[..., str]
SCALE = "RdBu"  # red below 0, blue above: tells apart what red-green would not
PROMPT, EDGE, UNSCORED, RING = "#5b6472", "#c4c9d1", "#ffffff", "#f0a202"
WIDTH = 460  # pixels that a narrow window leaves for the joint responses side by side
MOST_LABELS = 40  # circles that still have room for a number
LEVEL = 95  # pixels between two rows


def tree_figure(view: RolloutView, selected: int, response: int | None, say: Say) -> go.Figure:
    """selected: node with a ring; response: its joint response with a ring, None = none.

    A point's customdata is [node_id, joint], joint -1 for a prompt: what a click on it means.
    """
    slots = float(view.joints["x"].max() - view.joints["x"].min()) + 1 if len(view.joints) else 1.0
    size = float(np.clip(0.75 * WIDTH / slots, 5, 26))
    figure = go.Figure([_edges(view), *_rings(view, selected, response, size)])
    scored = view.joints["advantage"].notna()
    figure.add_trace(_unscored(view.joints[~scored], size, say))
    figure.add_trace(_joints(view.joints[scored], size, say))
    figure.add_trace(_prompts(view.nodes, size, say))
    rows = round(-float(view.joints["y"].min())) + 1 if len(view.joints) else 1
    figure.update_layout(
        title={"text": say("adv.tree_title"), "font": {"size": 15}},
        height=190 + LEVEL * rows,
        margin={"l": 10, "r": 10, "t": 75, "b": 90},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom"},
        hovermode="closest",
        clickmode="event+select",
        dragmode="pan",
    )
    figure.update_xaxes(visible=False, range=_range(view.joints["x"], slots))
    ticks = _levels(view, say)
    figure.update_yaxes(
        tickvals=list(ticks), ticktext=list(ticks.values()), showgrid=False, zeroline=False, automargin=True
    )
    return figure


def _range(x: pd.Series, slots: float) -> list[float]:
    middle = float(x.min() + x.max()) / 2 if len(x) else 0.0
    half = max(slots, 4.0) / 2 + 0.5
    return [middle - half, middle + half]


def _levels(view: RolloutView, say: Say) -> dict[float, str]:
    """y -> what stands in that row."""
    rows = view.nodes.drop_duplicates("y")
    prompts = {float(y): say("adv.level_prompt", turn=turn) for y, turn in zip(rows["y"], rows["turn"])}
    replies = {float(y) - 1: say("adv.level_replies", turn=turn) for y, turn in zip(rows["y"], rows["turn"])}
    return prompts | replies


def _edges(view: RolloutView) -> go.Scatter:
    """One trace for all lines: from a prompt to its joint responses, and on to the next prompt."""
    nodes = view.nodes.set_index("node_id")
    down = view.joints.join(nodes[["x", "y"]], on="node_id", rsuffix="_node")
    on = view.joints[view.joints["child_id"].notna()].join(nodes[["x", "y"]], on="child_id", rsuffix="_node")
    both = pd.concat([down, on])
    gap = np.full(len(both), np.nan)
    x = np.column_stack([both["x_node"], both["x"], gap]).ravel()
    y = np.column_stack([both["y_node"], both["y"], gap]).ravel()
    return go.Scatter(x=x, y=y, mode="lines", line={"color": EDGE, "width": 1}, hoverinfo="skip", showlegend=False)


def _rings(view: RolloutView, selected: int, response: int | None, size: float) -> list[go.Scatter]:
    node = view.nodes[view.nodes["node_id"] == selected]
    joint = view.joints[(view.joints["node_id"] == selected) & (view.joints["joint"] == response)]
    return [
        go.Scatter(
            x=rows["x"].to_numpy(),
            y=rows["y"].to_numpy(),
            mode="markers",
            marker={"symbol": symbol, "size": size + 12, "color": RING},
            hoverinfo="skip",
            showlegend=False,
        )
        for rows, symbol in ((node, "square"), (joint, "circle"))
    ]


def _prompts(nodes: pd.DataFrame, size: float, say: Say) -> go.Scatter:
    hover = [
        say("adv.hover_prompt", node=node, turn=turn, reward=reward, value=value, largest=largest)
        for node, turn, reward, value, largest in zip(
            nodes["node_id"], nodes["turn"], nodes["reward"], nodes["return"], nodes["max_advantage"]
        )
    ]
    custom = np.column_stack([nodes["node_id"], np.full(len(nodes), -1)])
    marker = {"symbol": "square", "size": max(size, 10), "color": PROMPT}
    return _points(nodes, say("adv.legend_prompt"), marker, hover, custom)


def _joints(joints: pd.DataFrame, size: float, say: Say) -> go.Scatter:
    most = float(joints["advantage"].abs().max()) if len(joints) else 0.0
    most = most if most > 0 else 1.0
    marker = {
        "size": size,
        "color": joints["advantage"].to_numpy(),
        "colorscale": SCALE,
        "cmin": -most,
        "cmax": most,
        "line": {"color": PROMPT, "width": 1},
        "showscale": len(joints) > 0,
        "colorbar": {
            "title": {"text": say("adv.colour"), "side": "top"},
            "thickness": 12,
            "len": 0.9,
            "orientation": "h",
            "y": 0,
            "yanchor": "top",
            "ypad": 10,
        },
    }
    return _replies(joints, say("adv.legend_joint"), marker, size, say, np.abs(joints["advantage"]) > 0.6 * most)


def _unscored(joints: pd.DataFrame, size: float, say: Say) -> go.Scatter:
    marker = {"size": size, "color": UNSCORED, "line": {"color": PROMPT, "width": 1.5}}
    return _replies(joints, say("adv.legend_unscored"), marker, size, say, pd.Series(False, index=joints.index))


def _replies(
    joints: pd.DataFrame, name: str, marker: dict[str, object], size: float, say: Say, dark: pd.Series
) -> go.Scatter:
    """Circles; `dark` ones have a colour on which the number must be white."""
    hover = [
        say("adv.hover_joint", joint=joint, responses=_responses(responses, say), reward=reward, value=value,
            advantage=advantage)
        for joint, responses, reward, value, advantage in zip(
            joints["joint"], joints["responses"], joints["reward"], joints["return"], joints["advantage"]
        )
    ]  # fmt: skip
    custom = joints[["node_id", "joint"]].to_numpy()
    trace = _points(joints, name, marker, hover, custom)
    if len(joints) <= MOST_LABELS and size > 12:
        colours = np.where(dark, "white", "black")
        trace.update(mode="markers+text", text=joints["joint"].astype(str).to_numpy(), textfont={"color": colours})
    return trace


def _responses(responses: list[int], say: Say) -> str:
    return ", ".join(say("adv.agent_k", agent=agent, k=k) for agent, k in enumerate(responses))


def _points(
    rows: pd.DataFrame, name: str, marker: dict[str, object], hover: list[str], custom: np.ndarray
) -> go.Scatter:
    same = {"marker": {"opacity": 1}}
    return go.Scatter(
        x=rows["x"].to_numpy(),
        y=rows["y"].to_numpy(),
        mode="markers",
        name=name,
        marker=marker,
        hovertext=hover,
        hoverinfo="text",
        customdata=custom.tolist(),  # an array would come back from a click as a mapping
        showlegend=len(rows) > 0,
        selected=same,
        unselected=same,  # the ring shows the choice, the others keep their colours
    )
