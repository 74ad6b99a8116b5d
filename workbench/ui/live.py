"""What keeps a page alive: how often it looks, and what it has read so far."""

from __future__ import annotations

import threading
from pathlib import Path

import streamlit as st

from workbench.insight.curves import Curves, advance
from workbench.runs.workspace import ACTIVE, RunStatus
from workbench.tracking.trace import TraceError

TICK_SECONDS = 2.0
CATCH_UP_SECONDS = 0.5


def interval(status: RunStatus, behind: bool = False) -> float | None:
    """`run_every` of a fragment: none once nothing will change any more. behind: not everything written is read yet."""
    if behind:
        return CATCH_UP_SECONDS
    return TICK_SECONDS if status.state in ACTIVE else None


class CurveStore:
    """The curves of one trace, read on where the last reader of this server stopped; shared by all its sessions."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._curves = Curves()
        self._lock = threading.Lock()

    def read(self) -> Curves:
        """What was read so far and one portion more; nothing for a run that has not begun. Raises TraceError for a
        damaged trace."""
        if not self.file.exists():
            return Curves()
        with self._lock:
            self._curves = advance(self.file, self._curves)
            return self._curves


@st.cache_resource(max_entries=16, show_spinner=False)
def curve_store(file: str) -> CurveStore:
    """The store of one trace file."""
    return CurveStore(Path(file))


__all__ = ["TICK_SECONDS", "CurveStore", "TraceError", "curve_store", "interval"]
