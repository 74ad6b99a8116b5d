"""Curves of one metric: a faint raw line and a smoothed one for each agent and turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.colors import qualitative

from workbench.insight.curves import Line
from workbench.insight.metric_names import Meaning, label

HEIGHT = 260
PALETTE = qualitative.D3


def curves_figure(
    meaning: Meaning, lines: Sequence[Line], language: str, x_title: str, by_time: bool = False, log: bool = False
) -> go.Figure:
    """x: env_step, or minutes since the first point (by_time). Values that are not numbers are crosses on the axis."""
    figure = go.Figure()
    begin = min((float(line.times[0]) for line in lines if len(line.times)), default=0.0)
    for number, line in enumerate(lines):
        x = (line.times - begin) / 60 if by_time else line.steps
        _draw(figure, line, x, label(line.key, language), PALETTE[number % len(PALETTE)])
    unit = meaning.unit[language]
    unit = f" ({unit})" if unit and unit not in meaning.title[language] else ""
    figure.update_layout(
        title={"text": f"{meaning.title[language]}{unit}", "font": {"size": 15}},
        height=HEIGHT,
        margin={"l": 50, "r": 10, "t": 40, "b": 40},
        legend={"orientation": "h", "y": -0.38, "yanchor": "top", "font": {"size": 11}},
        showlegend=len(lines) > 1,
        hovermode="x unified",
        uirevision="keep",  # a live tick keeps the reader's zoom
    )
    figure.update_xaxes(title={"text": x_title, "font": {"size": 12}})
    figure.update_yaxes(type="log" if log else "linear")
    return figure


def _draw(figure: go.Figure, line: Line, x: np.ndarray, name: str, colour: str) -> None:
    smoothed = not np.array_equal(line.values, line.smoothed, equal_nan=True)
    raw = {"color": colour, "width": 1 if smoothed else 1.8}
    figure.add_trace(
        go.Scatter(x=x, y=line.values, name=name, line=raw, opacity=0.35 if smoothed else 1, mode="lines+markers",
                   marker={"size": 3}, legendgroup=name, showlegend=not smoothed)
    )  # fmt: skip
    if smoothed:
        bold = {"color": colour, "width": 2}
        figure.add_trace(go.Scatter(x=x, y=line.smoothed, name=name, line=bold, mode="lines", legendgroup=name))
    odd = ~np.isfinite(line.values)
    if odd.any():
        marker = {"symbol": "x", "color": colour, "size": 8}
        nowhere = np.zeros(int(odd.sum()))
        figure.add_trace(
            go.Scatter(x=x[odd], y=nowhere, mode="markers", marker=marker, name="NaN / inf", legendgroup=name)
        )
