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
    handles: dict[int, LocalHandle] = {}
    slots = [i if isinstance(source, str) else id(source) for i, source in enumerate(sources)]
    for i, (slot, source, tokenizer) in enumerate(zip(slots, sources, tokenizers)):
        if slot not in handles:
            model, _ = load_source(source, tokenizer, plan.options, args.seed)
            updates = planned_updates * slots.count(slot)
            handles[slot] = LocalHandle(Critic(model, tokenizer, args, device, f"critic {i}", hidden_dim, updates))
        check_fit(source, handles[slot].worker.model, tokenizer, f"critic {i}", plan)
    return [handles[slot] for slot in slots]


def check_fit(source: Source, model: Any, tokenizer: PreTrainedTokenizerBase, name: str, plan: TeamPlan) -> None:
    """The critic reads its actor's token ids, so it must mean the same by them."""
    room = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > room:
        raise ModelError(
            f"{name} knows {room} tokens, but its actor's tokenizer has {len(tokenizer)}; "
            "use a critic that was made for the actor's tokenizer."
        )
    if not isinstance(source, str):
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
