"""What a search of completions finds, as files. Searches nothing until somebody clicks."""

from __future__ import annotations

from functools import partial

import streamlit as st

from workbench.insight.completions import MAX_EXPORT, Search, export
from workbench.runs.workspace import RunFolder
from workbench.ui.text import t
from workbench.ui.widgets import download

FORMS = ("csv", "jsonl")


def downloads(run: RunFolder, wanted: Search) -> None:
    """What the search finds, on every page of it; made when the button is clicked."""
    with st.container(horizontal=True, vertical_alignment="center"):
        for form in FORMS:
            download(
                t(f"completions.download_{form}"), partial(_file, run, wanted, form), f"{run.id}-completions.{form}",
                f"completions-{form}", icon=":material/download:",
            )  # fmt: skip
        st.caption(t("completions.download_help", most=MAX_EXPORT))


def _file(run: RunFolder, wanted: Search, form: str) -> bytes:
    """Excel takes a CSV for UTF-8 only with a byte order mark; JSON must not have one."""
    text = export(run.trace_file, wanted, form)
    return text.encode("utf-8-sig" if form == "csv" else "utf-8")
