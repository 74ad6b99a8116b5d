"""The trace of one run: every node, completion and metric in one SQLite file. Written by trace_writer, read here.

The tables are public API: `nodes`, `joints`, `completions` and `metrics` keep their names and meanings, columns
may be added and `PRAGMA user_version` counts the versions. Other tables belong to the writer. This module
knows neither trainers nor models, and judges none of the numbers it stores.

Times are seconds since the epoch. NaN is NULL in SQLite and reads back as NaN; infinities are kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

log = logging.getLogger(__name__)
VERSION = 1
BUSY_SECONDS = 30.0
Ids = Sequence[int] | None
JOINT_COLUMNS = ("node_id", "joint", "responses", "reward", "return")
NODE_COLUMNS = ("node_id", "phase", "step", "epoch", "item", "turn", "parent_id", "parent_joint", "terminated", "time")
COMPLETION_COLUMNS = ("node_id", "agent", "k", "prompt", "text", "tokens", "finished", "logprob", "kl", "reward",
                      "return", "baseline", "advantage", "normalized", "value", "target", "td_error")  # fmt: skip
METRIC_COLUMNS = ("step", "key", "value", "time")
DTYPES = {
    "int64": ("node_id", "step", "epoch", "item", "turn", "joint", "agent", "k", "tokens"),
    "Int64": ("parent_id", "parent_joint"),
    "bool": ("terminated", "finished"),
    "object": ("phase", "key", "prompt", "text", "responses"),
}
QUOTED = '"{}"'.format  # "return" is also an SQL keyword

# `late_normalized`: which completions got `normalized` after their node was written, so that a rewind takes it back.
SCHEMA = f"""
BEGIN;
CREATE TABLE nodes (node_id INTEGER PRIMARY KEY, phase TEXT NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
  item INTEGER NOT NULL, turn INTEGER NOT NULL, parent_id INTEGER, parent_joint INTEGER, terminated INTEGER NOT NULL,
  time REAL NOT NULL);
CREATE TABLE joints (node_id INTEGER NOT NULL, joint INTEGER NOT NULL, responses TEXT NOT NULL, reward REAL,
  "return" REAL, PRIMARY KEY (node_id, joint));
CREATE TABLE completions (node_id INTEGER NOT NULL, agent INTEGER NOT NULL, k INTEGER NOT NULL, prompt TEXT NOT NULL,
  text TEXT NOT NULL, tokens INTEGER NOT NULL, finished INTEGER NOT NULL, logprob REAL, kl REAL, reward REAL,
  "return" REAL, baseline REAL, advantage REAL, normalized REAL, value REAL, target REAL, td_error REAL,
  PRIMARY KEY (node_id, agent, k));
CREATE TABLE metrics (step INTEGER NOT NULL, key TEXT NOT NULL, value REAL, time REAL NOT NULL);
CREATE TABLE late_normalized (node_id INTEGER NOT NULL, agent INTEGER NOT NULL, k INTEGER NOT NULL);
CREATE INDEX nodes_step ON nodes (step);
CREATE INDEX metrics_key_step ON metrics (key, step);
PRAGMA user_version = {VERSION};
COMMIT;
"""
POSITIONS = {"node": ("node_id", "nodes"), "metric": ("rowid", "metrics"), "late": ("rowid", "late_normalized")}
EMPTY = -1  # the position in a table without rows
IN_LIST = "{} IN (SELECT value FROM json_each(?))"  # one parameter, however many ids
TREES = """
WITH roots AS (SELECT value AS root, coalesce((SELECT node_id FROM nodes WHERE node_id > value AND parent_id IS NULL
  ORDER BY node_id LIMIT 1), (SELECT max(node_id) + 1 FROM nodes)) AS stop FROM json_each(?))
SELECT root, (SELECT count(*) FROM nodes WHERE node_id >= root AND node_id < stop),
  (SELECT max(turn) FROM nodes WHERE node_id >= root AND node_id < stop),
  (SELECT avg(reward) FROM joints WHERE node_id = root), (SELECT avg("return") FROM joints WHERE node_id = root),
  (SELECT max(abs(advantage)) FROM completions WHERE node_id >= root AND node_id < min(stop, root + ?))
