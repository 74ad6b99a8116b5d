"""Which critics an actor-critic trainer needs, checked before loading, then loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.models.critic import Critic
from workbench.models.devices import resolve_device
from workbench.models.loading import ModelError, load_tokenizer
from workbench.parallel.handles import LocalHandle
from workbench.trainers.setup import Source, TeamPlan, load_source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def critic_sources(critic_model: Source | None, critics: Sequence[Source] | None, count: int, who: str) -> list[Source]:
    """`count` sources from one source or a list; ValueError names the argument to change."""
    if (critic_model is None) == (critics is None):
        given = "neither is" if critics is None else "both are"
        raise ValueError(f"{who} needs critic_model or critics, but {given} given.")
    if critics is None:
        assert critic_model is not None
        return [critic_model] * count
    if isinstance(critics, str) or len(critics) != count:
        have = "a name" if isinstance(critics, str) else f"{len(critics)} critics"
        raise ValueError(f"critics must be a list of {count} for {who}, got {have}.")
    return list(critics)


def build_critics(
    sources: Sequence[Source],
    tokenizers: Sequence[PreTrainedTokenizerBase],
    plan: TeamPlan,
    args: Any,
    hidden_dim: int | None,
    planned_updates: int,
) -> list[LocalHandle]:
    """One handle per source; a loaded object listed several times is one critic with one optimizer."""
    device = resolve_device(args.critic_devices or args.agent_devices, "critic_devices")
    if any(source is agent for source in sources for agent in plan.sources if not isinstance(agent, str)):
        raise ValueError("A critic cannot be the very model object of an agent; load it a second time.")
    handles: dict[int, LocalHandle] = {}
    slots = [i if isinstance(source, str) else id(source) for i, source in enumerate(sources)]
    for i, (slot, source, tokenizer) in enumerate(zip(slots, sources, tokenizers)):
        if slot not in handles:
            model, _ = load_source(source, tokenizer, plan.options, args.seed)
            check_fit(source, model, tokenizer, f"critic {i}", plan)
            critic = Critic(model, tokenizer, args, device, f"critic {i}", hidden_dim, planned_updates)
            handles[slot] = LocalHandle(critic)
    return [handles[slot] for slot in slots]


def check_fit(source: Source, model: Any, tokenizer: PreTrainedTokenizerBase, name: str, plan: TeamPlan) -> None:
    """The critic reads its actor's token ids, so it must mean the same by them."""
    room = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > room:
        raise ModelError(
            f"{name} knows {room} tokens, but its actor's tokenizer has {len(tokenizer)}; "
            "use a critic that was made for the actor's tokenizer."
        )
    if isinstance(source, str) and load_tokenizer(source, plan.options).get_vocab() != tokenizer.get_vocab():
        raise ModelError(
            f"{name} ({source}) has another vocabulary than its actor's tokenizer; use one that shares it."
        )
