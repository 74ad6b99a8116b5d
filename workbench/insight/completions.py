"""Finding completions: by text, agent, turn, step and reward, sorted, page by page, and as files.

A page costs what it shows, not what the trace holds: rows are looked for from one end until the page is full or
SECONDS have passed, and the next page goes on from there. This module judges no completion.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.insight.reading import query, query_integers
from workbench.tracking import trace

SECONDS = 0.3  # of looking for one page; a rare word in a long trace takes several pages' time
CHUNK_NODES = 4_000  # nodes per SELECT, between two looks at the clock
MAX_EXPORT = 10_000  # rows of one file
SORTS = {"step": "node_id"} | {name: name for name in ("reward", "advantage", "tokens", "logprob")}
"""What completions are sorted by -> the column of the trace."""
COLUMNS = ("step", "phase", "turn", "item", *trace.COMPLETION_COLUMNS)
KEYS = ["node_id", "agent", "k"]
FORMATS: dict[str, Callable[[pd.DataFrame], str]] = {
    "csv": lambda rows: rows.to_csv(index=False),
    "jsonl": lambda rows: rows.to_json(orient="records", lines=True, force_ascii=False, double_precision=15),
}


@dataclass(frozen=True)
class Search:
    """Which completions, and in what order; None or "" leaves a filter out.

    text: part of the completion (in_prompt: of the prompt) in any case. Steps are env_steps, both ends included.
    An unscored completion has no reward and falls out of every reward filter. sort: a name of SORTS; missing
    numbers come last, and completions of one node stand in the order of agent and k. size: rows of a page.
    """

    text: str = ""
    in_prompt: bool = False
    agent: int | None = None
    turn: int | None = None
    phase: str | None = None
    step_from: int | None = None
    step_to: int | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    sort: str = "step"
    descending: bool = True
    size: int = 50

    def __post_init__(self) -> None:
        if self.sort not in SORTS:
            raise ValueError(f"Completions cannot be sorted by {self.sort!r}; use one of {', '.join(SORTS)}.")
        if self.size < 1:
            raise ValueError(f"A page needs a size of at least 1, got {self.size}.")


@dataclass(frozen=True)
class Place:
    """Where a page ends and the next begins, over the nodes `oldest` to `newest`, fixed with the first page."""

    oldest: int
    newest: int
    shown: int = 0  # rows on the pages so far
    last: tuple[int, int, int] | None = None  # sorted by step: the last (node_id, agent, k) looked at


@dataclass(frozen=True, eq=False)
class Page:
    """rows: COLUMNS. scanned of total: nodes looked through so far, of those that agree with phase, turn and step.

    more: hand it to `search` for the next page; None at the end. A page by step may be short, even empty, with more
    to come; any other order is that of the newest `scanned` nodes.
    """

    rows: pd.DataFrame
    scanned: int
    total: int
    more: Place | None


def search(path: str | Path, wanted: Search, place: Place | None = None, seconds: float = SECONDS) -> Page:
    """The first page, or the one that begins at `place`. Raises TraceError."""
    deadline = time.perf_counter() + seconds
    ids = _node_ids(path, wanted, place)
    if not len(ids):
        return Page(_rows(path, np.empty((0, 3), np.int64)), 0, 0, None)
    start = place or Place(int(ids[0]), int(ids[-1]))
    look = _by_step if wanted.sort == "step" else _by_number
    return look(path, wanted, start, ids, deadline)


def export(path: str | Path, wanted: Search, form: str = "csv", limit: int = MAX_EXPORT) -> str:
    """What `search` finds, at most `limit` rows and however long it takes, as a file's text; form: see FORMATS."""
    if form not in FORMATS:
        raise ValueError(f"Completions cannot be exported as {form!r}; use one of {', '.join(FORMATS)}.")
    return FORMATS[form](search(path, replace(wanted, size=limit), seconds=float("inf")).rows)


# --- looking -------------------------------------------------------------------------------------


def _by_step(path: str | Path, wanted: Search, start: Place, ids: np.ndarray, deadline: float) -> Page:
    """Along the nodes' order, from where the last page ended."""
    todo = ids[::-1] if wanted.descending else ids
    last = start.last
    if last is not None:
        todo = todo[todo <= last[0]] if wanted.descending else todo[todo >= last[0]]
    found, seen = np.empty((0, 3), np.int64), 0
    while seen < len(todo) and len(found) <= wanted.size and (seen == 0 or time.perf_counter() < deadline):
        chunk = todo[seen : seen + CHUNK_NODES]
        new = _matches(path, wanted, chunk, wanted.size + 1 - len(found), last)
        found, seen = np.concatenate([found, new[KEYS].to_numpy(np.int64)]), seen + len(chunk)
    if len(found) > wanted.size:
        found = found[: wanted.size]
        end = (int(found[-1][0]), int(found[-1][1]), int(found[-1][2]))
    elif seen < len(todo):
        end = (int(todo[seen]), -1, -1)  # before its first completion
    else:
        return Page(_rows(path, found), len(ids), len(ids), None)
    scanned = int((ids >= end[0] if wanted.descending else ids <= end[0]).sum()) - (end[1] < 0)
    return Page(_rows(path, found), scanned, len(ids), replace(start, shown=start.shown + len(found), last=end))


