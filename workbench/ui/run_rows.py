"""The rows of the runs page, cheap enough to be looked at every two seconds.

A run that nobody works on is read again only when one of its files has changed. Knows no streamlit.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from workbench.insight.compare import runs_table
from workbench.runs.supervision import read_supervision
from workbench.runs.workspace import ACTIVE, QUEUED, RunFolder

Signature = tuple[tuple[int, int], ...]
EXTRA = ("share", "note", "waits_for")


class RowStore:
    """The table of one workspace, shared by all sessions of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, Signature] = {}
        self._table = pd.DataFrame()

    def table(self, runs: Sequence[RunFolder]) -> pd.DataFrame:
        """One row per run in their order: the columns of insight.compare.runs_table, and share (of all items, 0 to 1),
        note (what is wrong, "" if nothing) and waits_for (what a queued run waits for)."""
        with self._lock:
            now = {run.id: _signature(run) for run in runs}
            kept = [] if self._table.empty else [
                name for name, state in zip(self._table.index, self._table["state"])
                if state not in ACTIVE and now.get(name) == self._seen.get(name)
            ]  # fmt: skip
            fresh = [run for run in runs if run.id not in set(kept)]
            parts = [self._table.loc[kept]] if kept else []
            if fresh or not parts:
                parts.append(_rows(fresh))
            self._seen = now
            self._table = pd.concat(parts).loc[[run.id for run in runs]]
            return self._table


def _rows(runs: Sequence[RunFolder]) -> pd.DataFrame:
    table = runs_table(runs)
    table["task"] = table["task"].astype("object").map(_last_part)
    extra = [_extra(run, problem) for run, problem in zip(runs, table["problem"])]
    return table.join(pd.DataFrame(extra, columns=list(EXTRA)).astype({"share": "float64"})).set_index("id", drop=False)


def _extra(run: RunFolder, problem: str) -> tuple[float | None, str, str]:
    status = run.read_status()
    share = min(status.step / status.total, 1.0) if status.total else None
    found = read_supervision(run.supervision_file) if status.state == QUEUED else None
    note = " ".join(filter(None, (status.error, problem))).replace(f"{run.path}/", "")  # every row would begin with it
    return share, note, ", ".join(found.waits_for) if found is not None else ""


def _last_part(task: object) -> object:
    """A task file by its name; its folder would fill the column."""
    return task.rsplit("/", 1)[-1] if isinstance(task, str) else task


def _signature(run: RunFolder) -> Signature:
    log = run.trace_file.with_name(run.trace_file.name + "-wal")  # where SQLite writes first
    files = (run.status_file, run.supervision_file, run.spec_file, run.exit_file, run.trace_file, log)
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)
