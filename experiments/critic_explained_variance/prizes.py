"""A rendezvous with prizes: each agent knows one of the two numbers that the prize is the sum of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from workbench.tasks import Task
from workbench.tasks.rendezvous import Rendezvous

NUMBERS = (1, 2, 3, 4)
MEETING = Rendezvous(num_agents=2, symbols="ABCD")


def prize(item: dict[str, Any]) -> float:
    """(own number + the other's) / 8: 0.25 to 1. One number explains half of its variance, both explain all."""
    return sum(item["numbers"]) / (2 * max(NUMBERS))


def reward(first: Sequence[str], second: Sequence[str], batch_items: Sequence[dict[str, Any]]) -> list[float]:
    """The prize times the rendezvous's score, one per joint response."""
    return [prize(item) * MEETING.score(texts) for *texts, item in zip(first, second, batch_items)]


def shown_to(agent: int) -> Any:
    """The formatter of one agent, which sees its own number only."""

    def formatter(item: dict[str, Any]) -> str:
        return f"Prize {item['numbers'][agent]}. Write A B C D:"

    return formatter


TASK = Task(
    name="prizes",
    description="Both agents must write the same symbol; what that earns depends on two numbers, one shown to each.",
    cooperation="Agents must settle on one symbol, whatever numbers they see.",
    train_items=[{"numbers": list(pair)} for pair in itertools.product(NUMBERS, repeat=2)],
    formatters=[shown_to(0), shown_to(1)],
    reward=reward,
    suggested_config={"num_turns": 1, "max_new_tokens": 1, "num_generations": 16, "agent_learning_rate": 3e-3},
)