def _by_number(path: str | Path, wanted: Search, start: Place, ids: np.ndarray, deadline: float) -> Page:
    """The first rows of every chunk, then the first of those; a later page looks at the nodes of the first one."""
    limit, seen = start.shown + wanted.size + 1, 0
    parts: list[pd.DataFrame] = []
    while seen < len(ids) and (seen == 0 or start.shown or time.perf_counter() < deadline):
        chunk = ids[::-1][seen : seen + CHUNK_NODES]
        parts.append(_matches(path, wanted, chunk, limit))
        seen += len(chunk)
    rows = pd.concat(parts, ignore_index=True).astype({"number": "float64"})
    up = [not wanted.descending, False, True, True]
    ranked = rows.sort_values(["number", *KEYS], ascending=up, na_position="last")[KEYS].to_numpy(np.int64)
    keys = ranked[start.shown : limit - 1]
    more = replace(start, oldest=int(ids[len(ids) - seen]), shown=limit - 1) if len(ranked) >= limit else None
    return Page(_rows(path, keys), seen, len(ids), more)


def _matches(
    path: str | Path, wanted: Search, ids: np.ndarray, limit: int, last: tuple[int, int, int] | None = None
) -> pd.DataFrame:
    """KEYS and number of the first `limit` completions among nodes of these ids, behind `last`."""
    on_nodes, node_values = _node_conditions(wanted)
    where, values = _completion_conditions(wanted)
    column, way = SORTS[wanted.sort], "DESC" if wanted.descending else "ASC"
    order = f"c.node_id {way}" if wanted.sort == "step" else f"c.{column} IS NULL, c.{column} {way}, c.node_id DESC"
    if last is not None:
        where.append(f"(c.node_id {'<' if wanted.descending else '>'} ? OR (c.node_id = ? AND (agent, k) > (?, ?)))")
        values += [last[0], *last]
    sql = f"""SELECT c.node_id, agent, k, c.{column} AS number FROM nodes n CROSS JOIN completions c USING (node_id)
        WHERE n.node_id BETWEEN ? AND ? AND {" AND ".join(on_nodes + where)} ORDER BY {order}, agent, k LIMIT ?"""
    return query(path, sql, (int(ids.min()), int(ids.max()), *node_values, *values, limit))


def _node_ids(path: str | Path, wanted: Search, place: Place | None) -> np.ndarray:
    where, values = _node_conditions(wanted)
    if place is not None:
        where, values = [*where, "n.node_id BETWEEN ? AND ?"], [*values, place.oldest, place.newest]
    sql = f"SELECT n.node_id FROM nodes n WHERE {' AND '.join(where)} ORDER BY n.node_id"
    return query_integers(path, sql, values)


def _node_conditions(wanted: Search) -> tuple[list[str], list[Any]]:
    given = {"n.phase = ?": wanted.phase, "n.turn = ?": wanted.turn, "n.step >= ?": wanted.step_from,
             "n.step <= ?": wanted.step_to}  # fmt: skip
    return _given(given)


def _completion_conditions(wanted: Search) -> tuple[list[str], list[Any]]:
    text = f"contains(c.{'prompt' if wanted.in_prompt else 'text'}, ?)"
    given = {"c.agent = ?": wanted.agent, "c.reward >= ?": wanted.min_reward, "c.reward <= ?": wanted.max_reward,
             text: wanted.text.casefold() or None}  # fmt: skip
    return _given(given)


def _given(conditions: dict[str, Any]) -> tuple[list[str], list[Any]]:
    known = {text: value for text, value in conditions.items() if value is not None}
    return ["1", *known], list(known.values())


def _rows(path: str | Path, keys: np.ndarray) -> pd.DataFrame:
    """Whole rows of the keys [rows, 3] in their order."""
    ids = sorted(set(keys[:, 0].tolist()))
    nodes = trace.read_nodes(path, node_ids=ids)[["node_id", "step", "phase", "turn", "item"]]
    everything = trace.read_completions(path, node_ids=ids).merge(nodes, on="node_id", how="left")
    chosen = pd.DataFrame(keys, columns=KEYS).merge(everything, on=KEYS, how="left")
    return chosen[list(COLUMNS)]
