"""A rendezvous whose answer is a pair of symbols, for one agent that writes both and for two that write one each.

Both symbols must be the same, whichever: who writes the second one without seeing the first must rely on a convention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.tasks import Task
from workbench.tasks.rendezvous import Rendezvous

MEETING = Rendezvous(num_agents=2, symbols="ABCD")
PROMPTS = [f"{verb} {' '.join(MEETING.symbols)}:" for verb in ("Pick", "Choose", "Meet at", "Write")]


def alone(texts: Sequence[str]) -> list[float]:
    """The rendezvous's score, in [0, 1], of one agent whose text holds both symbols."""
    return [MEETING.score((text[:1], text[1:2])) for text in texts]


def together(first: Sequence[str], second: Sequence[str]) -> list[float]:
    """The same of two agents whose texts hold one symbol each."""
    return [MEETING.score((a[:1], b[:1])) for a, b in zip(first, second)]


def _task(name: str, reward: Callable[..., list[float]], num_agents: int) -> Task:
    """Two tokens in all, however many agents write them."""
    config = {"num_turns": 1, "num_generations": 16, "max_new_tokens": 2 // num_agents, "agent_learning_rate": 3e-3}
    items = [{"prompt": prompt} for prompt in PROMPTS]
    return Task(name=name, train_items=items, reward=reward, num_agents=num_agents, suggested_config=config)


MEET_ALONE = _task("meet_alone", alone, 1)
MEET_TOGETHER = _task("meet_together", together, 2)
