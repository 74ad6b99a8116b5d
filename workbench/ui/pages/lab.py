"""The estimator lab: what four baselines make of K returns, and how good each is on a game that can be counted."""

from __future__ import annotations

import streamlit as st

from workbench.ui.lab.game import show_game
from workbench.ui.lab.group import show_group
from workbench.ui.text import t


def page() -> None:
    """Draw it; it needs no run."""
    st.title(t("page.lab"))
    st.caption(t("lab.about"))
    show_group()
    st.divider()
    show_game()
