"""Bias and variance of the estimators on the small game. The bars of one group are in charts.advantages.

`say` gives the words of a key, so that this module knows no language.
"""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.ui.charts.advantages import COLOURS, LEGEND, MODES
from workbench.ui.charts.tree import Say

HEIGHT = 340
MEASURES = ("bias", "variance", "ratio")


def quality_figure(table: pd.DataFrame, measure: str, say: Say) -> go.Figure:
    """table: ExactEstimators.table; one bar per mode, without and with normalisation. measure: one of MEASURES."""
    figure = go.Figure()
    groups = [say("lab.norm_off"), say("lab.norm_on")]
    for mode in MODES:
        rows = table[table["mode"] == mode].sort_values("normalization")
        figure.add_bar(
            x=groups,
            y=rows[measure].to_numpy(),
            name=say(f"adv.mode_{mode}"),
            marker={"color": COLOURS[mode]},
            hovertemplate="%{y:.4g}",
        )
    if measure == "ratio":
        figure.add_hline(y=1, line={"color": "#888", "dash": "dot"})
    figure.update_layout(
        title={"text": say(f"lab.{measure}"), "font": {"size": 15}},
        height=HEIGHT,
        margin={"l": 50, "r": 10, "t": 40, "b": 40},
        legend=LEGEND,
    )
    figure.update_xaxes(title={"text": say("lab.normalisation")})
    figure.update_yaxes(title={"text": say(f"lab.unit_{measure}")})
    return figure
