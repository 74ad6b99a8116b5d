"""What models read and wrote, on the page exactly as it was: plain characters, never markup.

Knows neither traces nor which texts are good.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from workbench.insight.texts import Change, Segment
from workbench.ui.text import t

LONG = 2_000  # characters from which a box scrolls instead of growing
HEIGHT = 420  # pixels of a box that scrolls
MARKS = str.maketrans({" ": "·", "\t": "→\t", "\r": "␍", "\n": "↵\n", "\u00a0": "⍽"})
"""Spaces and line ends made visible; the line end itself stays."""
BOX = (
    "white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace;font-size:0.875rem;line-height:1.5;"
    "padding:0.75rem;border:1px solid rgba(128,128,128,0.35);border-radius:0.5rem;max-height:420px;overflow:auto"
)
LOOK: dict[Change, str] = {
    "equal": "{}",
    "delete": '<del style="background:rgba(214,39,40,0.22);text-decoration:line-through">{}</del>',
    "insert": '<ins style="background:rgba(44,160,44,0.24);text-decoration:underline">{}</ins>',
}
"""How a segment looks: also without colours, struck out or underlined."""


def show_text(text: str, marks: bool = False) -> None:
    """The whole text, monospace, lines wrapped; marks: spaces and line ends visible."""
    if not text:
        st.caption(t("completions.empty_text"))
        return
    shown = text.translate(MARKS) if marks else text
    # st.code takes one line end off each side
    st.code(f"\n{shown}\n", language=None, wrap_lines=True, height=HEIGHT if len(text) > LONG else "content")


def show_segments(segments: Sequence[Segment], side: Change) -> None:
    """One side of a comparison: the words in both texts and those of this side, "delete" (before) or "insert"."""
    body = "".join(
        LOOK[segment.change].format(_escaped(segment.text)) for segment in segments if segment.change in ("equal", side)
    )
    st.html(f'<div style="{BOX}">{body}</div>' if body else f"<i>{html.escape(t('completions.empty_text'))}</i>")


def _escaped(text: str) -> str:
    """As HTML; line ends as entities, since st.html trims lines of blanks."""
    return html.escape(text).replace("\n", "&#10;").replace("\r", "&#13;")
