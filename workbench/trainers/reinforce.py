"""The REINFORCE family: MAREINFORCE, MAGRPO, MARLOO, MAReMax.

One estimator; the four differ in the baseline that is subtracted from a group's returns, which
their configurations name (`advantage_mode`) and estimators.BASELINES holds.
"""

from __future__ import annotations

from typing import Any

import torch

from workbench import estimators, objectives
from workbench.config import MAGRPOConfig, MAREINFORCEConfig, MAReMaxConfig, MARLOOConfig
from workbench.rollout import as_tensor
from workbench.trainers.base import Trainer
from workbench.types import Node, RolloutTree, Sample

__all__ = [
    "MAGRPOConfig",
    "MAGRPOTrainer",
    "MAREINFORCEConfig",
    "MAREINFORCETrainer",
    "MARLOOConfig",
    "MARLOOTrainer",
    "MAReMaxConfig",
    "MAReMaxTrainer",
]


class MAGRPOTrainer(Trainer):
    """Group-relative policy optimization for teams: the baseline is the group's mean return.

    At every node each agent samples K completions, the joint responses get one shared reward each,
    returns flow back from the leaves, and each agent's log-probabilities are weighted with
    (return - baseline). Source: the MAGRPO section of the multi-agent REINFORCE page.
    """

    config_class = MAGRPOConfig
    algorithm_name = "magrpo"

    def _joint_mode(self) -> str:
        return str(self.args.joint_mode)

    def _tree_samples(self, tree: RolloutTree, first_id: int) -> list[list[Sample]]:
        return [self._node_samples(node, first_id + i) for i, node in enumerate(tree.nodes)]

    def _node_samples(self, node: Node, node_id: int) -> list[Sample]:
        samples = [self._sample(node, node_id, agent) for agent in range(self.num_agents)]
        return [s for s in samples if s is not None]

    def _sample(self, node: Node, node_id: int, agent: int) -> Sample | None:
        returns = self._completion_returns(node, agent)
        scored = ~returns.isnan()
        if not scored.any():
            return None
        returns = returns[scored]
        baseline = estimators.BASELINES[self.args.advantage_mode](returns)
        advantages = returns - baseline
        weights = estimators.normalized(advantages) if self.args.advantage_normalization else advantages
        ks = scored.nonzero().flatten().tolist()
        return Sample(
            agent=agent,
            item=node.item,
            turn=node.turn,
            node_id=node_id,
            ks=tuple(ks),
            completions=tuple(node.completions[agent][k] for k in ks),
            returns=_numbers(returns),
            baselines=_numbers(baseline),
            advantages=_numbers(advantages),
            weights=_numbers(weights),
        )

    def _completion_returns(self, node: Node, agent: int) -> torch.Tensor:
        """[K], NaN where unscored; cross sums taken, KL subtracted."""
        completions = node.completions[agent]
        returns = objectives.completion_returns(
            as_tensor(node.returns), torch.tensor(node.responses), agent, len(completions)
        )
        if not self.args.reference_kl_enabled:
            return returns
        memberships = len(node.responses) // len(completions)
        kl = as_tensor([c.kl for c in completions])
        return objectives.penalised_returns(returns, kl, self.args.reference_kl_coef, memberships)


class MAREINFORCETrainer(MAGRPOTrainer):
    """REINFORCE on raw returns, without a baseline."""

    config_class = MAREINFORCEConfig
    algorithm_name = "mareinforce"


class MARLOOTrainer(MAGRPOTrainer):
    """Leave-one-out: the baseline is the mean return of the group's other completions."""

    config_class = MARLOOConfig
    algorithm_name = "marloo"


class MAReMaxTrainer(MAGRPOTrainer):
    """Group maximum: the baseline is the group's best return, so no advantage is positive."""

    config_class = MAReMaxConfig
    algorithm_name = "maremax"


def _numbers(values: torch.Tensor) -> tuple[float, ...]:
    numbers: list[Any] = values.tolist()
    return tuple(numbers)
