"""How good the critics are: TD errors over time, values against what came, and another run beside this one."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st

from workbench.insight import td
from workbench.insight.td import TdRows
from workbench.runs.workspace import RunFolder
from workbench.trainers import algorithm
from workbench.ui import state
from workbench.ui.charts.td import calibration_figure, heat_figure, variance_figure
from workbench.ui.run_tabs import readers
from workbench.ui.run_tabs.links import point_at
from workbench.ui.run_tabs.node_view import coloured
from workbench.ui.text import language, plain, t
from workbench.ui.widgets import chart, tolerant

ERRORS = ("td_error_mean", "td_error_abs")
ROWS = ("step", "node_id", "turn", "agent", "k", "reward", "value", "target", "td_error", "realised")
MOST_ROWS = 500
WINDOWS = 40


def tab(run: RunFolder) -> None:
    """Heat map, calibration, explained variance, a table of nodes, and a second run."""
    st.caption(t("td.about"))
    if not run.trace_file.exists():
        st.info(t("td.none"))
        return
    with tolerant():
        rows = _rows(run)
        if rows.reason is not None:
            _no_critic(rows.reason[language()], rows.total)
            return
        _heat_map(run, rows)
        left, right = st.columns(2)
        with left:
            _calibration(rows)
        with right:
            _variance(rows)
        _nodes(run, rows)


def _rows(run: RunFolder) -> TdRows:
    return readers.read_td(run, readers.config_of(run).discount)


def _no_critic(reason: str, nodes: int) -> None:
    st.info(plain(reason))
    if nodes:
        st.markdown(t("td.reinforce"))


def _heat_map(run: RunFolder, rows: TdRows) -> None:
    left, right = st.columns(2, vertical_alignment="bottom")
    column = left.segmented_control(
        t("td.error"), ERRORS, default=ERRORS[0], format_func=lambda c: t(f"td.{c}"), key="td-error", required=True,
        help=t("td.error_help"),
    )  # fmt: skip
    others = {other.id: other for other in _critic_runs() if other.id != run.id}
    with right:
        chosen = st.selectbox(
            t("td.beside"), [None, *others], format_func=lambda name: name or t("td.beside_none"), key="td-beside",
            help=t("td.beside_help"),
        )  # fmt: skip
    tables = {run.id: td.heat_map(rows)}
    if chosen is not None:
        tables = _beside(run, rows, others[chosen])
    data = pd.concat([table.assign(run=name) for name, table in tables.items()])
    chart(heat_figure(tables, column, t), "td-heat", data, alt=t(f"td.title_{column}"))
    shown = t("common.showing", shown=rows.nodes, total=rows.total)
    st.caption(f"{t(f'td.{column}_help')} {t('td.read', shown=shown)}")


def _critic_runs() -> list[RunFolder]:
    """The actor-critic runs of the workspace that have a trace, newest first; runs with a damaged spec are not."""
    found = []
    for run in state.workspace().runs():
        with contextlib.suppress(ValueError, OSError):
            if run.trace_file.exists() and _family(str(run.spec_file), run.spec_file.stat().st_mtime_ns):
                found.append(run)
    return found


@st.cache_data(max_entries=500, show_spinner=False)
def _family(file: str, written: int) -> bool:
    """True for a spec of an actor-critic."""
    run = RunFolder(Path(file).parent)
    return algorithm(run.spec().algorithm).family == "actor-critic"


def _beside(run: RunFolder, rows: TdRows, other: RunFolder) -> dict[str, pd.DataFrame]:
    """Both runs over the same stretches of time, and their critics' quality in a table."""
    runs = {run.id: rows, other.id: _rows(other)}
    st.dataframe(pd.DataFrame([_quality(name, found) for name, found in runs.items()]), hide_index=True, key="td-both")
    both = td.beside(runs)
    return {name: both[both["run"] == name].drop(columns="run") for name in runs if (both["run"] == name).any()}


def _quality(name: str, rows: TdRows) -> dict[str, object]:
    late = rows.frame.tail(max(1, len(rows.frame) // 4))
    windows = _windows(rows)["explained_variance"].dropna()
    return {
        t("td.run"): name,
        t("td.late_error"): round(float(late["td_error"].abs().mean()), 4),
        t("td.calibration_error"): round(td.calibration_error(td.calibration(rows)), 4),
        t("td.late_variance"): round(float(windows.tail(max(1, len(windows) // 4)).mean()), 4),
    }


def _calibration(rows: TdRows) -> None:
    table = td.calibration(rows)
    chart(calibration_figure(table, t), "td-calibration", table, alt=t("td.title_calibration"))
    st.caption(t("td.calibration_help", error=td.calibration_error(table)))


def _variance(rows: TdRows) -> None:
    table = _windows(rows)
    if table["explained_variance"].isna().all():
        st.info(t("td.no_variance", least=td.MIN_WINDOW))
        return
    chart(variance_figure(table, t), "td-variance", table, alt=t("td.title_variance"))
    st.caption(t("td.variance_help", least=td.MIN_WINDOW))


def _windows(rows: TdRows) -> pd.DataFrame:
    """Explained variance in as many stretches as have completions enough."""
    places = max(1, len(rows.frame[["agent", "turn"]].drop_duplicates()))
    return td.explained_variance(rows, max(1, min(WINDOWS, len(rows.frame) // places // (2 * td.MIN_WINDOW))))


def _nodes(run: RunFolder, rows: TdRows) -> None:
    """The newest nodes, or those from a step on; picking one makes it the node of the Advantages tab."""
    st.subheader(t("td.nodes"))
    left, right = st.columns([1, 3], vertical_alignment="bottom")
    step = left.number_input(t("td.up_to_step"), min_value=0, value=None, step=1, key="td-step")
    right.caption(t("td.nodes_help"))
    frame = rows.frame if step is None else rows.frame[rows.frame["step"] <= step]
    shown = frame[list(ROWS)].iloc[::-1].head(MOST_ROWS).reset_index(drop=True)
    if shown.empty:
        st.info(t("td.no_nodes"))
        return
    column = st.column_config.Column
    st.dataframe(
        coloured(shown),
        column_config={name: column(t(f"td.column_{name}"), help=t(f"td.help_{name}")) for name in ROWS},
        hide_index=True,
        height=320,
        key="td-nodes",
        on_select=partial(_picked, run.id, shown["node_id"].tolist()),
        selection_mode="single-row",
    )
    st.caption(t("common.showing", shown=len(shown), total=len(frame)))


def _picked(run_id: str, nodes: list[int]) -> None:
    rows = st.session_state["td-nodes"]["selection"]["rows"]
    if rows and rows[0] < len(nodes):
        point_at(nodes[rows[0]])
        st.session_state["episodes-run"] = run_id  # else the tab Advantages takes the node for one of another run