FROM roots ORDER BY root
"""
LATE = "SELECT node_id, agent, k FROM late_normalized WHERE rowid > :late"
REMEDIES = {
    "full": "Free some disk space, then resume the run.",
    "readonly": "Make the file and its folder writable, then resume the run.",
    "unable to open": "Check that its folder exists and is writable.",
    "locked": "Another process is writing to it: a trace has one writer.",
}


class TraceError(ValueError):
    """The file is missing, damaged, no trace, or from a newer version; the message names it."""


class DamagedTraceError(TraceError):
    """The file is no trace, or no longer one."""


def read_nodes(
    path: str | Path, phase: str | None = None, after: int = -1, limit: int | None = None, node_ids: Ids = None
) -> pd.DataFrame:
    """Nodes in the order of their ids, one row each; `phase` is "train", "eval" or None for both.

    `after` leaves out ids up to it and `limit` keeps the first rows of the rest, so a live view asks for what is new.
    parent_id and parent_joint are <NA> at a root. Every reader raises TraceError.
    """
    where, values = _conditions(phase, after, node_ids)
    return _select(path, "nodes", NODE_COLUMNS, where, values, "node_id", limit)


def read_node_ids(
    path: str | Path, phase: str | None = None, turn: int | None = None, item: int | None = None,
    roots: bool = False, step: int | None = None, after: int = -1, before: int | None = None,
    limit: int | None = None, newest_first: bool = False,
) -> np.ndarray:  # fmt: skip
    """Ids [N] int64 of the nodes with after < id < before, for picking which ones to read.

    roots: only first nodes of a tree. step: only nodes of this env_step and later ones. limit: the first ones in the
    order asked for.
    """
    conditions = {"node_id > ?": after, "node_id < ?": before, "phase = ?": phase, "turn = ?": turn, "item = ?": item,
                  "step >= ?": step}  # fmt: skip
    where = [text for text, value in conditions.items() if value is not None] + ["parent_id IS NULL"] * roots
    values = [value for value in conditions.values() if value is not None]
    order = "node_id DESC" if newest_first else "node_id"
    query = f"SELECT node_id FROM nodes WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
    with reading(Path(path)) as database:
        rows = database.execute(query, (*values, -1 if limit is None else limit)).fetchall()
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def read_trees(path: str | Path, roots: Sequence[int], most: int) -> pd.DataFrame:
    """One row per root, in ascending order: node_id, nodes and turns of its tree (its nodes have the ids up to the
    next root), mean reward and return of the root's scored joint responses, max_advantage: the largest |advantage|
    of any completion in the first `most` nodes, NaN where none is known.
    """
    with reading(Path(path)) as database:
        rows = database.execute(TREES, (_list(roots), most)).fetchall()
    names = ("node_id", "nodes", "turns", "reward", "return", "max_advantage")
    frame = pd.DataFrame(rows, columns=list(names))
    return frame.astype({name: "int64" if name in names[:3] else "float64" for name in names})


def read_children(path: str | Path, parents: Sequence[int], before: int, limit: int) -> pd.DataFrame:
    """Nodes under the given parents with ids below `before`: the ids of a tree are consecutive, so that the next root
    is the bound that keeps this fast."""
    where = ["node_id > ?", "node_id < ?", IN_LIST.format("parent_id")]
    return _select(path, "nodes", NODE_COLUMNS, where, [min(parents), before, _list(parents)], "node_id", limit)


def count_children(path: str | Path, parents: Sequence[int], before: int) -> dict[int, int]:
    """Children per parent, for parents that have any; `before` as in read_children."""
    query = f"SELECT parent_id, count(*) FROM nodes WHERE node_id > ? AND node_id < ? AND {IN_LIST} GROUP BY parent_id"
    with reading(Path(path)) as database:
        return dict(database.execute(query.format("parent_id"), (min(parents), before, _list(parents))))


def read_joints(
    path: str | Path, node_ids: Ids = None, phase: str | None = None, after: int = -1, limit: int | None = None
) -> pd.DataFrame:
    """Joint responses of the given nodes (None = all), `responses` as lists of int; an unscored reward is NaN."""
    where, values = _conditions(phase, after, node_ids)
    frame = _select(path, "joints", JOINT_COLUMNS, where, values, "node_id, joint", limit)
    decoded = {text: json.loads(text) for text in set(frame["responses"])}
    frame["responses"] = [list(decoded[text]) for text in frame["responses"]]
    return frame


def read_completions(
    path: str | Path, node_ids: Ids = None, phase: str | None = None, after: int = -1, limit: int | None = None,
    columns: Sequence[str] = COMPLETION_COLUMNS,
) -> pd.DataFrame:  # fmt: skip
    """Completions of the given nodes (None = all); name the `columns` to leave the long texts on disk."""
    unknown = set(columns) - set(COMPLETION_COLUMNS)
    if unknown:
        raise ValueError(f"The trace table completions has no column {', '.join(sorted(unknown))}.")
    where, values = _conditions(phase, after, node_ids)
    return _select(path, "completions", columns, where, values, "node_id, agent, k", limit)


def read_metrics(path: str | Path, keys: Sequence[str] | None = None, after_step: int | None = None) -> pd.DataFrame:
    """Metrics in the order they were logged: `keys` are exact names (None = all), steps > `after_step` only."""
    where: list[str] = []
    values: list[Any] = []
    if keys is not None:
        where.append("key IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(keys)))
    if after_step is not None:
        where.append("step > ?")
        values.append(int(after_step))
    return _select(path, "metrics", METRIC_COLUMNS, where, values, "rowid")


def read_metric_keys(path: str | Path) -> list[str]:
    """The names of all logged metrics, sorted."""
    with reading(Path(path)) as database:
        return [key for (key,) in database.execute("SELECT DISTINCT key FROM metrics ORDER BY key")]


def _version(database: sqlite3.Connection, path: Path) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise TraceError(f"The trace {path} has version {version}, newer than {VERSION}: update marl-workbench.")
    return version


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The open database, read only, for a block of SELECTs; whatever goes wrong in it is a TraceError."""
    if not path.is_file():
        raise TraceError(f"There is no trace at {path}.")
    # Without a write-ahead log nobody writes, and only `immutable` keeps SQLite from creating one for the reader.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    address = f"{path.resolve().as_uri()}?{mode}"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as database:
            if _version(database, path) == 0:
                raise TraceError(f"{path} is not a trace, or nothing was written to it yet.")
            yield database
    except sqlite3.Error as error:
        raise TraceError(f"Cannot read {path}, it is damaged or not a trace: {error}.") from error


