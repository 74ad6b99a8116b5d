"""The algorithms by name. Importing this is cheap; a trainer class loads when it is asked for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from workbench import config
from workbench.fields import did_you_mean


@dataclass(frozen=True)
class Algorithm:
    """One row of the registry."""

    name: str
    config: type[config.TrainingConfig]
    trainer: str  # "module:class"
    family: str

    def load_trainer(self) -> Any:
        """The trainer class; imports torch."""
        module, _, name = self.trainer.partition(":")
        return getattr(importlib.import_module(module), name)


_REINFORCE = "workbench.trainers.reinforce"
_ACTOR_CRITIC = "workbench.trainers.actor_critic"
ALGORITHMS = {
    a.name: a
    for a in (
        Algorithm("mareinforce", config.MAREINFORCEConfig, f"{_REINFORCE}:MAREINFORCETrainer", "reinforce"),
        Algorithm("magrpo", config.MAGRPOConfig, f"{_REINFORCE}:MAGRPOTrainer", "reinforce"),
        Algorithm("marloo", config.MARLOOConfig, f"{_REINFORCE}:MARLOOTrainer", "reinforce"),
        Algorithm("maremax", config.MAReMaxConfig, f"{_REINFORCE}:MAReMaxTrainer", "reinforce"),
        Algorithm("maac", config.MAACConfig, f"{_ACTOR_CRITIC}:MAACTrainer", "actor-critic"),
        Algorithm("iac", config.IACConfig, f"{_ACTOR_CRITIC}:IACTrainer", "actor-critic"),
    )
}


def algorithm(name: str) -> Algorithm:
    """The registered algorithm, or ValueError that lists them."""
    if name not in ALGORITHMS:
        raise ValueError(
            f"There is no algorithm {name!r}{did_you_mean(name, list(ALGORITHMS))}; there are {', '.join(ALGORITHMS)}."
        )
    return ALGORITHMS[name]
