"""Abstract pair: from one abstract, a paragraph on its background and one on its method and implications."""

from __future__ import annotations

from workbench.tasks.base import Task
from workbench.tasks.packaged import packaged_items
from workbench.tasks.writing_reward import Ramp, WritingReward
from workbench.types import Item

FILE = "abstracts.jsonl"
ABSTRACT_REWARD = WritingReward(
    min_words=128,
    max_words=256,
    length=Ramp(0.8, 1.3, 1.6, 2.0),
    vocabulary=Ramp(0.5, 0.7, 1.3, 1.7),
    transitions_in=(0, 1),
    overlap_full=0.23,
)


def background_request(item: Item) -> list[dict[str, str]]:
    """Chat messages for agent 0."""
    task = "Explain the background and motivation of this research in about 140 words."
    return [{"role": "user", "content": f"{task}\n\n{item['prompt']}"}]


def method_request(item: Item) -> list[dict[str, str]]:
    """Chat messages for agent 1."""
    task = "Explain the method and the implications of this research in about 200 words."
    return [{"role": "user", "content": f"{task}\n\n{item['prompt']}"}]


def train_abstracts() -> list[dict[str, str]]:
    """Abstracts to train on."""
    return packaged_items(FILE, "train")


def eval_abstracts() -> list[dict[str, str]]:
    """Abstracts kept for evaluation."""
    return packaged_items(FILE, "eval")


ABSTRACT_PAIR = Task(
    name="abstract_pair",
    description="One agent explains the background of an abstract, the other its method and implications.",
    cooperation="The two paragraphs should read as one text: comparable in length and vocabulary, connected, and with "
    "terms in common.",
    num_agents=2,
    train_items=train_abstracts,
    eval_items=eval_abstracts,
    formatters=[background_request, method_request],
    reward=ABSTRACT_REWARD.reward,
    metrics=ABSTRACT_REWARD.metrics,
    explain=ABSTRACT_REWARD.explain,
    columns=("prompt",),
    suggested_config={
        "num_turns": 1,
        "num_generations": 4,
        "max_new_tokens": 256,
        "temperature": 0.7,
        "agent_learning_rate": 5e-6,
        "num_train_epochs": 4,
        "eval_num_samples": 6,
    },
)
"""Chat messages, so a model needs a chat template. For other data: `dataset: {..., columns: {prompt: abstract}}`."""
