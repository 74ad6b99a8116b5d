"""Which critics an actor-critic trainer needs, checked before anything loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.models.critic import check_room
from workbench.models.devices import Placement
from workbench.models.loading import ModelError, load_tokenizer
from workbench.models.workers import WorkerPlan
from workbench.trainers.setup import Source, TeamPlan, check_one_place, model_slots

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def critic_sources(
    critic_model: Source | None, critics: Sequence[Source] | None, count: int, who: str, agents: Sequence[Source] = ()
) -> list[Source]:
    """`count` sources from one source or a list; ValueError names the argument to change."""
    if (critic_model is None) == (critics is None):
        given = "neither is" if critics is None else "both are"
        raise ValueError(f"{who} needs critic_model or critics, but {given} given.")
    if critics is not None and (not isinstance(critics, (list, tuple)) or len(critics) != count):
        have = (
            f"{len(critics)} critics"
            if isinstance(critics, (list, tuple))
            else ("a name" if isinstance(critics, str) else type(critics).__name__)
        )
        raise ValueError(f"critics must be a list of {count} for {who}, got {have}.")
    sources = [critic_model] * count if critics is None else list(critics)
    for source in sources:
        if not isinstance(source, str) and not hasattr(source, "get_input_embeddings"):
            raise ValueError(f"A critic must be a model name or a loaded model, got {source!r}.")
        if any(source is agent for agent in agents if not isinstance(agent, str)):
            raise ValueError("A critic cannot be the very model object of an agent; load it a second time.")
    return [source for source in sources if source is not None]


@dataclass(frozen=True)
class CriticRequest:
    """The separate critics of a trainer; empty where there are none. Critic i reads with agent i's tokenizer."""

    sources: Sequence[Source] = ()
    planned_updates: int = 0  # optimizer steps of one critic
    head_dim: int | None = None  # hidden units of the value head, None = linear


def critic_workers(
    request: CriticRequest,
    plan: TeamPlan,
    tokenizers: Sequence[PreTrainedTokenizerBase],
    args: Any,
    placement: Placement,
) -> list[WorkerPlan]:
    """One plan per source; a loaded object listed several times is one critic with one optimizer."""
    slots = model_slots(request.sources)
    plans: dict[int, WorkerPlan] = {}
    for i, (slot, source, tokenizer, device) in enumerate(zip(slots, request.sources, tokenizers, placement.critics)):
        name, updates = f"critic {i}", request.planned_updates * slots.count(slot)
        check_vocabulary(source, tokenizer, name, plan)
        made = WorkerPlan("critic", name, source, tokenizer, plan.options, args, device, updates, request.head_dim)
        check_one_place(plans.setdefault(slot, made), made, "critics")
    return [plans[slot] for slot in slots]


def check_vocabulary(source: Source, tokenizer: PreTrainedTokenizerBase, name: str, plan: TeamPlan) -> None:
    """The critic reads its actor's token ids, so it must mean the same by them."""
    if not isinstance(source, str):
        if not plan.options.special_tokens:  # else room is made for them
            check_room(source, tokenizer, name)
        return
    own = load_tokenizer(source, plan.options)
    if plan.options.special_tokens:
        own.add_special_tokens(dict(plan.options.special_tokens))
    if own.get_vocab() != tokenizer.get_vocab():
        raise ModelError(
            f"{name} ({source}) has another vocabulary than its actor's tokenizer; use one that shares it."
        )


def head_width(model_config: dict[str, Any], used: bool) -> int | None:
    """Takes `critic_value_head_hidden_dim` out of a model_config; refused where no separate critic uses it."""
    key = "critic_value_head_hidden_dim"
    width = model_config.pop(key, None)
    if width is None:
        return None
    if not used:
        raise ModelError(f"model_config[{key!r}] has no effect without a separate critic; remove it.")
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ModelError(f"model_config[{key!r}] must be a whole number of at least 1, got {width!r}.")
    return width
