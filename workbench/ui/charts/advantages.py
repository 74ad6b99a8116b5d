"""Charts of advantages: the four baselines on one group, and how advantages look over a whole run.

`say` gives the words of a key, so that this module knows no language.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import qualitative

from workbench.ui.charts.tree import Say

MODES = ("raw", "mean", "rloo", "max")
COLOURS = dict(zip(MODES, qualitative.Safe))  # distinguishable for the colour-blind
PALETTE = qualitative.D3
HEIGHT = 330
LEGEND = {"orientation": "h", "y": -0.25, "yanchor": "top"}


def baselines_figure(table: pd.DataFrame, column: str, used: str | None, say: Say) -> go.Figure:
    """Bars per completion and mode.

    table: rows of insight.lab.baseline_table; column: advantage or normalized. used: the run's own mode, outlined.
    """
    figure = go.Figure()
    for mode in MODES:
        rows = table[table["mode"] == mode]
        figure.add_bar(
            x=rows["k"].to_numpy(),
            y=rows[column].to_numpy(),
            name=say(f"adv.mode_{mode}"),
            marker={"color": COLOURS[mode], "line": {"width": 2 if mode == used else 0, "color": "black"}},
            hovertemplate="%{y:.4g}",
        )
    _named(figure, say(f"adv.whatif_{column}"), say("adv.axis_k"), say(f"adv.axis_whatif_{column}"))
    figure.update_layout(hovermode="x")
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(zerolinecolor="#888")
    return figure


def histogram_figure(table: pd.DataFrame, say: Say, x_title: str) -> go.Figure:
    """table: agent, turn, left, right, count of insight.advantages.histogram; one outline per agent and turn."""
    figure = go.Figure()
    for number, ((agent, turn), rows) in enumerate(table.groupby(["agent", "turn"])):
        total = max(1, int(rows["count"].sum()))
        figure.add_trace(
            go.Scatter(
                x=np.append(rows["left"], rows["right"].iloc[-1]),
                y=np.append(rows["count"], 0) / total,
                name=say("adv.agent_turn", agent=agent, turn=turn),
                line={"shape": "hv", "color": PALETTE[number % len(PALETTE)]},
                hovertemplate="%{x:.3g}: %{y:.1%}",
            )
        )
    figure.add_vline(x=0, line={"color": "#888", "dash": "dot"})
    _named(figure, say("adv.histogram_title"), x_title, say("adv.axis_share"))
    figure.update_yaxes(tickformat=".0%")
    return figure


def signal_figure(table: pd.DataFrame, say: Say) -> go.Figure:
    """table: bucket, agent, step_from, step_to, share of insight.advantages.signal_over_time."""
    figure = go.Figure()
    for number, (agent, rows) in enumerate(table.groupby("agent")):
        figure.add_trace(
            go.Scatter(
                x=((rows["step_from"] + rows["step_to"]) / 2).to_numpy(),
                y=rows["share"].to_numpy(),
                name=say("adv.agent", agent=agent),
                mode="lines+markers",
                marker={"size": 4},
                line={"color": PALETTE[number % len(PALETTE)]},
                hovertemplate="%{x:.0f}: %{y:.0%}",
            )
        )
    _named(figure, say("adv.signal_title"), say("adv.axis_step"), say("adv.axis_zero"))
    figure.update_yaxes(tickformat=".0%", range=[-0.03, 1.03])
    return figure


def flips_figure(table: pd.DataFrame, say: Say) -> go.Figure:
    """table: first, second, completions, opposite, one_zero of insight.advantages.sign_flips; a bar per pair."""
    pairs = [f"{say(f'adv.mode_{a}')} / {say(f'adv.mode_{b}')}" for a, b in zip(table["first"], table["second"])]
    total = table["completions"].clip(lower=1).to_numpy()
    figure = go.Figure()
    for column, colour in (("opposite", PALETTE[3]), ("one_zero", PALETTE[1])):
        figure.add_bar(
            y=pairs,
            x=table[column].to_numpy() / total,
            name=say(f"adv.flip_{column}"),
            orientation="h",
            marker={"color": colour},
            hovertemplate="%{x:.1%}",
        )
    figure.update_layout(barmode="stack")
    _named(figure, say("adv.flips_title"), say("adv.axis_flips"), say("adv.axis_pair"))
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def _named(figure: go.Figure, title: str, x: str, y: str) -> None:
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        height=HEIGHT,
        margin={"l": 50, "r": 10, "t": 40, "b": 40},
        legend=LEGEND,
        showlegend=len(figure.data) > 1,
    )
    figure.update_xaxes(title={"text": x})
    figure.update_yaxes(title={"text": y})
