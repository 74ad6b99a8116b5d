"""Summary pair: one post, a concise summary and a detailed one that suit each other."""

from __future__ import annotations

from workbench.tasks.base import Task
from workbench.tasks.packaged import packaged_items
from workbench.tasks.writing_reward import Ramp, WritingReward
from workbench.types import Item

FILE = "posts.jsonl"
SUMMARY_REWARD = WritingReward(
    min_words=8,
    max_words=256,
    length=Ramp(1.1, 1.6, 3.2, 5.0),
    vocabulary=Ramp(1.3, 2.0),
    transitions_in=(1,),
    overlap_full=0.03,
)


def concise_request(item: Item) -> list[dict[str, str]]:
    """Chat messages for agent 0."""
    return [{"role": "user", "content": f"Summarize this post in one or two short sentences.\n\n{item['prompt']}"}]


def detailed_request(item: Item) -> list[dict[str, str]]:
    """Chat messages for agent 1."""
    task = "Summarize this post in one detailed paragraph. Connect its sentences with transition words."
    return [{"role": "user", "content": f"{task}\n\n{item['prompt']}"}]


def train_posts() -> list[dict[str, str]]:
    """Posts to train on."""
    return packaged_items(FILE, "train")


def eval_posts() -> list[dict[str, str]]:
    """Posts kept for evaluation."""
    return packaged_items(FILE, "eval")


SUMMARY_PAIR = Task(
    name="summary_pair",
    description="One agent sums a post up concisely, the other in detail; both must stay on the same topic.",
    cooperation="Each summary is rated against the other: the second should be longer and richer in words, but not "
    "too long, and share words with the first.",
    num_agents=2,
    train_items=train_posts,
    eval_items=eval_posts,
    formatters=[concise_request, detailed_request],
    reward=SUMMARY_REWARD.reward,
    metrics=SUMMARY_REWARD.metrics,
    explain=SUMMARY_REWARD.explain,
    columns=("prompt",),
    suggested_config={
        "num_turns": 1,
        "num_generations": 4,
        "max_new_tokens": 256,
        "temperature": 0.7,
        "agent_learning_rate": 5e-6,
        "num_train_epochs": 4,
        "eval_num_samples": 8,
    },
)
"""Chat messages, so a model needs a chat template. For other data: `dataset: {..., columns: {prompt: post}}`."""
