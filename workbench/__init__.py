"""Multi-agent reinforcement learning for teams of language models.

The public names are importable from here and load on first use: `import workbench` is cheap and
does not import torch.
"""

from __future__ import annotations

import importlib
from typing import Any

_REINFORCE, _ACTOR_CRITIC = "workbench.trainers.reinforce", "workbench.trainers.actor_critic"
_HOMES = {
    "MAREINFORCEConfig": "workbench.config",
    "MAGRPOConfig": "workbench.config",
    "MARLOOConfig": "workbench.config",
    "MAReMaxConfig": "workbench.config",
    "MAACConfig": "workbench.config",
    "IACConfig": "workbench.config",
    "MAREINFORCETrainer": _REINFORCE,
    "MAGRPOTrainer": _REINFORCE,
    "MARLOOTrainer": _REINFORCE,
    "MAReMaxTrainer": _REINFORCE,
    "MAACTrainer": _ACTOR_CRITIC,
    "IACTrainer": _ACTOR_CRITIC,
    "RewardProcessors": "workbench.rewards",
    "Task": "workbench.tasks",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
