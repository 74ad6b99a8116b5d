"""The optimizer side of a worker: one AdamW with its schedule, clipping and saved state."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import get_scheduler

from workbench.config import TrainingConfig
from workbench.models.loading import ModelError


class TrainingDiverged(RuntimeError):
    """A loss or gradient became NaN or infinite; the weights are still those before the step."""


class Resumable(abc.ABC):
    """A worker whose learning can be put aside in a file and taken up again."""

    @abc.abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything that learning changes: weights, optimizer, schedule."""

    @abc.abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""

    def write_state(self, file: Path) -> None:
        """`state` in a file."""
        torch.save(self.state(), file)

    def read_state(self, file: Path) -> None:
        """Inverse of `write_state`."""
        self.load_state(torch.load(file, map_location="cpu", weights_only=True))


class Learner:
    """Steps the trainable parameters of one model, given as the modules it is made of.

    planned_updates: optimizer steps expected in the run, for schedules that end.
    """

    def __init__(
        self,
        modules: Sequence[torch.nn.Module],
        config: TrainingConfig,
        learning_rate: float,
        planned_updates: int,
        name: str,
    ) -> None:
        self.config = config
        self.learning_rate = learning_rate
        self.parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
        if not self.parameters:
            raise ModelError(
                f"{name} has no trainable parameter (a frozen adapter?); load the adapter with is_trainable=True "
                "or pass a model whose parameters require gradients."
            )
        # One fused pass over the parameters: on a small model the plain loop costs as much as its backward pass.
        fused = self.parameters[0].device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=learning_rate, weight_decay=config.weight_decay, fused=fused
        )
        self.scheduler = get_scheduler(
            config.lr_scheduler, self.optimizer, config.warmup_steps, max(planned_updates, 1)
        )

    def clear(self) -> None:
        """Forget the accumulated gradient."""
        self.optimizer.zero_grad(set_to_none=True)

    def clip(self) -> float:
        """Clip the accumulated gradient; returns its norm before clipping, which may be NaN or infinite."""
        limit = self.config.max_grad_norm or math.inf
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, limit))

    def step(self) -> float:
        """One optimizer step; returns the learning rate it used."""
        learning_rate = float(self.scheduler.get_last_lr()[0])
        self.optimizer.step()
        self.scheduler.step()
        return learning_rate

    def state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`, with the learning rate and weight decay of the present configuration."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict({k: v for k, v in state["scheduler"].items() if k != "base_lrs"})
        factor = self.scheduler.lr_lambdas[0](self.scheduler.last_epoch)
        for group in self.optimizer.param_groups:
            group.update(initial_lr=self.learning_rate, lr=self.learning_rate * factor)
            group["weight_decay"] = self.config.weight_decay
        self.scheduler._last_lr = [group["lr"] for group in self.optimizer.param_groups]
