"""The trace of one run: every node, completion and metric in one SQLite file, its writer and its readers.

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
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.tracking.base import NullTracker
from workbench.types import NodeRecord

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


class TraceWriter(NullTracker):
    """Writes one run's trace, one transaction per call; readers may look at it at any time.

    Raises OSError with the file and the remedy when the disk refuses, TraceError for a file it cannot continue. A trace
    holds one run: the same node twice is a TraceError.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._opened: sqlite3.Connection | None = None
        self._connection()

    def nodes(self, records: Sequence[NodeRecord]) -> None:
        now = time.time()
        completions = [row for record in records for row in _completion_rows(record)]
        joints = [row for record in records for row in _joint_rows(record)]
        with self._transaction() as database:
            database.executemany(_insert("nodes", NODE_COLUMNS), [_node_row(record, now) for record in records])
            database.executemany(_insert("joints", JOINT_COLUMNS), joints)
            database.executemany(_insert("completions", COMPLETION_COLUMNS), completions)

    def normalized(self, rows: Sequence[tuple[int, int, int, float]]) -> None:
        update = "UPDATE completions SET normalized = ? WHERE node_id = ? AND agent = ? AND k = ?"
        with self._transaction() as database:
            database.executemany(update, [(value, node_id, agent, k) for node_id, agent, k, value in rows])
            database.executemany("INSERT INTO late_normalized VALUES (?, ?, ?)", [row[:3] for row in rows])

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """A NaN is stored as NULL, see the module."""
        now = time.time()
        with self._transaction() as database:
            rows = [(step, key, float(value), now) for key, value in values.items()]
            database.executemany(_insert("metrics", METRIC_COLUMNS), rows)

    def mark(self) -> dict[str, Any]:
        """The last row of each table that has an order of its own."""
        with self._transaction() as database:
            # What a checkpoint relies on must survive a power cut, which one WAL commit alone does not promise.
            database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            last = f"SELECT coalesce(max({{}}), {EMPTY}) FROM {{}}"
            return {name: database.execute(last.format(*where)).fetchone()[0] for name, where in POSITIONS.items()}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Delete rows and late `normalized` values after the mark; an empty mark is for an empty trace only.

        A trace that does not reach back to the mark, because the file was lost, is continued with a warning.
        """
        if not mark and set(self.mark().values()) != {EMPTY}:
            raise TraceError(f"The checkpoint does not say where the trace {self.path} stood: start a new run.")
        position = {name: int(mark.get(name, EMPTY)) for name in POSITIONS}
        with self._transaction() as database:
            database.execute(
                f"UPDATE completions SET normalized = NULL WHERE (node_id, agent, k) IN ({LATE})", position
            )
            database.execute("DELETE FROM late_normalized WHERE rowid > :late", position)
            database.execute("DELETE FROM metrics WHERE rowid > :metric", position)
            for table in ("joints", "completions", "nodes"):
                database.execute(f"DELETE FROM {table} WHERE node_id > :node", position)
        if self.mark() != position:
            log.warning(
                "The trace %s does not reach back to the checkpoint; what came before it is missing or incomplete.",
                self.path,
            )

    def clear(self) -> None:
        """Delete everything: the run starts over."""
        self.rewind(dict.fromkeys(POSITIONS, EMPTY))

    def check(self) -> None:
        """TraceError when SQLite finds the file damaged; reads all of it."""
        with _writing(self.path):
            (found,) = self._connection().execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise DamagedTraceError(f"The trace {self.path} is damaged: {' '.join(found.split())}.")

    def end(self, state: str) -> None:
        """Close the file; a later call, such as an evaluation's, opens it again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _writing(self.path):
                # A trainer may be built in one thread and run in another, never in two at once.
                database = sqlite3.connect(self.path, timeout=BUSY_SECONDS, check_same_thread=False)
                try:
                    _prepare(database, self.path)
                except BaseException:
                    database.close()
                    raise
            self._opened = database
        return self._opened

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _writing(self.path), self._connection() as database:
            yield database


