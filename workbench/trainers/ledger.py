"""Running means of metrics between two log points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Ledger:
    """Collects values per key; `take` gives their means and starts anew.

    interval: least joint-reward evaluations (env_step) between two training log points.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.last_step = 0
        self.sums: dict[str, tuple[float, int]] = {}

    def add(self, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            total, count = self.sums.get(key, (0.0, 0))
            self.sums[key] = (total + value, count + 1)

    def due(self, step: int) -> bool:
        return bool(self.sums) and step - self.last_step >= self.interval

    def take(self, step: int) -> dict[str, float]:
        means = {key: total / count for key, (total, count) in self.sums.items()}
        self.sums, self.last_step = {}, step
        return means

    def state(self) -> dict[str, Any]:
        return {"last_step": self.last_step, "sums": dict(self.sums)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.last_step = state["last_step"]
        self.sums = {key: (total, count) for key, (total, count) in state["sums"].items()}
