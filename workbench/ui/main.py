"""The frame around every page: title, language, navigation."""

from __future__ import annotations

import streamlit as st

from workbench.ui import state
from workbench.ui.navigation import pages
from workbench.ui.text import LANGUAGES, language, t


def main() -> None:
    """Draw the page that the address names."""
    st.set_page_config(page_title=t("app.title"), page_icon="🤝", layout="wide")
    state.reconciled(str(state.workspace().root))
    chosen = st.navigation(list(pages().values()), position="top")
    with st.sidebar:
        _language_switch()
        st.caption(f"{t('common.workspace')}: `{state.workspace().root}`")
    chosen.run()


def _language_switch() -> None:
    names = list(LANGUAGES)
    st.segmented_control(
        t("common.language"),
        names,
        default=language(),
        format_func=LANGUAGES.__getitem__,
        key="language",
        on_change=_switch_language,
        required=True,
    )


def _switch_language() -> None:
    st.query_params["lang"] = st.session_state["language"]
