"""The Curves tab on a trace that takes several ticks to read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from workbench.insight.curves import advance
from workbench.runs.workspace import RunFolder
from workbench.ui import live
from workbench.ui.live import CATCH_UP_SECONDS, curve_store
from workbench.ui.text import table

BEHIND = table()["curves.behind"]["en"].split("}")[1]


def test_a_long_trace_of_a_finished_run_is_read_to_its_end_without_a_click(
    copied: Callable[[str, str], RunFolder], open_page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, paces = copied("magrpo", "long"), []
    rows = advance(run.trace_file)
    fragment = st.fragment
    monkeypatch.setattr(st, "fragment", lambda f, run_every=None: (paces.append(run_every), fragment(f))[1])
    portions = [10, 10]  # of the first drawing; the next ones bring the rest
    monkeypatch.setattr(
        live, "advance", lambda *a: partial(advance, max_rows=portions.pop())(*a) if portions else advance(*a)
    )
    at = open_page("run", run=run.id, tab="curves")
    assert BEHIND in said(at)
    assert CATCH_UP_SECONDS in paces
    paces.clear()
    at.run()
    assert not at.exception
    assert BEHIND not in said(at)
    assert set(paces[-2:]) == {None}  # header and charts rest
    assert curve_store(str(run.trace_file)).read().keys == rows.keys


def test_the_page_takes_the_ordinary_pace_once_everything_is_read(
    copied: Callable[[str, str], RunFolder], open_page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drawing that reads the last row draws the page again, by itself."""
    run, paces, portions = copied("magrpo", "shorter"), [], [10]
    fragment = st.fragment
    monkeypatch.setattr(st, "fragment", lambda f, run_every=None: (paces.append(run_every), fragment(f))[1])
    monkeypatch.setattr(
        live, "advance", lambda *a: partial(advance, max_rows=portions.pop())(*a) if portions else advance(*a)
    )
    at = open_page("run", run=run.id, tab="curves")
    assert not at.exception
    assert CATCH_UP_SECONDS in paces and paces[-1] is None
    assert BEHIND not in said(at)


def said(at: AppTest) -> str:
    return "\n".join(str(caption.value) for caption in at.caption)
