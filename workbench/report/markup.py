"""HTML in which a text can never become markup: `tag` escapes whatever is not Html already.

Knows nothing of runs.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd


class Html(str):
    """Markup that was built here; every other text is escaped."""

    __slots__ = ()


def tag(name: str, *content: str, attributes: Mapping[str, str] | None = None) -> Html:
    """One element with its content; texts and attribute values are escaped."""
    given = "".join(f' {key}="{html.escape(value)}"' for key, value in (attributes or {}).items())
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def joined(content: Iterable[str]) -> Html:
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in content))


def div(kind: str, *content: str) -> Html:
    """A block of one CSS class."""
    return tag("div", *content, attributes={"class": kind})


def section(title: str, *content: str) -> Html:
    return tag("section", tag("h2", title), *content)


def folded(summary: str, *content: str) -> Html:
    """Closed until somebody clicks on the summary."""
    return tag("details", tag("summary", summary), *content)


def facts(rows: Sequence[tuple[str, str]]) -> Html:
    """Two columns: a name and what there is to say; empty values are left out."""
    lines = [tag("tr", tag("th", name), tag("td", value)) for name, value in rows if value]
    return tag("table", *lines, attributes={"class": "facts"})


def table(frame: pd.DataFrame, texts: Sequence[str] = ()) -> Html:
    """A data frame with its column names; `texts`: columns whose line breaks are kept. Numbers in four digits."""
    head = tag("tr", *(tag("th", str(name)) for name in frame.columns))
    rows = [
        tag("tr", *(_cell(value, str(name) in texts) for name, value in zip(frame.columns, row)))
        for row in frame.itertuples(index=False, name=None)
    ]
    return div("wide", tag("table", head, *rows))


def _cell(value: object, is_text: bool) -> Html:
    kind = "text" if is_text else "number" if isinstance(value, (int, float)) else "plain"
    return tag("td", shown(value), attributes={"class": kind})


def shown(value: object) -> str:
    """A value for people: numbers in four digits, nothing for what is missing."""
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return "" if value is None or value is pd.NA or value is pd.NaT else str(value)
