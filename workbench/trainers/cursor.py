"""Where a training is in its data: epoch, position, and the order of each epoch's items."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.rollout import derive_seed
from workbench.types import Item


class Cursor:
    """Walks `epochs` times over `items` items. done and total count items over all epochs."""

    def __init__(self, items: int, epochs: int, seed: int, shuffle: bool) -> None:
        self.items = items
        self.epochs = epochs
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        self.position = 0
        self._order: tuple[int, list[int]] | None = None

    @property
    def done(self) -> int:
        return self.epoch * self.items + self.position

    @property
    def total(self) -> int:
        return self.epochs * self.items

    @property
    def epoch_done(self) -> bool:
        return self.position >= self.items

    @property
    def finished(self) -> bool:
        return self.epoch >= self.epochs

    def index(self) -> int:
        """Dataset index of the present item."""
        if self._order is None or self._order[0] != self.epoch:
            order = list(range(self.items))
            if self.shuffle:
                random.Random(derive_seed(self.seed, "order", self.epoch)).shuffle(order)
            self._order = (self.epoch, order)
        return self._order[1][self.position]

    def advance(self) -> None:
        self.position += 1

    def next_epoch(self) -> None:
        self.epoch, self.position = self.epoch + 1, 0

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position, "items": self.items}

    def check(self, state: Mapping[str, int]) -> None:
        """Training can only go on with as many items as before."""
        if state["items"] != self.items:
            raise ValueError(
                f"The checkpoint was made with {state['items']} training items, but there are {self.items} now; "
                "resume with the same data."
            )

    def load_state(self, state: Mapping[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


def as_sequence(dataset: Any, name: str) -> Sequence[Item]:
    """A dataset with a length and rows that are mappings; None is empty, an iterable is read into memory."""
    if dataset is None:
        return ()
    wanted = "a list of items such as {'prompt': ...}, or a datasets.Dataset"
    if isinstance(dataset, (Mapping, str)) or not hasattr(dataset, "__iter__") or hasattr(dataset, "iloc"):
        raise ValueError(f"{name} must be {wanted}, got {type(dataset).__name__}.")
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        dataset = list(dataset)
    if len(dataset) and not isinstance(dataset[0], Mapping):
        raise ValueError(f"{name} must be {wanted}, but its first item is {dataset[0]!r}.")
    return dataset
