"""Several runs side by side: one metric over the same steps, what the runs differ in, and where each of them ended."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from workbench.runs.workspace import ACTIVE, RunFolder
from workbench.ui import compare_parts as parts
from workbench.ui import state
from workbench.ui.live import TICK_SECONDS
from workbench.ui.text import t
from workbench.ui.widgets import tolerant

PREFERRED = ("eval/turn_1/expected_return", "turn_1/expected_return", "turn_1/reward_mean")
"""Metrics to begin with, the first that there is."""
CHOSEN, METRIC = "compare-runs", "compare-metric"


def page() -> None:
    """The runs that the address names (?runs=a,b,c), and the metric (?metric=)."""
    st.title(t("page.compare"))
    st.caption(t("compare.about"))
    with st.container(key="compare-mlflow"), tolerant():
        parts.mlflow_button()
    with tolerant():
        found = state.workspace().runs()
        if not found:
            st.info(t("common.no_runs"))
            return
        chosen = _choose(found)
        if not chosen:
            st.info(t("compare.choose_some"))
            return
        _compare(chosen)


def _choose(found: Sequence[RunFolder]) -> list[RunFolder]:
    known = {run.id: run for run in found}
    named = st.session_state[CHOSEN] if CHOSEN in st.session_state else st.query_params.get("runs", "").split(",")
    st.session_state[CHOSEN] = [
        name for name in dict.fromkeys(named) if name in known
    ]  # one that was deleted is no longer offered
    chosen = st.multiselect(t("compare.runs"), list(known), key=CHOSEN, placeholder=t("compare.runs_hint"))
    _address("runs", ",".join(chosen))
    return [known[name] for name in chosen]


def _address(name: str, value: str) -> None:
    if value and st.query_params.get(name) != value:
        st.query_params[name] = value
    if not value and name in st.query_params:
        del st.query_params[name]


def _compare(runs: Sequence[RunFolder]) -> None:
    specs = parts.specs_of(runs)
    st.subheader(t("compare.differences"))
    with tolerant():
        parts.differences(specs)
    st.subheader(t("compare.curves"))
    keys = parts.metric_keys(parts.stamps(runs))
    if not keys:
        st.info(t("curves.none"))
        return
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        metric = _choose_metric(keys)
    each_run = right.toggle(t("compare.each_run"), value=True, key="compare-each")
    active = any(run.read_status().state in ACTIVE for run in runs)
    st.fragment(_live, run_every=TICK_SECONDS if active else None)(list(runs), metric, each_run, active)
    st.subheader(t("compare.ends"), help=t("compare.ends_help"))
    with tolerant():
        parts.ends(runs, specs, metric)


def _choose_metric(keys: Sequence[str]) -> str:
    first = next((key for key in PREFERRED if key in keys), keys[0])
    named = st.session_state.get(METRIC) or st.query_params.get("metric")
    st.session_state[METRIC] = named if named in keys else first
    metric = st.selectbox(
        t("curves.metrics"), keys, format_func=lambda key: f"{parts.metric_title(key)} · {key}", key=METRIC
    )
    _address("metric", metric)
    return metric


def _live(runs: Sequence[RunFolder], metric: str, each_run: bool, was_active: bool) -> None:
    if was_active and not any(run.read_status().state in ACTIVE for run in runs):
        st.rerun()  # the whole page, which stops ticking
    with tolerant():
        parts.curves(runs, metric, each_run)