def _conditions(phase: str | None, after: int, node_ids: Ids = None) -> tuple[list[str], list[Any]]:
    where: list[str] = ["node_id > ?"]
    values: list[Any] = [after]
    if phase is not None:
        where.append("node_id IN (SELECT node_id FROM nodes WHERE phase = ?)")
        values.append(phase)
    if node_ids is not None:
        where.append(IN_LIST.format("node_id"))
        values.append(_list(node_ids))
    return where, values


def _list(ids: Sequence[int]) -> str:
    return json.dumps([int(value) for value in ids])


def _select(
    path: str | Path, table: str, columns: Sequence[str], where: list[str], values: list[Any], order: str,
    limit: int | None = None,
) -> pd.DataFrame:  # fmt: skip
    condition = f"WHERE {' AND '.join(where)}" if where else ""
    query = f"SELECT {', '.join(map(QUOTED, columns))} FROM {table} {condition} ORDER BY {order} LIMIT ?"
    with reading(Path(path)) as database:
        rows = database.execute(query, (*values, -1 if limit is None else limit)).fetchall()
    cells = zip(*rows) if rows else ((),) * len(columns)
    return pd.DataFrame({name: pd.Series(list(cell), dtype=_dtype(name)) for name, cell in zip(columns, cells)})


def _dtype(column: str) -> str:
    return next((dtype for dtype, names in DTYPES.items() if column in names), "float64")
