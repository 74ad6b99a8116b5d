"""Two problems whose answer is a pair of symbols, each for one agent that writes both and for two that write one each.

`meet`: both symbols must be the same, whichever: who writes the second one without seeing the first must rely on a
convention. `spell`: the pair must be AB: each symbol is right or wrong for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.tasks import Task
from workbench.tasks.rendezvous import NEAR_PART, Rendezvous

MEETING = Rendezvous(num_agents=2, symbols="ABCD")
WANTED = "AB"
PROMPTS = [f"{verb} {' '.join(MEETING.symbols)}:" for verb in ("Pick", "Choose", "Meet at", "Write")]


def meet(pair: Sequence[str]) -> float:
    """The rendezvous's score, in [0, 1]."""
    return MEETING.score(pair)


def spell(pair: Sequence[str]) -> float:
    """Mean over both places of 1 for the wanted symbol, half of NEAR_PART for another letter or digit."""
    near = (NEAR_PART / 2 * (c.isascii() and c.isalnum()) for c in pair)
    return sum(1.0 if c == w else part for c, w, part in zip(pair, WANTED, near)) / len(WANTED)


def alone(score: Callable[[Sequence[str]], float]) -> Callable[[Sequence[str]], list[float]]:
    """The reward of one agent whose text holds both symbols."""
    return lambda texts: [score((text[:1], text[1:2])) for text in texts]


def together(score: Callable[[Sequence[str]], float]) -> Callable[[Sequence[str], Sequence[str]], list[float]]:
    """The reward of two agents whose texts hold one symbol each."""
    return lambda first, second: [score((a[:1], b[:1])) for a, b in zip(first, second)]


def _task(name: str, reward: Callable[..., list[float]], num_agents: int) -> Task:
    """Two tokens in all, however many agents write them."""
    config = {"num_turns": 1, "num_generations": 16, "max_new_tokens": 2 // num_agents, "agent_learning_rate": 3e-3}
    items = [{"prompt": prompt} for prompt in PROMPTS]
    return Task(name=name, train_items=items, reward=reward, num_agents=num_agents, suggested_config=config)


MEET_ALONE = _task("meet_alone", alone(meet), 1)
MEET_TOGETHER = _task("meet_together", together(meet), 2)
SPELL_ALONE = _task("spell_alone", alone(spell), 1)
SPELL_TOGETHER = _task("spell_together", together(spell), 2)
