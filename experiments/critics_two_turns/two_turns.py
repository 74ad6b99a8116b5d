"""A rendezvous in which both meetings are paid after the second turn, so that the first one needs credit from later.

The first turn pays nothing. Its choices stand in the second turn's prompts, and the second turn's reward is the mean of
both turns' scores. Nobody can gain by missing first and meeting later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.tasks import Task
from workbench.tasks.rendezvous import Rendezvous
from workbench.types import Item

MEETING = Rendezvous(num_agents=2, symbols="ABCD")
REPEATS = 7  # of the four prompts in an epoch, so that a buffer of samples can fill before the epoch ends
PROMPTS = [f"{verb} {' '.join(MEETING.symbols)}:" for verb in ("Pick", "Choose", "Meet at", "Write")]
SECOND = "Then "


def transition(agent_completions: Sequence[str], item: Item, **history: Any) -> list[str]:
    """Both agents read both choices, agent 0's first; "-" for none."""
    first, second = (MEETING.choice(text) or "-" for text in agent_completions)
    return [f"{SECOND}{first}{second}. {item['prompt']}"] * 2


def delayed(first: Sequence[str], second: Sequence[str], prompts: Sequence[str]) -> list[float]:
    """0 in the first turn; in the second, the mean of both turns' scores, in [0, 1]."""
    return [_mean_of_both(pair, prompt) if prompt.startswith(SECOND) else 0.0
            for *pair, prompt in zip(first, second, prompts)]  # fmt: skip


def _mean_of_both(pair: Sequence[str], prompt: str) -> float:
    before = prompt.removeprefix(SECOND)[:2]
    return (MEETING.score(before) + MEETING.score(pair)) / 2


TASK = Task(
    name="two_turns",
    description="Two agents must write the same symbol in both turns; all of it is paid after the second.",
    cooperation="Agents must meet twice, and the first meeting pays only later.",
    train_items=[{"prompt": prompt} for prompt in PROMPTS * REPEATS],
    reward=delayed,
    transition=transition,
    suggested_config={
        "num_turns": 2,
        "max_new_tokens": 1,
        "agent_learning_rate": 3e-3,
        "early_termination_threshold": None,  # all episodes have two turns, whatever the algorithm
    },
)
