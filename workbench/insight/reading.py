"""One SELECT on a trace, for the analyses whose question the readers of `workbench.tracking.trace` do not answer.

Knows neither the tables nor what an analysis asks of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.tracking import trace


def query(path: str | Path, sql: str, values: Sequence[Any] = ()) -> pd.DataFrame:
    """The rows of one SELECT, columns as SQLite names them. Raises TraceError.

    The SQL function contains(text, part) finds `part`, which must be casefolded, in any upper or lower case: SQLite's
    own LIKE knows the case of ASCII letters only.
    """
    with trace.reading(Path(path)) as database:
        database.create_function("contains", 2, _contains, deterministic=True)
        cursor = database.execute(sql, tuple(values))
        columns = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
    cells = zip(*rows) if rows else ((),) * len(columns)
    return pd.DataFrame({name: list(cell) for name, cell in zip(columns, cells)})


def query_rows(path: str | Path, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of one SELECT as they come, where a table would cost more than the reading. Raises TraceError."""
    with trace.reading(Path(path)) as database:
        return database.execute(sql, tuple(values)).fetchall()


def query_integers(path: str | Path, sql: str, values: Sequence[Any] = ()) -> np.ndarray:
    """The one column of a SELECT as int64 [rows]. Raises TraceError."""
    rows = query_rows(path, sql, values)
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def _contains(text: str, part: str) -> bool:
    return part in text.casefold()
