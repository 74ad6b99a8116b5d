"""The metrics of a run as curves: read increment by increment, thinned out and smoothed for a chart.

A reader keeps a `Curves` value and asks `advance` for the next one; only rows written since then are
read. Training and evaluation log at the same env_step, so the place to go on is a row number, never a step.
This module knows neither charts nor what is good news; what a key means stands in metric_names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.insight.reading import query_integers, query_rows

MAX_POINTS = 1_500  # more make a chart slow and show nothing more on any screen
MAX_ROWS = 50_000  # of one `advance`: bounds the time of a live tick; the rest comes with the next ones
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Row = tuple[int, int, str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One metric in the order it was logged, all arrays [n]. Steps are env_steps, times seconds since the epoch."""

    key: str
    steps: Ints
    values: Floats  # NaN and infinities as they were logged
    times: Floats

    @property
    def last(self) -> float:
        return float(self.values[-1])


EMPTY = Curve("", np.empty(0, np.int64), np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """All curves read so far. `behind`: rows that were there but not read yet; `restarted`: a resumed run took rows
    back, so this was read from the beginning."""

    curves: Mapping[str, Curve] = field(default_factory=dict)
    last_row: Row | None = None  # (rowid, step, key, time) of the last row read
    behind: int = 0
    restarted: bool = False

    @property
    def keys(self) -> list[str]:
        return sorted(self.curves)

    @property
    def last_step(self) -> int:
        return max((int(curve.steps[-1]) for curve in self.curves.values()), default=0)


def advance(path: str | Path, known: Curves | None = None, max_rows: int = MAX_ROWS) -> Curves:
    """The curves with the rows written since `known`, at most `max_rows` of them. Raises TraceError.

    A resumed run deletes what it had written after its checkpoint and uses the row numbers again; then the
    row that was read last is gone or another one, and everything is read anew.
    """
    known = known or Curves()
    restarted = known.last_row is not None and _row(path, known.last_row[0]) != known.last_row
    start = Curves(restarted=True) if restarted else replace(known, restarted=False)
    after = start.last_row[0] if start.last_row else 0
    rows = query_rows(
        path,
        "SELECT rowid, step, key, value, time FROM metrics WHERE rowid > ? ORDER BY rowid LIMIT ?",
        (after, max_rows),
    )
    if not rows:
        return replace(start, behind=0)
    rowid, step, key, _, at = rows[-1]
    newest = int(query_integers(path, "SELECT coalesce(max(rowid), 0) FROM metrics")[0])
    longer = _extended(start.curves, rows)
    return replace(start, curves=longer, last_row=(rowid, step, key, at), behind=max(newest - rowid, 0))


def _row(path: str | Path, rowid: int) -> Row | None:
    found = query_rows(path, "SELECT rowid, step, key, time FROM metrics WHERE rowid = ?", (rowid,))
    return found[0] if found else None


def _extended(curves: Mapping[str, Curve], rows: Sequence[tuple[Any, ...]]) -> dict[str, Curve]:
    _, steps, keys, values, times = zip(*rows)
    codes, names = pd.factorize(np.array(keys, dtype=object))
    columns = np.array(steps, np.int64), np.array(values, np.float64), np.array(times, np.float64)
    order = np.argsort(codes, kind="stable")
    cuts = np.cumsum(np.bincount(codes))[:-1]
    parts = zip(*(np.split(column[order], cuts) for column in columns))
    fresh = {str(name): Curve(str(name), *part) for name, part in zip(names, parts)}
    return {**curves, **{key: _joined(curves[key], new) if key in curves else new for key, new in fresh.items()}}


def _joined(old: Curve, new: Curve) -> Curve:
    return Curve(
        old.key,
        np.concatenate([old.steps, new.steps]),
        np.concatenate([old.values, new.values]),
        np.concatenate([old.times, new.times]),
    )


# --- for a chart ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """What a chart draws of one curve: arrays [shown], of `total` points."""

    key: str
    steps: Ints
    times: Floats
    values: Floats
    smoothed: Floats
    total: int

    @property
    def shown(self) -> int:
        return len(self.values)

    def frame(self) -> pd.DataFrame:
        """Columns key, step, time, value, smoothed: the data to download."""
        columns = {"step": self.steps, "time": self.times, "value": self.values, "smoothed": self.smoothed}
        return pd.DataFrame({"key": self.key, **columns})


def line(curve: Curve, smoothing: float = 0.0, limit: int = MAX_POINTS) -> Line:
    """The curve thinned out to `limit` points, with the average of all its points beside them (see `smooth`)."""
    kept = decimate(curve.values, limit)
    smoothed = smooth(curve.values, smoothing)
    return Line(curve.key, curve.steps[kept], curve.times[kept], curve.values[kept], smoothed[kept], len(curve.values))


def decimate(values: Floats, limit: int = MAX_POINTS) -> Ints:
    """Which of the values [n] to draw: at most `limit` indices, ascending.

    Equal buckets keep their least and greatest finite value and their first NaN and first infinity, so that no
    spike and no missing number vanishes; first and last are always kept. Raises ValueError for a limit below 6.
    """
    if limit < 6:
        raise ValueError(f"limit must be at least 6 (first, last and one bucket of four), got {limit}.")
    count = len(values)
    if count <= limit:
        return np.arange(count)
    nan: NDArray[np.bool_] = np.isnan(values)
    infinite: NDArray[np.bool_] = np.isinf(values)
    odd = [marked for marked in (nan, infinite) if marked.any()]
    width = -(-count // ((limit - 2) // (2 + len(odd))))
    finite: NDArray[np.bool_] = np.isfinite(values)
    low = _in_buckets(np.where(finite, values, np.inf), width, np.inf).argmin(axis=1)
    high = _in_buckets(np.where(finite, values, -np.inf), width, -np.inf).argmax(axis=1)
    some = _in_buckets(finite, width, False).any(axis=1)
    starts = np.arange(0, count, width)
    picks = [(starts + low)[some], (starts + high)[some]]
    for marked in odd:
        rows = _in_buckets(marked, width, False)
        picks.append((starts + rows.argmax(axis=1))[rows.any(axis=1)])
    return np.unique(np.concatenate([[0, count - 1], *picks]))


def _in_buckets(values: NDArray[Any], width: int, fill: float) -> NDArray[Any]:
    """[n] -> [buckets, width], the last bucket filled up."""
    missing = np.full(-len(values) % width, fill, values.dtype)
    return np.concatenate([values, missing]).reshape(-1, width)


def smooth(values: Floats, weight: float) -> Floats:
    """Exponential moving average [n]: a value `d` points back counts weight**d, and the weights seen sum to 1.

    0 = the values themselves. What is not finite is passed over and leaves a NaN at its own place.
    Raises ValueError for a weight outside [0, 1).
    """
    if not 0 <= weight < 1:
        raise ValueError(f"smoothing must be at least 0 and below 1, got {weight}.")
    known = pd.Series(values).where(np.isfinite(values))
    average = known.ewm(alpha=1 - weight, adjust=True, ignore_na=True).mean()
    return average.where(known.notna()).to_numpy()


def table(curves: Curves, keys: Sequence[str], smoothing: float = 0.0, limit: int = MAX_POINTS) -> pd.DataFrame:
    """The lines of several keys below each other (see Line.frame); keys that were never logged are left out."""
    frames = [line(curves.curves[key], smoothing, limit).frame() for key in keys if key in curves.curves]
    return pd.concat(frames or [line(EMPTY).frame()], ignore_index=True)
