"""The calling contracts of formatters and external transitions, checked once when a trainer is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from workbench.types import Item, Prompt

Formatter = Callable[..., Prompt]


def default_formatter(item: Item, external_prompts: Prompt | None = None) -> Prompt:
    """`item["prompt"]`, or what the transition returned."""
    if external_prompts is not None:
        return external_prompts
    if "prompt" not in item:
        raise ValueError(f"An item has no column 'prompt' (it has {', '.join(map(repr, item))}); pass formatters=.")
    return item["prompt"]


def resolve_formatters(formatters: Formatter | Sequence[Formatter] | None, num_agents: int) -> list[Formatter]:
    """One formatter per agent from None, one callable, or a sequence."""
    if formatters is None:
        return [default_formatter] * num_agents
    if callable(formatters):
        formatters = [formatters] * num_agents
    if not isinstance(formatters, Sequence) or len(formatters) != num_agents or not all(map(callable, formatters)):
        raise ValueError(f"formatters must be one callable or {num_agents} (one per agent), got {formatters!r}.")
    for agent, formatter in enumerate(formatters):
        _check_call(formatter, f"The formatter of agent {agent}", ({},), {})
    return list(formatters)


def format_prompt(formatter: Formatter, item: Item, external: Prompt | None, where: str) -> Prompt:
    """The prompt of one agent. After a transition the item's "prompt" is what the transition returned."""
    if external is not None:
        item = {**item, "prompt": external}
    signature = _signature(formatter)
    named = external is not None and signature is not None and "external_prompts" in signature.parameters
    prompt = formatter(item, external_prompts=external) if named else formatter(item)
    return checked_prompt(prompt, f"The formatter of {where}")


def checked_prompt(prompt: Any, source: str) -> Prompt:
    """Text, or a list of chat messages; anything else is an error that names its source."""
    is_chat = isinstance(prompt, list) and all(isinstance(m, dict) and "role" in m and "content" in m for m in prompt)
    if isinstance(prompt, str) or (is_chat and prompt):
        return prompt
    raise ValueError(f"{source} returned {prompt!r}; return text or a list of chat messages (role, content).")


TRANSITION_ARGUMENTS = (
    "prompt", "agent_completions", "num_agents", "prompt_history_per_agent", "response_history_per_agent",
)  # fmt: skip


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """None for the builtins that have no signature."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _check_call(function: Callable[..., Any], what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """ValueError when the function cannot be called like that; nothing is called."""
    signature = _signature(function)
    try:
        if signature is not None:
            signature.bind(*args, **kwargs)
    except TypeError as error:
        called = f"one item{' and' if kwargs else ''}" if args else ""
        named = ", ".join(kwargs)
        raise ValueError(
            f"{what} cannot be called with {called}{named}: {error}; let it take them or **kwargs."
        ) from None


class Transition:
    """The user's external_transition: joint response of one branch -> n prompts of the next turn."""

    def __init__(self, function: Callable[..., Any], num_agents: int) -> None:
        if not callable(function):
            raise ValueError(f"external_transition must be callable, got {function!r}.")
        self.function = function
        self.num_agents = num_agents
        signature = _signature(function)
        self.extras = set(signature.parameters if signature else ()) & {"item", "rewards"}
        _check_call(function, "external_transition", (), dict.fromkeys([*TRANSITION_ARGUMENTS, *self.extras]))

    def __call__(
        self,
        item: Item,
        completions: list[str],
        prompt_history: list[list[str]],
        response_history: list[list[str]],
        rewards: list[float | None],
        where: str,
    ) -> list[Prompt]:
        """Histories [n][turns so far] hold what the models saw and wrote; rewards [n] of this branch."""
        extras = {"item": item, "rewards": rewards}
        prompts = self.function(
            prompt=item.get("prompt", ""),
            agent_completions=completions,
            num_agents=self.num_agents,
            prompt_history_per_agent=prompt_history,
            response_history_per_agent=response_history,
            **{name: extras[name] for name in self.extras},
        )
        if not isinstance(prompts, (list, tuple)) or len(prompts) != self.num_agents:
            raise ValueError(
                f"external_transition returned {prompts!r} for {where}; "
                f"return {self.num_agents} prompts, one per agent."
            )
        return [checked_prompt(p, f"external_transition for {where}") for p in prompts]
