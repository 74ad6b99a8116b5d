"""The run page."""

from __future__ import annotations

import streamlit as st

from workbench.ui.text import t


def page() -> None:
    """Draw it."""
    st.title(t("page.run"))
