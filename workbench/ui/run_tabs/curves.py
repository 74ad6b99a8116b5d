"""Curves per agent and turn, which grow while the run does."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from workbench.insight.curves import Curves, line
from workbench.insight.metric_names import Panel, panels
from workbench.runs.workspace import RunFolder
from workbench.ui.charts.curves import curves_figure
from workbench.ui.live import TraceError, curve_store, interval
from workbench.ui.text import language, t
from workbench.ui.widgets import chart, tolerant

FIRST = ("turn_*/reward_mean", "eval/turn_*/reward_mean", "agent_*/turn_*/entropy", "agent_*/turn_*/completion_tokens")
"""Metric patterns that are shown before the reader chooses."""
AXES = ("step", "time")


def tab(run: RunFolder) -> None:
    """Choices that stay, above charts that tick."""
    st.caption(t("curves.about"))
    left, middle, right = st.columns([2, 1, 1], vertical_alignment="bottom")
    smoothing = left.slider(
        t("curves.smoothing"), 0.0, 0.95, 0.6, 0.05, key="curves-smoothing", help=t("curves.smoothing_help")
    )
    axis = middle.segmented_control(
        t("curves.axis"),
        AXES,
        default="step",
        format_func=lambda a: t(f"curves.by_{a}"),
        key="curves-axis",
        required=True,
    )
    log = right.toggle(t("curves.log"), key="curves-log")
    behind = _behind(run)
    every = interval(run.read_status(), behind)
    st.fragment(_live, run_every=every)(run, smoothing, axis == "time", log, behind)


def _behind(run: RunFolder) -> bool:
    """Whether a long trace takes several ticks to read. What is wrong with it is said where it is drawn."""
    try:
        return curve_store(str(run.trace_file)).read().behind > 0
    except (TraceError, OSError):
        return False


def _live(run: RunFolder, smoothing: float, by_time: bool, log: bool, was_behind: bool) -> None:
    with tolerant():
        curves = curve_store(str(run.trace_file)).read()
        if was_behind and not curves.behind:
            st.rerun()  # the whole page, which sets the ordinary pace
        found = {panel.pattern: panel for panel in panels(curves.keys)}
        if not found:
            st.info(t("curves.none"))
            return
        chosen = _choose(run, found)
        columns = st.columns(2)
        for number, pattern in enumerate(chosen):
            with columns[number % 2]:
                _panel(run, curves, found[pattern], smoothing, by_time, log)
        if curves.behind:
            st.caption(t("curves.behind", rows=curves.behind))


def _choose(run: RunFolder, found: Mapping[str, Panel]) -> list[str]:
    """The metrics to draw. Until the reader chooses, all of FIRST, some of which a run logs later than others."""
    key = f"curves-metrics-{run.id}"
    if key in st.session_state and st.session_state.get(f"{key}-own"):
        st.session_state[key] = [pattern for pattern in st.session_state[key] if pattern in found]
    else:
        st.session_state[key] = [pattern for pattern in FIRST if pattern in found]
    return st.multiselect(
        t("curves.metrics"),
        list(found),
        format_func=lambda pattern: f"{found[pattern].meaning.title[language()]} · {pattern}",
        key=key,
        on_change=_own,
        args=(key,),
    )


def _own(key: str) -> None:
    st.session_state[f"{key}-own"] = True


def _panel(run: RunFolder, curves: Curves, panel: Panel, smoothing: float, by_time: bool, log: bool) -> None:
    lines = [line(curves.curves[key], smoothing) for key in panel.keys]
    title = t(f"curves.axis_{'time' if by_time else 'step'}")
    figure = curves_figure(panel.meaning, lines, language(), title, by_time, log)
    shown, total = sum(li.shown for li in lines), sum(li.total for li in lines)
    key = "curve-" + panel.pattern.replace("*", "x").replace("/", "-")
    st.caption(f"{panel.meaning.text[language()]} ({t('common.showing', shown=shown, total=total)})")
    chart(figure, key, pd.concat([li.frame() for li in lines]), alt=panel.meaning.title[language()])
