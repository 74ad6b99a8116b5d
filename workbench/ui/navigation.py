"""The pages by name, and how to get from one to another. A page's module loads when it is opened."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st
from streamlit.navigation.page import Page

from workbench.ui.text import t


@dataclass(frozen=True)
class PageSpec:
    """One row of the registry. module: has `page()`; url: the path in the address bar."""

    module: str
    url: str
    icon: str


PAGES = {
    "launch": PageSpec("workbench.ui.pages.launch", "launch", ":material/rocket_launch:"),
    "runs": PageSpec("workbench.ui.pages.runs", "runs", ":material/list:"),
    "run": PageSpec("workbench.ui.pages.run", "run", ":material/monitoring:"),
    "compare": PageSpec("workbench.ui.pages.compare", "compare", ":material/compare_arrows:"),
    "lab": PageSpec("workbench.ui.pages.lab", "lab", ":material/science:"),
    "play": PageSpec("workbench.ui.pages.play", "play", ":material/forum:"),
}
"""Titles are the texts `page.<name>`."""


def pages() -> dict[str, Page]:
    """All pages for st.navigation, titles in the present language."""
    return {name: _page(name) for name in PAGES}


def _page(name: str) -> Page:
    spec = PAGES[name]
    return st.Page(_opener(spec), title=t(f"page.{name}"), icon=spec.icon, url_path=spec.url, default=name == "launch")


def _opener(spec: PageSpec) -> Callable[[], None]:
    def open_page() -> None:
        importlib.import_module(spec.module).page()

    open_page.__name__ = spec.url  # Streamlit tells pages apart by it
    return open_page


def go(name: str, **query: str) -> None:
    """Leave for another page; query: what its address says, such as run=<id>."""
    st.switch_page(_page(name), query_params={**_language(), **query})


def link(name: str, label: str, **query: str) -> None:
    """A link to a page that keeps the language."""
    st.page_link(_page(name), label=label, query_params={**_language(), **query})


def _language() -> dict[str, str]:
    return {"lang": st.query_params["lang"]} if "lang" in st.query_params else {}
