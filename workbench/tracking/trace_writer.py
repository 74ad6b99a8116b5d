"""Writes the trace of one run; see workbench.tracking.trace for what it holds and how it is read."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.tracking.base import NullTracker
from workbench.tracking.trace import (
    BUSY_SECONDS,
    COMPLETION_COLUMNS,
    EMPTY,
    JOINT_COLUMNS,
    LATE,
    METRIC_COLUMNS,
    NODE_COLUMNS,
    POSITIONS,
    QUOTED,
    REMEDIES,
    SCHEMA,
    DamagedTraceError,
    TraceError,
    _version,
    log,
)
from workbench.types import NodeRecord


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
