"""Rendezvous: agents that cannot talk must write the same symbol out of a small set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.tasks.base import Task, TaskError
from workbench.types import Item

TEMPLATES = ("Pick one of {}:", "Choose from {}:", "Meet at {}:", "Write {}:")
VALID_PART = 0.4  # of the reward, shared out among the agents; the rest rewards agreeing pairs
NEAR_PART = 0.25  # of an agent's share, for another letter or digit: a random model finds these first


@dataclass(frozen=True)
class Rendezvous:
    """The callbacks of one rendezvous: how many agents, and which one-character symbols count."""

    num_agents: int
    symbols: str

    def choice(self, text: str) -> str:
        """What an agent chose: its first character that is not white space, "" for none."""
        return text.strip()[:1]

    def score(self, texts: Sequence[str]) -> float:
        """Reward in [0, 1] of one joint response, 1 only when all wrote the same symbol of the set.

        0.4 * mean over agents of (1 for a symbol of the set, 0.25 for another letter or digit)
        + 0.6 * the share of pairs of agents that wrote the same symbol of the set.
        """
        choices = [self.choice(text) for text in texts]
        readable = sum(1.0 if self.is_symbol(c) else NEAR_PART * (c.isascii() and c.isalnum()) for c in choices)
        pairs = [(a, b) for i, a in enumerate(choices) for b in choices[i + 1 :]]
        agreeing = sum(a == b and self.is_symbol(a) for a, b in pairs)
        return VALID_PART * readable / len(choices) + (1 - VALID_PART) * agreeing / len(pairs)

    def is_symbol(self, choice: str) -> bool:
        return choice != "" and choice in self.symbols

    def reward(self, *completions: Sequence[str]) -> list[float]:
        """One reward per joint response; see `score`."""
        return [self.score(texts) for texts in zip(*completions)]

    def transition(self, agent_completions: Sequence[str], item: Item, **history: Any) -> list[str]:
        """The next turn shows each agent what it and the others chose, then asks again."""
        choices = [self.choice(text) or "nothing" for text in agent_completions]
        prompts = []
        for agent, own in enumerate(choices):
            others = " ".join(choices[:agent] + choices[agent + 1 :])
            prompts.append(f"You wrote {own}, others {others}. {item['prompt']}")
        return prompts

    def metrics(
        self, agent_completions_turns: Sequence[Sequence[Sequence[str]]], batch_items: Sequence[Item], prompts: Any
    ) -> list[Mapping[str, float]]:
        """Per item and turn: did all agents meet (1 or 0), and the share of agents that wrote a symbol."""
        return [self._item_metrics(turns_per_agent) for turns_per_agent in zip(*agent_completions_turns)]

    def _item_metrics(self, turns_per_agent: Sequence[Sequence[str]]) -> dict[str, float]:
        values = {}
        for turn, texts in enumerate(zip(*turns_per_agent), start=1):
            choices = [self.choice(text) for text in texts]
            values[f"turn_{turn}/met"] = float(self.is_symbol(choices[0]) and len(set(choices)) == 1)
            values[f"turn_{turn}/symbol_share"] = sum(map(self.is_symbol, choices)) / len(choices)
        return values


def rendezvous(num_agents: int = 2, symbols: str = "ABCD") -> Task:
    """A rendezvous for `num_agents` >= 2 agents and a set of at least two different `symbols`."""
    if type(num_agents) is not int or num_agents < 2:
        raise TaskError(f"rendezvous needs at least 2 agents, got num_agents={num_agents!r}.")
    if len(set(symbols)) < 2 or len(set(symbols)) != len(symbols) or any(s.isspace() for s in symbols):
        raise TaskError(f"rendezvous needs at least two different symbols without spaces, got symbols={symbols!r}.")
    meeting = Rendezvous(num_agents, symbols)
    items = [{"prompt": template.format(" ".join(symbols))} for template in TEMPLATES]
    return Task(
        name="rendezvous",
        description="All agents must write the same symbol out of a set, without talking to each other.",
        cooperation="Agents cooperate by settling on one of several equally good symbols, the same for all.",
        num_agents=num_agents,
        train_items=items,
        eval_items=items,
        reward=meeting.reward,
        transition=meeting.transition,
        metrics=meeting.metrics,
        suggested_config=SUGGESTED,
    )


SUGGESTED = {
    "num_turns": 1,
    "num_generations": 16,  # with 8, each agent often settles on a symbol of its own before they ever meet
    "max_new_tokens": 2,
    "agent_learning_rate": 3e-3,
    "num_train_epochs": 60,
    "early_termination_threshold": 0.99,  # with two turns: stop once all have met
    "eval_num_samples": 4,
}
RENDEZVOUS = rendezvous()
