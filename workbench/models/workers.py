"""A worker as plain data, and how it is built from that in whatever process it will live in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workbench.config import TrainingConfig
from workbench.models.critic import Critic
from workbench.models.language_model import LanguageModel
from workbench.models.loading import ModelError, ModelOptions, fit_embeddings, load_model
from workbench.models.policy import Policy
from workbench.models.shared import SharedPolicy

Source: TypeAlias = str | PreTrainedModel | Path
"""A model's name, a loaded model, or the file into which a loaded model was stored on its way to another process."""


@dataclass(frozen=True)
class WorkerPlan:
    """Everything one worker is made of. The same plan object listed twice means one worker."""

    kind: str  # a key of KINDS
    name: str  # how errors call it: "agent 0"
    source: Source
    tokenizer: PreTrainedTokenizerBase
    options: ModelOptions
    config: TrainingConfig
    device: torch.device
    planned_updates: int = 1
    head_dim: int | None = None  # hidden units of a separate critic's value head


def build_worker(plan: WorkerPlan) -> LanguageModel | Critic:
    """Load the model and wrap it. New weights (adapter, rows for new tokens) depend on config.seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.config.seed)
        model = _load(plan)
        if plan.options.special_tokens:
            fit_embeddings(model, plan.tokenizer)
    return KINDS[plan.kind](plan, model)


def _load(plan: WorkerPlan) -> PreTrainedModel:
    if isinstance(plan.source, str):
        return load_model(plan.source, plan.options)
    if isinstance(plan.source, Path):
        file = plan.source
        model: PreTrainedModel = unpacked(plan.name, lambda: torch.load(file, map_location="cpu", weights_only=False))
        return model
    return plan.source


def unpacked(name: str, read: Callable[[], Any]) -> Any:
    """What `read` returns, which unpickles parts of the worker of this name."""
    try:
        return read()
    except (AttributeError, ImportError) as error:  # what pickle raises for a class that it cannot find
        raise ModelError(
            f"{name} cannot be rebuilt in a process of its own ({error}); define its classes in a module that can "
            "be imported, not in the main script or a notebook."
        ) from error


def _policy(plan: WorkerPlan, model: PreTrainedModel) -> Policy:
    return Policy(model, plan.tokenizer, plan.config, plan.device, plan.name, plan.planned_updates)


def _shared_policy(plan: WorkerPlan, model: PreTrainedModel) -> SharedPolicy:
    return SharedPolicy(model, plan.tokenizer, plan.config, plan.device, plan.name, plan.planned_updates)  # type: ignore[arg-type]


def _reference(plan: WorkerPlan, model: PreTrainedModel) -> LanguageModel:
    # A model that was loaded elsewhere is also the agent's, who will change it.
    frozen = model if isinstance(plan.source, (str, Path)) else copy.deepcopy(model)
    return LanguageModel(frozen.requires_grad_(False), plan.tokenizer, plan.config, plan.device, plan.name)


def _critic(plan: WorkerPlan, model: PreTrainedModel) -> Critic:
    return Critic(
        model, plan.tokenizer, plan.config, plan.device, plan.name, plan.head_dim, plan.planned_updates  # type: ignore[arg-type]
    )  # fmt: skip


KINDS: dict[str, Callable[[WorkerPlan, Any], LanguageModel | Critic]] = {
    "policy": _policy,
    "shared": _shared_policy,  # with a value head, for IAC in one model
    "reference": _reference,
    "critic": _critic,
}
