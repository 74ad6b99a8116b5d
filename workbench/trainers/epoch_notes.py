"""What an epoch of training must not pass over in silence."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from workbench.config import TrainingConfig
from workbench.types import Node

NO_SECOND_TURN = (
    "No branch reached turn 2 in epoch {epoch}: every node's mean reward was above early_termination_threshold "
    "({threshold}); raise it or set it to None."
)
NO_REWARD = (
    "Nothing was learned in epoch {epoch}: the reward of each of its {joints} joint responses was None; "
    "check when the reward function returns None."
)


class EpochNotes:
    """Counts what was reached in the present epoch; `end` warns of what never was, once per run and kind."""

    def __init__(self, args: TrainingConfig) -> None:
        self.several_turns, self.threshold = args.num_turns > 1, args.early_termination_threshold
        self.second_turns = self.joints = self.scored = 0
        self.said: list[str] = []

    def add(self, node: Node) -> None:
        self.second_turns += node.turn == 2
        self.joints += len(node.rewards)
        self.scored += sum(reward is not None for reward in node.rewards)

    def end(self, epoch: int) -> None:
        """epoch: counted from 1."""
        if not self.scored:
            self._warn(NO_REWARD, epoch)
        elif self.several_turns and not self.second_turns:
            self._warn(NO_SECOND_TURN, epoch)
        self.second_turns = self.joints = self.scored = 0

    def _warn(self, text: str, epoch: int) -> None:
        if text not in self.said:
            self.said.append(text)
            warnings.warn(text.format(epoch=epoch, threshold=self.threshold, joints=self.joints), stacklevel=4)

    def state(self) -> dict[str, Any]:
        return {"second_turns": self.second_turns, "joints": self.joints, "scored": self.scored, "said": self.said}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.second_turns, self.joints, self.scored = state["second_turns"], state["joints"], state["scored"]
        self.said = list(state["said"])
