"""All words of the app in one table, English and Simplified Chinese, kept in texts/*.yaml (one file per page).

launch.start: {en: "Start training", zh: "开始训练"}
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import streamlit as st
import yaml

LANGUAGES = {"en": "English", "zh": "简体中文"}
FOLDER = Path(__file__).parent / "texts"


def language() -> str:
    """The language of this reader: in the address, so that a refresh or a link keeps it."""
    chosen = st.query_params.get("lang", "en")
    return chosen if chosen in LANGUAGES else "en"


def t(key: str, **values: Any) -> str:
    """The text of `key` in the reader's language, {name} places filled from values. KeyError for an unknown key."""
    text = table()[key][language()]
    return text.format(**values) if values else text


def plain(text: str) -> str:
    """A text of others (an error, a model's words) whose brackets, dollars and the like are not markdown: it must not
    load a picture or pass for a link."""
    return "".join(f"\\{c}" if c in "[]$`~<*" else c for c in text)


def has(key: str) -> bool:
    """True when the table has this key, for texts that are optional, such as a config field's Chinese help."""
    return key in table()


@functools.cache
def table() -> dict[str, dict[str, str]]:
    """key -> language -> text. ValueError for a key that two files define."""
    merged: dict[str, dict[str, str]] = {}
    for file in sorted(FOLDER.glob("*.yaml")):
        for key, texts in yaml.safe_load(file.read_text(encoding="utf-8")).items():
            if key in merged:
                raise ValueError(f"The text {key!r} is defined twice, the second time in {file.name}.")
            merged[key] = texts
    return merged
