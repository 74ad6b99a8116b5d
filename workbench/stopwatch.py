"""Seconds per phase of the training loop, and the monitor that is told about each phase."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

from workbench.tracking.base import Monitor, NullMonitor


class Stopwatch:
    """`with watch("rollout"): ...` adds to `watch.seconds["rollout"]`."""

    def __init__(self) -> None:
        self.monitor: Monitor = NullMonitor()
        self.seconds: dict[str, float] = defaultdict(float)
        self._evaluating = False
        self.tokens = 0  # generated since the last `take`

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        if self._evaluating:  # an evaluation's rollouts are neither training time nor another phase
            yield
            return
        self.monitor.phase(phase)
        self._evaluating = phase == "eval"
        start = time.perf_counter()
        try:
            yield
        finally:
            self._evaluating = False
            self.seconds[phase] += time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """Seconds and generation speed since the last call, as metrics."""
        seconds, self.seconds = self.seconds, defaultdict(float)
        tokens, self.tokens = self.tokens, 0
        times = {f"time/{phase}_s": seconds[phase] for phase in ("rollout", "reward", "update")}
        return times | {"tokens_per_s": tokens / seconds["rollout"] if seconds["rollout"] else 0.0}
