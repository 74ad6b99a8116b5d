"""Opening a page of the app in an AppTest, as a browser with that address would."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

APP = str(Path(__file__).parents[2] / "app.py")
SECONDS = 240.0  # a slow machine must not fail a test


def opened(page: str, **query: str) -> AppTest:
    """The page after its first run; query: what its address says."""
    at = AppTest.from_file(APP, default_timeout=SECONDS)
    at.query_params.update(query)
    at._page_hash = calc_hash(page)  # switch_page knows pages that are files; these are functions with a url_path
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def words(at: AppTest) -> str:
    """All texts on the page."""
    kinds = (at.title, at.subheader, at.caption, at.markdown, at.info, at.warning, at.error, at.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind)
