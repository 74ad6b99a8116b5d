"""Rows of the item files that ship with the package."""

from __future__ import annotations

import json
from importlib import resources


def packaged_items(file: str, split: str) -> list[dict[str, str]]:
    """The rows `{"prompt": text}` of one split, "train" or "eval", of `data/<file>`, in the file's order."""
    text = resources.files("workbench.tasks").joinpath("data", file).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return [{"prompt": row["prompt"]} for row in rows if row["split"] == split]
