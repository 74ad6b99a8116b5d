"""Starts the workers of one trainer: policies, references and critics, each on its device."""

from __future__ import annotations

from workbench import parallel
from workbench.config import TrainingConfig
from workbench.models.devices import place
from workbench.parallel.handles import Handle
from workbench.parallel.team import Team
from workbench.trainers.critics import CriticRequest, critic_workers
from workbench.trainers.setup import TeamPlan, load_tokenizers, team_workers


def start_workers(
    plan: TeamPlan, args: TrainingConfig, planned_updates: int, policy_kind: str, request: CriticRequest
) -> tuple[Team, list[Handle]]:
    """The team and the separate critics, loaded side by side once everything about them is known to fit.

    policy_kind: a key of workbench.models.workers.KINDS.
    """
    placement = place(args, len(plan.sources), len(request.sources))
    tokenizers = load_tokenizers(plan)
    policies, references = team_workers(plan, tokenizers, args, placement, planned_updates, policy_kind)
    critics = critic_workers(request, plan, tokenizers, args, placement)
    # The references first: they are copied from loaded models, which a policy prepares for training.
    handles = iter(parallel.start([*references, *policies, *critics], args.parallel_training))
    frozen = [next(handles) for _ in references]
    learning = [next(handles) for _ in policies]
    return Team(learning, frozen), list(handles)
