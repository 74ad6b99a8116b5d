"""The write-only interface between a trainer and every place its numbers go."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from workbench.types import NodeRecord

log = logging.getLogger(__name__)
FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"
"""Final states of a tracked run, MLflow's words: ran to the end, raised, stopped on request."""


class Tracker(Protocol):
    """Receives everything a trainer reports, in order. Implementations never read back."""

    def begin(self, params: Mapping[str, Any]) -> None:
        """Open the run; params is flat: the algorithm, its configuration, the models."""

    def nodes(self, records: Sequence[NodeRecord]) -> None:
        """The nodes of one item's rollout tree, parents before children."""

    def normalized(self, rows: Sequence[tuple[int, int, int, float]]) -> None:
        """Later knowledge: (node_id, agent, k, normalised advantage) set at the update (actor-critic)."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """One log point at x = env_step."""

    def artifacts(self, folder: Path) -> None:
        """A finished folder (the saved models) that belongs to the run; may come after `end`."""

    def mark(self) -> dict[str, Any]:
        """The present position, JSON-able; stored in a checkpoint."""

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Called instead of `begin` when a run resumes: continue the marked run, forget what came after."""

    def end(self, state: str) -> None:
        """Close the run in FINISHED, FAILED or KILLED."""


class NullTracker:
    """Forgets everything; also the base of trackers that care about a part."""

    def begin(self, params: Mapping[str, Any]) -> None: ...
    def nodes(self, records: Sequence[NodeRecord]) -> None: ...
    def normalized(self, rows: Sequence[tuple[int, int, int, float]]) -> None: ...
    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...
    def artifacts(self, folder: Path) -> None: ...
    def mark(self) -> dict[str, Any]:
        return {}

    def rewind(self, mark: Mapping[str, Any]) -> None: ...
    def end(self, state: str) -> None: ...


class TrackerGroup(NullTracker):
    """Several trackers as one; `mark` holds one entry per tracker class name."""

    def __init__(self, trackers: Sequence[Tracker] = ()) -> None:
        self.trackers: list[Tracker] = list(trackers)

    def begin(self, params: Mapping[str, Any]) -> None:
        for tracker in self.trackers:
            tracker.begin(params)

    def nodes(self, records: Sequence[NodeRecord]) -> None:
        for tracker in self.trackers:
            tracker.nodes(records)

    def normalized(self, rows: Sequence[tuple[int, int, int, float]]) -> None:
        for tracker in self.trackers:
            tracker.normalized(rows)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            tracker.metrics(step, values)

    def artifacts(self, folder: Path) -> None:
        for tracker in self.trackers:
            tracker.artifacts(folder)

    def mark(self) -> dict[str, Any]:
        return {type(tracker).__name__: tracker.mark() for tracker in self.trackers}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        for tracker in self.trackers:
            tracker.rewind(mark.get(type(tracker).__name__, {}))

    def end(self, state: str) -> None:
        for tracker in self.trackers:
            tracker.end(state)


class Monitor(Protocol):
    """What a trainer tells whoever watches it live, and the one thing it asks back."""

    def phase(self, name: str) -> None:
        """load, rollout, reward, update, eval or save."""

    def progress(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """`step` of `total` items are done; metrics is the latest log point."""

    def stop_requested(self) -> bool:
        """True: write a checkpoint and leave after this item."""


class NullMonitor:
    """Nobody watches."""

    def phase(self, name: str) -> None: ...
    def progress(self, step: int, total: int, metrics: Mapping[str, float]) -> None: ...
    def stop_requested(self) -> bool:
        return False
