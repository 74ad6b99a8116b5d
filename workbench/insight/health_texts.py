"""Alarms about texts: cut off, ever longer, repeated, empty, or worse while the reward rises.

Every threshold is a constant with its reason. Whether a text is good is the reward's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from workbench.insight.alarms import LEAST, Alarm, alarm, places, share_alarms
from workbench.insight.health_data import Window
from workbench.insight.sampling import spread
from workbench.insight.texts import WORD

TRUNCATED = (0.2, 0.5)  # a fifth without an end already bends the reward; half means the limit decides
GROWTH, NEAR_CAP = 1.5, 0.7  # half as long again AND within reach of the limit: growth alone may be what is wanted
DUPLICATE = (0.5, 0.9)  # half of a group's comparisons are with itself; nearly all
STUCK, STUCK_ITEMS = 0.5, 3  # one text for half of the answers, and to three questions: no longer an answer
EMPTY = (0.2, 0.5)  # a fifth empty is no accident; half is silence
SHORT_SHARE, SPEAKING = 0.1, 20  # a tenth of what the others write, where they write at least 20 characters
REWARD_GAIN = 0.5  # early standard deviations: a rise that the windows' noise does not explain
UNIQUE_LOSS, REPEAT_GAIN = 0.8, 0.1  # a fifth fewer different words, or a tenth more repeated phrases
LEAST_GAIN = 0.02  # reward: a rise above equal early rewards must be at least half of this
JUDGED_TEXTS = 300  # per window, agent and turn: counting words in more would cost a second
JUDGED_WORDS = 5  # shorter texts have nothing to repeat
SAMPLE = 60  # characters of a text that an alarm quotes


def truncation(window: Window) -> list[Alarm]:
    """Completions that the token limit ended."""
    return share_alarms(window, "truncation", TRUNCATED, ~window.recent["finished"])


def silent_agent(window: Window) -> list[Alarm]:
    """Completions without a single visible character."""
    return share_alarms(window, "silent_agent", EMPTY, window.recent["text"].str.strip() == "")


def duplicates(window: Window) -> list[Alarm]:
    """Completions whose very text another one of their group has."""
    rows = window.recent
    groups = rows[rows.groupby(["node_id", "agent"])["k"].transform("size") > 1]
    same = rows.duplicated(["node_id", "agent", "text"], keep=False)
    return share_alarms(replace(window, recent=groups), "duplicates", DUPLICATE, same)


def stuck_text(window: Window) -> list[Alarm]:
    """One text that answers most items."""
    found = []
    for place, rows in places(window.recent):
        text = rows["text"].mode().iloc[0]
        same = rows[rows["text"] == text]
        items, share = same["item"].nunique(), len(same) / len(rows)
        if len(rows) >= LEAST and share >= STUCK and items >= STUCK_ITEMS and text.strip():
            numbers = {"share": share, "count": len(rows), "items": items, "sample": _quoted(text), **place}
            found.append(alarm(window, "stuck_text", "warning", same["node_id"][::-1], numbers))
    return found


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SAMPLE else f"{line[:SAMPLE]}…"


def length_runaway(window: Window) -> list[Alarm]:
    """Ever longer texts, on their way to the token limit."""
    cap = window.settings.max_new_tokens
    found = []
    for place, early, recent in _both(window):
        before, now = early["tokens"].mean(), recent["tokens"].mean()
        if cap and now >= GROWTH * before and now >= NEAR_CAP * cap:
            longest = recent.sort_values("tokens", ascending=False, kind="stable")["node_id"]
            numbers = {"early": before, "recent": now, "cap": cap, "share": now / cap, **place}
            found.append(alarm(window, "length_runaway", "warning", longest, numbers))
    return found


def short_agent(window: Window) -> list[Alarm]:
    """An agent whose texts are tiny beside those of the others in the same turn."""
    found = []
    lengths = window.recent["text"].str.strip().str.len()
    for place, rows in places(window.recent):
        same_turn = (window.recent["turn"] == place["turn"]) & (window.recent["agent"] != place["agent"])
        mine, others = lengths[rows.index].mean(), lengths[same_turn].mean()
        if len(rows) >= LEAST and others >= SPEAKING and mine <= SHORT_SHARE * others:
            numbers = {"recent": mine, "early": others, **place}
            found.append(alarm(window, "short_agent", "warning", rows["node_id"][::-1], numbers))
    return found


def reward_hacking(window: Window) -> list[Alarm]:
    """The reward rises while the agent's words become fewer or its phrases repeat."""
    found = []
    for place, early, recent in _both(window):
        before, now = early["reward"].mean(), recent["reward"].mean()
        if not now - before > REWARD_GAIN * max(early["reward"].std(ddof=0), LEAST_GAIN):
            continue
        old, new = _quality(early), _quality(recent)
        if new["unique"].mean() <= UNIQUE_LOSS * old["unique"].mean() or (
            new["repeat"].mean() - old["repeat"].mean() >= REPEAT_GAIN
        ):
            numbers = {"early": before, "recent": now, "unique_early": old["unique"].mean(),
                       "unique": new["unique"].mean(), "repeat_early": old["repeat"].mean(),
                       "repeat": new["repeat"].mean(), **place}  # fmt: skip
            worst = new.sort_values("repeat", ascending=False, kind="stable")["node_id"]
            found.append(alarm(window, "reward_hacking", "alarm", worst, numbers))
    return found


def _both(window: Window) -> Iterator[tuple[dict[str, int], pd.DataFrame, pd.DataFrame]]:
    """Each agent and turn that has enough completions early and recently."""
    early = {tuple(place.values()): rows for place, rows in places(window.early)}
    for place, recent in places(window.recent):
        before = early.get(tuple(place.values()))
        if before is not None and min(len(before), len(recent)) >= LEAST:
            yield place, before, recent


def _quality(rows: pd.DataFrame) -> pd.DataFrame:
    """Columns node_id, unique (different words per word) and repeat (share of three-word phrases met before), of at
    most JUDGED_TEXTS evenly spread texts of JUDGED_WORDS and more words."""
    chosen = rows.iloc[spread(len(rows), JUDGED_TEXTS)]
    found = []
    for node_id, text in zip(chosen["node_id"], chosen["text"]):
        words = [word for word in WORD.findall(text.casefold()) if not word.isspace()]
        if len(words) >= JUDGED_WORDS:
            phrases = list(zip(words, words[1:], words[2:]))
            found.append((node_id, len(set(words)) / len(words), 1 - len(set(phrases)) / len(phrases)))
    return pd.DataFrame(found, columns=["node_id", "unique", "repeat"])
