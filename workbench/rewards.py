"""How the user's reward function is called, checked and processed.

The function is called once per node with one list of J completions per agent. Which further
arguments it gets is read from its signature before training, never found out by trying.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from workbench.types import Item

CONTEXT = ("prompts", "batch_items")
Rewards = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class RewardProcessor:
    """A chain of float -> float steps; each method returns a longer chain."""

    steps: tuple[Callable[[float], float], ...] = ()

    def __call__(self, reward: float) -> float:
        for step in self.steps:
            reward = step(reward)
        return reward

    def scale(self, factor: float = 1.0) -> RewardProcessor:
        """reward * factor"""
        return self.then(lambda reward: reward * factor)

    def shift(self, value: float = 0.0) -> RewardProcessor:
        """reward + value"""
        return self.then(lambda reward: reward + value)

    def clip(self, low: float = -math.inf, high: float = math.inf) -> RewardProcessor:
        """reward limited to [low, high]"""
        if low > high:
            raise ValueError(f"RewardProcessors.clip: low ({low}) is greater than high ({high}).")
        return self.then(lambda reward: min(max(reward, low), high))

    def then(self, step: Callable[[float], float]) -> RewardProcessor:
        """This chain followed by any float -> float function."""
        return RewardProcessor((*self.steps, step))


class RewardProcessors:
    """Starts of a chain: `RewardProcessors.scale(factor=100).clip(low=-1, high=1)`."""

    scale = staticmethod(RewardProcessor().scale)
    shift = staticmethod(RewardProcessor().shift)
    clip = staticmethod(RewardProcessor().clip)


class RewardFunction:
    """The user's reward function behind one checked call.

    per_agent: True allows one reward per agent and joint response (actor-critic).
    """

    def __init__(
        self,
        function: Callable[..., Any],
        num_agents: int,
        processor: Callable[[float], float] | None = None,
        per_agent: bool = False,
    ) -> None:
        if not callable(function):
            raise ValueError(f"reward_func must be callable, got {function!r}.")
        self.function = function
        self.num_agents = num_agents
        self.processor = RewardProcessor() if processor is None else processor
        if not callable(self.processor):
            raise ValueError(f"reward_processor must be a function of one number, got {processor!r}.")
        self.per_agent = per_agent
        self.signature = _signature(function)
        _check_arity(self.signature, num_agents)

    def __call__(self, completions: Sequence[list[str]], prompt: str, item: Item, where: str) -> Rewards:
        """Processed rewards [n, J] of one node's joint responses; equal rows when shared.

        completions: n lists of J texts. prompt: agent 0's prompt of this turn. where: names the
        node in errors. None = unscored. An exception of the user's function passes through.
        """
        joint = len(completions[0])
        given = [list(texts) for texts in completions]  # a copy, whatever the function does to its lists
        context = {"prompts": [prompt] * joint, "batch_items": [item] * joint}
        args, kwargs = _arguments(self.signature, given, context)
        rows = self._rows(_plain(self.function(*args, **kwargs)), completions, where)
        return tuple(tuple(self._processed(r, j, completions, where) for j, r in enumerate(row)) for row in rows)

    def _rows(self, raw: Any, completions: Sequence[list[str]], where: str) -> list[list[Any]]:
        joint = len(completions[0])
        if joint == 1 and (raw is None or isinstance(raw, Real)):
            raw = [raw]
        if not isinstance(raw, list):
            raise ValueError(
                f"reward_func returned {type(raw).__name__} for {where}; return a list of {joint} numbers."
            )
        if len(raw) == joint and not any(isinstance(r, list) for r in raw):
            return [raw] * self.num_agents
        rows = [r if isinstance(r, list) else [r] for r in raw]
        if len(rows) == self.num_agents and all(len(row) == joint for row in rows):
            if self.per_agent:
                return rows
            raise ValueError(
                f"reward_func returned one reward per agent for {where}, but the REINFORCE family shares one "
                f"reward: return {joint} numbers, or train with MAAC or IAC."
            )
        shape = f"{len(raw)} values" if rows and rows[0] != raw[0] else f"{len(raw)} rows of {[len(r) for r in rows]}"
        listed = "; ".join(_shown(completions, j, 60) for j in range(min(joint, 4))) + ("; ..." if joint > 4 else "")
        also = f" or {self.num_agents} rows of {joint}" if self.per_agent else ""
        raise ValueError(
            f"reward_func returned {shape} for {where}, which has {joint} joint responses; "
            f"return a list of {joint} numbers{also}, one per joint response: {listed}."
        )

    def _processed(self, reward: Any, joint: int, completions: Sequence[list[str]], where: str) -> float | None:
        if reward is None:
            return None
        for name, step in (("reward_func", float), ("reward_processor", self.processor)):
            if not isinstance(reward, Real) and not hasattr(reward, "__float__"):
                raise ValueError(f"{name} needs numbers, got {reward!r} for {where}.")
            try:
                reward = float(step(reward))
            except (TypeError, OverflowError) as error:
                raise ValueError(f"{name} must give a number for {where}, got {reward!r} ({error}).") from error
            if not math.isfinite(reward):
                raise ValueError(
                    f"{name} gave {reward} for {where}, joint response {joint} ({_shown(completions, joint)}); "
                    "return a finite number, or None for a response that cannot be scored."
                )
        return float(reward)


def _shown(completions: Sequence[list[str]], joint: int, characters: int = 200) -> str:
    return ", ".join(f"agent {agent}: {texts[joint][:characters]!r}" for agent, texts in enumerate(completions))


def _plain(raw: Any) -> Any:
    """Nested lists of numbers from tensors, arrays and tuples."""
    if hasattr(raw, "tolist"):
        return raw.tolist()
    if isinstance(raw, (list, tuple)):
        return [_plain(r) for r in raw]
    return raw


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none: give them the completions only
        return inspect.Signature([inspect.Parameter("completions", inspect.Parameter.VAR_POSITIONAL)])


def _positional(signature: inspect.Signature) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in signature.parameters.values() if p.kind in kinds]


def _has(signature: inspect.Signature, kind: Any) -> bool:
    return any(p.kind is kind for p in signature.parameters.values())


def _arguments(
    signature: inspect.Signature, completions: list[Any], context: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Completions fill the leading positional parameters; context goes wherever its name stands."""
    args: list[Any] = []
    waiting, missing = list(completions), dict(context)
    for parameter in _positional(signature):
        if not waiting:
            break
        if parameter.name in missing:
            args.append(missing.pop(parameter.name))
        elif parameter.default is parameter.empty:
            args.append(waiting.pop(0))
        else:
            break  # only reached without *args: _check_arity refuses a default between completions
    args.extend(waiting)
    takes_any = _has(signature, inspect.Parameter.VAR_KEYWORD)
    return args, {name: value for name, value in missing.items() if takes_any or name in signature.parameters}


def _check_arity(signature: inspect.Signature, num_agents: int) -> None:
    takers = [p for p in _positional(signature) if p.name not in CONTEXT]
    required = [p.name for p in takers if p.default is p.empty]
    anywhere = _has(signature, inspect.Parameter.VAR_POSITIONAL)
    keyword = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    unfilled = required[num_agents:] + [name for name in keyword if name not in CONTEXT]
    if unfilled:
        raise ValueError(
            f"reward_func requires argument {unfilled[0]!r}, which nothing fills: it gets {num_agents} completion "
            "lists (one per agent) and, by name, prompts and batch_items; give it a default or use functools.partial."
        )
    if len(required) < num_agents and not (anywhere and len(required) == len(takers)):
        raise ValueError(
            f"reward_func takes {len(required)} completion lists, but there are {num_agents} agents; "
            "give it one parameter without a default per agent."
        )
