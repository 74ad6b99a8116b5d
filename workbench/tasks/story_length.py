"""Story length: two agents continue one opening; the second text should be 2-3 times as long as the first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from workbench.tasks.base import Task
from workbench.types import Item

LOW, HIGH = 2.0, 3.0  # the interval that earns the full reward, in lengths of the first text


def length(text: str) -> int:
    """Characters of a text, white space at its ends excluded."""
    return len(text.strip())


def length_reward(short: Sequence[str], long: Sequence[str]) -> list[float]:
    """One reward per joint response: 1 for a length ratio in [2, 3], exp(-distance to it) outside.

    0 when the first agent's text is empty, where the ratio means nothing.
    """
    return [_score(length(first), length(second)) for first, second in zip(short, long)]


def _score(first: int, second: int) -> float:
    if first == 0:
        return 0.0
    ratio = second / first
    return math.exp(-max(LOW - ratio, ratio - HIGH, 0.0))


def length_metrics(
    agent_completions_turns: Sequence[Sequence[Sequence[str]]], batch_items: Sequence[Item], prompts: Any
) -> list[Mapping[str, float]]:
    """Per item: characters of each agent's text, and their ratio where the first is not empty."""
    rows: list[Mapping[str, float]] = []
    for short, long in zip(*agent_completions_turns):
        first, second = length(short[0]), length(long[0])
        row = {"turn_1/agent_0_characters": float(first), "turn_1/agent_1_characters": float(second)}
        rows.append(row | ({"turn_1/length_ratio": second / first} if first else {}))
    return rows


def short_story_request(item: Item) -> list[dict[str, str]]:
    """Chat messages for the first agent."""
    return [{"role": "user", "content": f"Continue this story in one short sentence: {item['prompt']}"}]


def long_story_request(item: Item) -> list[dict[str, str]]:
    """Chat messages for the second agent."""
    return [{"role": "user", "content": f"Continue this story in three sentences: {item['prompt']}"}]


def openings(split: str) -> list[dict[str, str]]:
    """The story openings of one split, "train" or "eval", from the file that ships with the package."""
    text = resources.files("workbench.tasks").joinpath("data/story_openings.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return [{"prompt": row["prompt"]} for row in rows if row["split"] == split]


def train_openings() -> list[dict[str, str]]:
    """Openings to train on."""
    return openings("train")


def eval_openings() -> list[dict[str, str]]:
    """Openings kept for evaluation."""
    return openings("eval")


STORY_LENGTH = Task(
    name="story_length",
    description="Two agents continue one story opening; the second text should be 2-3 times as long as the first.",
    cooperation="Neither agent's length is good or bad by itself: each must suit what the other one writes.",
    num_agents=2,
    train_items=train_openings,
    eval_items=eval_openings,
    reward=length_reward,
    metrics=length_metrics,
    suggested_config={
        "num_turns": 1,
        "num_generations": 8,
        "max_new_tokens": 96,
        "agent_learning_rate": 1e-4,
        "num_train_epochs": 4,
        "eval_num_samples": 8,
    },
)
"""Plain text: each agent's prompt is the opening, as a base model such as builtin:storyteller expects."""

STORY_LENGTH_CHAT = replace(
    STORY_LENGTH,
    name="story_length_chat",
    description=f"{STORY_LENGTH.description} Chat messages give each agent its role.",
    formatters=[short_story_request, long_story_request],
    suggested_config={**STORY_LENGTH.suggested_config, "agent_learning_rate": 1e-5},
)
"""The same items and reward for models with a chat template."""
