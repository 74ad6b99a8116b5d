"""Curves for a report: lines of one run, or bands over seeds for several. Data in, plotly figures out.

Plotly takes some tags in titles and names for markup, so all texts are escaped for it.
"""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import qualitative

from workbench.insight.curves import Curves, Line, line
from workbench.insight.metric_names import Meaning, Panel, label, meaning
from workbench.insight.overlay import Overlay

HEIGHT = 280
PALETTE = qualitative.D3
SMOOTHING = 0.8  # from this many points on
SMOOTHED_FROM = 40
X_TITLE = "env_step (joint rewards evaluated)"


def panel_figure(panel: Panel, curves: Curves) -> go.Figure:
    """One metric of one run: a line per agent and turn, faint behind its average where there are many points."""
    figure = _figure(panel.meaning, "")
    notes = []
    for number, key in enumerate(panel.keys):
        curve = curves.curves[key]
        drawn = line(curve, SMOOTHING if len(curve.values) >= SMOOTHED_FROM else 0.0)
        _draw(figure, drawn, escape(label(key) or key), PALETTE[number % len(PALETTE)])
        notes.append(f"{drawn.shown} of {drawn.total} points" if drawn.shown < drawn.total else _points(drawn.total))
    _annotate(figure, ", ".join(dict.fromkeys(notes)))
    figure.update_layout(showlegend=len(panel.keys) > 1)
    return figure


def overlay_figure(key: str, found: Overlay) -> go.Figure:
    """One metric of several runs: faint a line per run, bold the mean of each group in its 95 % band over seeds."""
    figure = _figure(meaning(key), label(key))
    for number, (group, band) in enumerate(found.bands.groupby("group", sort=False)):
        colour = PALETTE[number % len(PALETTE)]
        _draw_band(figure, band, escape(str(group)), colour)
        for _, run in found.lines[found.lines["group"] == group].groupby("run", sort=False):
            thin = {"color": colour, "width": 1}
            figure.add_trace(
                go.Scatter(x=run["step"].to_numpy(), y=run["value"].to_numpy(), line=thin, opacity=0.35, mode="lines",
                           legendgroup=escape(str(group)), showlegend=False, hoverinfo="skip")
            )  # fmt: skip
    counts = found.lines.groupby("group")["run"].nunique() if len(found.lines) else pd.Series(dtype="int64")
    _annotate(figure, f"runs per group: {', '.join(map(str, sorted(set(counts))))}" if len(counts) else "no points")
    return figure


def _figure(what: Meaning, detail: str) -> go.Figure:
    title = what.title["en"] + (f" ({what.unit['en']})" if what.unit["en"] else "") + (f", {detail}" if detail else "")
    figure = go.Figure()
    figure.update_layout(
        template="none",
        title={"text": escape(title), "font": {"size": 15}, "x": 0.02},
        height=HEIGHT,
        margin={"l": 60, "r": 15, "t": 40, "b": 85},
        legend={"orientation": "h", "y": -0.32, "font": {"size": 11}},
        hovermode="x unified",
    )
    figure.update_xaxes(title={"text": X_TITLE, "font": {"size": 12}}, gridcolor="#eee")
    figure.update_yaxes(gridcolor="#eee", automargin=True)
    return figure


def _annotate(figure: go.Figure, note: str) -> None:
    place = {"x": 1, "y": 1.08, "xref": "paper", "yref": "paper", "xanchor": "right", "showarrow": False}
    figure.add_annotation(text=note, font={"size": 11, "color": "#777"}, **place)


def _draw(figure: go.Figure, drawn: Line, name: str, colour: str) -> None:
    smoothed = not np.array_equal(drawn.values, drawn.smoothed, equal_nan=True)
    figure.add_trace(
        go.Scatter(x=drawn.steps, y=drawn.values, name=name, line={"color": colour, "width": 1 if smoothed else 2},
                   opacity=0.35 if smoothed else 1, mode="lines+markers", legendgroup=name,
                   marker={"size": _dot(len(drawn.values))}, showlegend=not smoothed)
    )  # fmt: skip
    if smoothed:
        bold = {"color": colour, "width": 2}
        figure.add_trace(go.Scatter(x=drawn.steps, y=drawn.smoothed, name=name, line=bold, legendgroup=name))
    odd = ~np.isfinite(drawn.values)
    if odd.any():
        cross = {"symbol": "x", "color": colour, "size": 8}
        figure.add_trace(
            go.Scatter(x=drawn.steps[odd], y=np.zeros(int(odd.sum())), mode="markers", marker=cross, name="NaN / inf")
        )


def _draw_band(figure: go.Figure, band: pd.DataFrame, group: str, colour: str) -> None:
    known = band.dropna(subset=["low", "high"])
    edge = {"legendgroup": group, "showlegend": False, "hoverinfo": "skip", "mode": "lines", "line": {"width": 0}}
    if len(known):
        steps = known["step"].to_numpy()
        figure.add_trace(go.Scatter(x=steps, y=known["high"].to_numpy(), **edge))
        shade = f"rgba({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))}, 0.18)"
        figure.add_trace(go.Scatter(x=steps, y=known["low"].to_numpy(), fill="tonexty", fillcolor=shade, **edge))
    mode = "lines" if len(band) > 1 else "markers"
    look = {"line": {"color": colour, "width": 2}, "marker": {"color": colour, "size": _dot(len(band))}, "mode": mode}
    x, y = band["step"].to_numpy(), band["mean"].to_numpy()
    figure.add_trace(go.Scatter(x=x, y=y, name=group, legendgroup=group, showlegend=True, **look))


def _dot(points: int) -> int:
    """A point that stands alone has no line to be seen by."""
    return 8 if points == 1 else 3


def _points(count: int) -> str:
    return "1 point" if count == 1 else f"{count} points"
