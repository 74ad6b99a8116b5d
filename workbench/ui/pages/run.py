"""One run: what it does now, and everything it recorded, tab by tab."""

from __future__ import annotations

import importlib

import streamlit as st

from workbench.runs.workspace import RunFolder
from workbench.ui.run_header import header
from workbench.ui.text import t
from workbench.ui.widgets import choose_run, tolerant

TABS = {
    "curves": "workbench.ui.run_tabs.curves:tab",
    "advantages": "workbench.ui.run_tabs.advantages:tab",
    "td": "workbench.ui.run_tabs.td:tab",
    "completions": "workbench.ui.run_tabs.completions:tab",
    "health": "workbench.ui.run_tabs.health:tab",
    "log": "workbench.ui.run_tabs.files:log",
    "spec": "workbench.ui.run_tabs.files:spec",
    "files": "workbench.ui.run_tabs.files:files",
}
"""Tab name -> function that draws it; its title is the text `tab.<name>`. Only the open tab is drawn."""


def page() -> None:
    """The run that the address names, or the newest."""
    st.title(t("page.run"))
    run = choose_run("run-chosen")
    if run is None:
        return
    header(run)
    with tolerant():
        _open(_chosen_tab(), run)


def _chosen_tab() -> str:
    named = st.query_params.get("tab", "curves")
    if st.session_state.get("run-tab") not in TABS:
        st.session_state["run-tab"] = named if named in TABS else "curves"
    chosen = st.segmented_control(
        t("run.tab"),
        list(TABS),
        format_func=lambda name: t(f"tab.{name}"),
        key="run-tab",
        label_visibility="collapsed",
        required=True,
    )
    tab = chosen or "curves"
    if tab != named:
        st.query_params["tab"] = tab
    return tab


def _open(name: str, run: RunFolder) -> None:
    module, _, function = TABS[name].partition(":")
    getattr(importlib.import_module(module), function)(run)
