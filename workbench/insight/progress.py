"""How fast a run advances and when it will be done, from what its status says and what a reader saw before."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.runs.workspace import RUNNING, RunStatus

STALLED_SECONDS = 60.0  # without a heartbeat; one long generation keeps beating, since another thread does it


@dataclass(frozen=True)
class Progress:
    """share: of all items, 0 to 1; None before the total is known. seconds_left, items_per_minute: None when unknown.
    stalled: it says running, but has not given a sign of life for a minute."""

    share: float | None
    seconds_left: float | None
    items_per_minute: float | None
    stalled: bool


def progress(status: RunStatus, now: float, seen: tuple[float, int] | None = None) -> Progress:
    """seen: (time, step) when this reader first looked; the speed since then is that of the present process, while the
    one since `started` also counts loading and, after a resume, pauses."""
    share = min(status.step / status.total, 1.0) if status.total else None
    stalled = status.state == RUNNING and status.heartbeat is not None and now - status.heartbeat > STALLED_SECONDS
    since, first = seen or (status.started or now, 0)
    if status.state != RUNNING or status.step <= first or now <= since:
        return Progress(share, None, None, stalled)
    rate = (status.step - first) / (now - since)
    return Progress(share, (status.total - status.step) / rate, rate * 60, stalled)
