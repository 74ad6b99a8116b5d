"""Charts of critics: TD errors by agent and turn over time, value against what came, explained variance.

`say` gives the words of a key, so that this module knows no language.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from workbench.ui.charts.tree import SCALE, Say

PALETTE = qualitative.D3
ROW = 34  # pixels of one agent and turn
HEIGHT = 360


def heat_figure(tables: Mapping[str, pd.DataFrame], column: str, say: Say) -> go.Figure:
    """One heat map per run, below each other on the same time and colour axis.

    tables: title -> rows of insight.td.heat_map; column: td_error_mean (white = 0) or td_error_abs.
    """
    grids = {title: _grid(table, column, say) for title, table in tables.items()}
    heights = [len(grid) for grid in grids.values()]
    figure = make_subplots(
        rows=len(grids),
        subplot_titles=list(grids) if len(grids) > 1 else None,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=0.12,
    )
    for row, grid in enumerate(grids.values(), 1):
        figure.add_trace(
            go.Heatmap(x=grid.columns.to_numpy(), y=grid.index.tolist(), z=grid.to_numpy(), coloraxis="coloraxis",
                       hovertemplate=f"%{{y}}<br>{say('td.axis_step')} %{{x:.0f}}<br>%{{z:.4g}}<extra></extra>"),
            row=row, col=1,
        )  # fmt: skip
    most = max((float(np.nanmax(np.abs(grid.to_numpy()))) for grid in grids.values() if grid.size), default=1.0) or 1.0
    signed = column == "td_error_mean"
    colours = {"colorscale": SCALE, "cmin": -most, "cmax": most} if signed else {"colorscale": "Blues", "cmin": 0}
    bar = {"title": {"text": say("td.unit"), "side": "right"}, "thickness": 12}
    figure.update_layout(
        coloraxis=colours | {"colorbar": bar},
        title={"text": say(f"td.title_{column}"), "font": {"size": 15}},
        height=150 + ROW * sum(heights) + 30 * len(grids),
        margin={"l": 10, "r": 10, "t": 60, "b": 50},
    )
    figure.update_xaxes(title={"text": say("td.axis_step")}, row=len(grids), col=1)
    figure.update_yaxes(autorange="reversed", automargin=True, title={"text": say("td.axis_place")})
    return figure


def _grid(table: pd.DataFrame, column: str, say: Say) -> pd.DataFrame:
    """Names of agent and turn [rows] x middles of the stretches [columns]; NaN where nothing was sampled."""
    places = table.assign(at=(table["step_from"] + table["step_to"]) / 2)
    grid = places.pivot(index=["agent", "turn"], columns="at", values=column)
    grid.index = pd.Index([say("td.place", agent=agent, turn=turn) for agent, turn in grid.index])
    return grid


def calibration_figure(table: pd.DataFrame, say: Say) -> go.Figure:
    """table: rows of insight.td.calibration; bars show one standard deviation of what came."""
    figure = go.Figure()
    line = np.array([table["value_mean"].min(), table["value_mean"].max()])
    dash = {"dash": "dot", "color": "#888"}
    figure.add_trace(go.Scatter(x=line, y=line, mode="lines", line=dash, name=say("td.perfect"), hoverinfo="skip"))
    for number, (agent, rows) in enumerate(table.groupby("agent")):
        figure.add_trace(
            go.Scatter(
                x=rows["value_mean"].to_numpy(),
                y=rows["realised_mean"].to_numpy(),
                error_y={"array": rows["realised_std"].to_numpy(), "thickness": 1, "width": 3},
                mode="lines+markers",
                name=say("td.agent", agent=agent),
                line={"color": PALETTE[number % len(PALETTE)]},
                customdata=rows["count"].to_numpy(),
                hovertemplate=say("td.hover_calibration"),
            )
        )
    return _named(figure, say("td.title_calibration"), say("td.axis_value"), say("td.axis_realised"))


def variance_figure(table: pd.DataFrame, say: Say) -> go.Figure:
    """table: rows of insight.td.explained_variance; 1 = perfect, 0 = no better than a constant."""
    figure = go.Figure()
    for number, ((agent, turn), rows) in enumerate(table.groupby(["agent", "turn"])):
        figure.add_trace(
            go.Scatter(
                x=((rows["step_from"] + rows["step_to"]) / 2).to_numpy(),
                y=rows["explained_variance"].to_numpy(),
                mode="lines+markers",
                marker={"size": 5},
                name=say("td.place", agent=agent, turn=turn),
                line={"color": PALETTE[number % len(PALETTE)]},
                hovertemplate="%{x:.0f}: %{y:.3f}",
            )
        )
    figure.add_hline(y=0, line={"color": "#888", "dash": "dot"})
    least = float(table["explained_variance"].min())
    figure.update_yaxes(range=[max(min(least, 0.0), -2.0) - 0.1, 1.05])
    return _named(figure, say("td.title_variance"), say("td.axis_step"), say("td.axis_variance"))


def _named(figure: go.Figure, title: str, x: str, y: str) -> go.Figure:
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        height=HEIGHT,
        margin={"l": 50, "r": 10, "t": 40, "b": 40},
        legend={"orientation": "h", "y": -0.25, "yanchor": "top"},
    )
    figure.update_xaxes(title={"text": x})
    figure.update_yaxes(title={"text": y})
    return figure
