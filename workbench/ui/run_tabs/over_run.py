"""Advantages over a whole run: their distribution, groups without signal over time, and where baselines disagree."""

from __future__ import annotations

import streamlit as st

from workbench.config import ActorCriticConfig
from workbench.insight.advantages import OverRun
from workbench.runs.workspace import RunFolder
from workbench.ui.charts.advantages import flips_figure, histogram_figure, signal_figure
from workbench.ui.run_tabs import readers
from workbench.ui.text import t
from workbench.ui.widgets import chart

COLUMNS = ("advantage", "normalized")


def show_over_run(run: RunFolder) -> None:
    """Three charts of the run's training nodes. Raises TraceError, SpecError."""
    st.subheader(t("adv.over_run"))
    critic = isinstance(readers.config_of(run), ActorCriticConfig)
    column = st.segmented_control(
        t("adv.histogram_of"), COLUMNS, default="advantage", format_func=lambda c: t(f"adv.number_{c}"),
        key="adv-histogram-of", required=True,
    )  # fmt: skip
    left, right = st.columns(2)
    with left:
        _histogram(run, column)
    with right:
        _signal(run)
    if critic:
        st.info(t("adv.flips_critic"))
    else:
        _flips(run)


def _histogram(run: RunFolder, column: str) -> None:
    found = readers.histogram(run, column)
    if found.table.empty:
        st.info(t("adv.no_advantages"))
        return
    chart(
        histogram_figure(found.table, t, t(f"adv.axis_{column}")),
        "adv-histogram",
        found.table,
        alt=t("adv.histogram_title"),
    )
    st.caption(f"{t('adv.histogram_help')} {_read(found)}")


def _signal(run: RunFolder) -> None:
    found = readers.signal_over_time(run)
    if found.table.empty:
        st.info(t("adv.no_advantages"))
        return
    chart(signal_figure(found.table, t), "adv-signal", found.table, alt=t("adv.signal_title"))
    st.caption(f"{t('adv.signal_about')} {_read(found)}")


def _flips(run: RunFolder) -> None:
    found = readers.sign_flips(run)
    if not found.table["completions"].any():
        st.info(t("adv.no_advantages"))
        return
    chart(flips_figure(found.table, t), "adv-flips", found.table, alt=t("adv.flips_title"))
    st.caption(f"{t('adv.flips_help')} {_read(found)}")


def _read(found: OverRun) -> str:
    """How much was read, and what had no number."""
    read = t("adv.read", shown=t("common.showing", shown=found.shown, total=found.total))
    return f"{read} {t('adv.unscored', count=found.unscored)}" if found.unscored else read