def continue_trace(path: Path) -> TraceWriter:
    """A writer that goes on with the trace. A damaged one is moved aside with a warning, and a new one begins."""
    writer = None
    try:
        writer = TraceWriter(path)
        writer.check()
        return writer
    except DamagedTraceError as error:
        if writer is not None:
            writer.end("FAILED")
        aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
        log.warning("%s It is now %s, and a new trace begins.", error, aside)
    return TraceWriter(path)


def read_nodes(path: str | Path, phase: str | None = None, after: int = -1, limit: int | None = None) -> pd.DataFrame:
    """Nodes in the order of their ids, one row each; `phase` is "train", "eval" or None for both.

    `after` leaves out ids up to it and `limit` keeps the first rows of the rest, so a live view asks for what is new.
    parent_id and parent_joint are <NA> at a root. Every reader raises TraceError.
    """
    where, values = _conditions(phase=phase, after=after)
    return _select(path, "nodes", NODE_COLUMNS, where, values, "node_id", limit)


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
    with _reading(Path(path)) as database:
        return [key for (key,) in database.execute("SELECT DISTINCT key FROM metrics ORDER BY key")]


def _node_row(record: NodeRecord, now: float) -> tuple[Any, ...]:
    return (*(getattr(record, name) for name in NODE_COLUMNS[:-1]), now)


def _joint_rows(record: NodeRecord) -> list[tuple[Any, ...]]:
    return [(record.node_id, j.joint, json.dumps(list(j.responses)), j.reward, j.return_) for j in record.joints]


def _completion_rows(record: NodeRecord) -> list[tuple[Any, ...]]:
    fields = ["return_" if name == "return" else name for name in COMPLETION_COLUMNS[1:]]
    return [(record.node_id, *(getattr(row, name) for name in fields)) for row in record.completions]


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(map(QUOTED, columns))}) VALUES ({', '.join('?' * len(columns))})"


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    version = _version(database, path)
    if version == 0 and database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise DamagedTraceError(f"{path} is a database, but not a trace.")
    database.execute("PRAGMA journal_mode = WAL").fetchall()
    database.execute("PRAGMA synchronous = NORMAL")
    if version == 0:
        database.executescript(SCHEMA)


def _version(database: sqlite3.Connection, path: Path) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise TraceError(f"The trace {path} has version {version}, newer than {VERSION}: update marl-workbench.")
    return version


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one sentence with the file and the remedy."""
    try:
        yield
    except sqlite3.OperationalError as error:
        remedy = next((text for part, text in REMEDIES.items() if part in str(error)), "")
        raise OSError(f"Cannot write the trace {path}: {error}. {remedy}".rstrip()) from error
    except sqlite3.IntegrityError as error:
        raise TraceError(f"The trace {path} refuses a row ({error}): a trace holds one run, each node once.") from error
    except sqlite3.DatabaseError as error:
        raise DamagedTraceError(f"The trace {path} is damaged or not a trace: {error}.") from error


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
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
        where.append("node_id IN (SELECT value FROM json_each(?))")  # one parameter, however many ids
        values.append(json.dumps([int(node_id) for node_id in node_ids]))
    return where, values


def _select(
    path: str | Path, table: str, columns: Sequence[str], where: list[str], values: list[Any], order: str,
    limit: int | None = None,
) -> pd.DataFrame:  # fmt: skip
    condition = f"WHERE {' AND '.join(where)}" if where else ""
    query = f"SELECT {', '.join(map(QUOTED, columns))} FROM {table} {condition} ORDER BY {order} LIMIT ?"
    with _reading(Path(path)) as database:
        rows = database.execute(query, (*values, -1 if limit is None else limit)).fetchall()
    cells = zip(*rows) if rows else ((),) * len(columns)
    return pd.DataFrame({name: pd.Series(list(cell), dtype=_dtype(name)) for name, cell in zip(columns, cells)})


def _dtype(column: str) -> str:
    return next((dtype for dtype, names in DTYPES.items() if column in names), "float64")
