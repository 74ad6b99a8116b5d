"""One metric of several runs: curves with bands over seeds, and end values beside parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import qualitative, sample_colorscale

from workbench.insight.overlay import Axis

HEIGHT = 480
PALETTE = qualitative.D3
BAND_OPACITY = 0.18
AXIS_MARGIN = 0.4  # of the distance between two axes, on either side


def overlay_figure(
    lines: pd.DataFrame, bands: pd.DataFrame, title: str, subtitle: str, x_title: str, y_title: str, each_run: bool
) -> go.Figure:
    """lines, bands: those of insight.overlay.Overlay. A colour per group: its mean, its interval as a band, and, faint,
    its runs (each_run)."""
    figure = go.Figure()
    for number, (group, band) in enumerate(bands.groupby("group", sort=False)):
        colour = PALETTE[number % len(PALETTE)]
        own = lines[lines["group"] == group]
        if each_run and own["run"].nunique() > 1:
            _runs(figure, own, colour)
        _band(figure, band, colour)
        name = f"{group} (n = {own['run'].nunique()})"
        figure.add_trace(
            go.Scatter(x=band["step"].to_numpy(), y=band["mean"].to_numpy(), name=name, mode="lines",
                       legendgroup=str(group), line={"color": colour, "width": 2.2})
        )  # fmt: skip
    figure.update_layout(
        title={"text": title, "font": {"size": 15}, "subtitle": {"text": subtitle, "font": {"size": 12}}},
        height=HEIGHT,
        margin={"l": 50, "r": 10, "t": 70, "b": 40},
        legend={"orientation": "h", "y": -0.18, "font": {"size": 11}},
        showlegend=True,
        hovermode="x unified",
        uirevision="keep",
    )
    figure.update_xaxes(title={"text": x_title, "font": {"size": 12}})
    figure.update_yaxes(title={"text": y_title, "font": {"size": 12}})
    return figure


def _runs(figure: go.Figure, lines: pd.DataFrame, colour: str) -> None:
    for run, points in lines.groupby("run", sort=False):
        figure.add_trace(
            go.Scatter(x=points["step"].to_numpy(), y=points["value"].to_numpy(), name=str(run), mode="lines",
                       opacity=0.35, line={"color": colour, "width": 1}, showlegend=False,
                       legendgroup=str(points["group"].iloc[0]))
        )  # fmt: skip


def _band(figure: go.Figure, band: pd.DataFrame, colour: str) -> None:
    known = band.dropna(subset=["low", "high"])
    if known.empty:
        return
    steps = known["step"].to_numpy()
    figure.add_trace(
        go.Scatter(x=np.concatenate([steps, steps[::-1]]),
                   y=np.concatenate([known["high"].to_numpy(), known["low"].to_numpy()[::-1]]),
                   fill="toself", fillcolor=colour, opacity=BAND_OPACITY, line={"width": 0}, hoverinfo="skip",
                   showlegend=False, legendgroup=str(band["group"].iloc[0]))
    )  # fmt: skip


def parallel_figure(names: Sequence[str], axes: Sequence[Axis], title: str, subtitle: str) -> go.Figure:
    """A line per run across one vertical axis per setting, the last one being the metric, which also gives the colour.

    Drawn with ordinary lines: plotly's own parallel coordinates need WebGL, of which a page has few.
    """
    figure = go.Figure()
    heights = np.array([_heights(axis) for axis in axes])  # [axes, runs]
    colours = sample_colorscale("Viridis", list(heights[-1]))
    for run, name in enumerate(names):
        said = [f"{axis.key} = {_said(axis, run)}" for axis in axes]
        figure.add_trace(
            go.Scatter(x=np.arange(len(axes)), y=heights[:, run], mode="lines+markers", name=name, text=said,
                       hovertemplate="%{text}<extra>%{fullData.name}</extra>", showlegend=False,
                       line={"color": colours[run], "width": 2}, marker={"size": 8})
        )  # fmt: skip
    for place, axis in enumerate(axes):
        _axis(figure, place, axis)
    figure.update_layout(
        title={"text": title, "font": {"size": 15}, "subtitle": {"text": subtitle, "font": {"size": 12}}},
        height=HEIGHT,
        margin={"l": 20, "r": 20, "t": 80, "b": 70},
    )
    ticks = {"tickvals": list(range(len(axes))), "ticktext": [_short(axis.key) for axis in axes]}
    figure.update_xaxes(**ticks, range=[-AXIS_MARGIN, len(axes) - 1 + AXIS_MARGIN], showgrid=False, zeroline=False)
    figure.update_yaxes(visible=False, range=[-0.08, 1.12])
    return figure


def _axis(figure: go.Figure, place: int, axis: Axis) -> None:
    """The vertical line of one setting with the values that occur on it, or the smallest and the largest number."""
    figure.add_shape(type="line", x0=place, x1=place, y0=0, y1=1, line={"color": "gray", "width": 1}, layer="below")
    heights = _heights(axis)
    marks = dict(zip(heights, range(len(heights))))
    shown = sorted(marks) if axis.texts is not None else sorted({min(marks), max(marks)})
    for height in shown:
        figure.add_annotation(x=place, y=height, text=_said(axis, marks[height]), showarrow=False, yshift=14,
                              font={"size": 11}, bgcolor="rgba(255, 255, 255, 0.8)")  # fmt: skip


def _short(key: str) -> str:
    """A setting's or metric's key as a tick, in several lines where it has parts."""
    return key.removeprefix("config.").replace("/", "/<br>")


def _heights(axis: Axis) -> np.ndarray:
    """[runs] 0 to 1; the middle when all are equal."""
    values = np.array(axis.values)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.full(len(values), 0.5)


def _said(axis: Axis, run: int) -> str:
    value = axis.values[run]
    return axis.texts[int(value)] if axis.texts is not None else f"{value:.4g}"
