"""What an alarm is, and what all rules share: who is judged, how bad a share is, which nodes to link to.

This module has no rule and no words of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from workbench.insight.health_data import Window
from workbench.insight.health_words import WORDS
from workbench.insight.metric_names import Words

Severity = Literal["info", "warning", "alarm"]

LEAST = 20  # completions, groups or points below which a share is chance
MAX_LINKS = 12  # nodes an alarm links to; more are not looked at


@dataclass(frozen=True)
class Alarm:
    """One finding. text by language; steps: the env_steps looked at; node_ids: what raised it, worst first."""

    code: str
    severity: Severity
    title: Words
    text: Words
    steps: tuple[int, int]
    node_ids: tuple[int, ...]
    numbers: dict[str, Any]


def alarm(
    window: Window, code: str, grade: Severity, nodes: Iterable[int], numbers: Mapping[str, Any],
    steps: tuple[int, int] | None = None,
) -> Alarm:  # fmt: skip
    """An alarm with its words filled in. nodes: worst first; steps: the recent nodes' unless said otherwise."""
    words = WORDS[code]
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in numbers.items()}
    text = {language: template.format(**plain) for language, template in words.text.items()}
    ids = tuple(dict.fromkeys(int(node) for node in nodes))[:MAX_LINKS]
    return Alarm(code, grade, words.title, text, steps or window.steps, ids, plain)


def places(rows: pd.DataFrame) -> Iterator[tuple[dict[str, int], pd.DataFrame]]:
    """Each agent and turn with its rows."""
    for _, group in rows.groupby(["agent", "turn"]):
        yield {"agent": int(group["agent"].iloc[0]), "turn": int(group["turn"].iloc[0])}, group


def severity(share: float, limits: tuple[float, float]) -> Severity | None:
    """limits: (warning, alarm), the second further from normal than the first."""
    sign = 1 if limits[0] < limits[1] else -1
    warning, worst = (sign * share >= sign * limit for limit in limits)
    return "alarm" if worst else "warning" if warning else None


def share_alarms(window: Window, code: str, limits: tuple[float, float], marked: pd.Series) -> list[Alarm]:
    """An alarm per agent and turn where the share of marked recent completions is beyond the limits."""
    found = []
    for place, group in places(window.recent):
        flags = marked[group.index]
        grade = severity(flags.mean(), limits) if len(group) >= LEAST else None
        if grade:
            nodes = group[flags]["node_id"][::-1]
            numbers = {"share": float(flags.mean()), "count": len(group), **place}
            found.append(alarm(window, code, grade, nodes, numbers))
    return found
