"""Task: what its fields accept, how items resolve, how metrics average."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from workbench.tasks import TASKS, Task, TaskError, load_task
from workbench.tasks.base import checked_items, mean_per_key

ITEMS = [{"prompt": "a"}, {"prompt": "b"}]


def reward(first: list[str], second: list[str]) -> list[float]:
    return [0.0] * len(first)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "", "name must be a text"),
        ("name", "two\nlines", "must be one line"),
        ("name", "one\n", "must be one line"),
        ("metrics", lambda texts: [], r"Task 't': metrics is called as metrics\(agent_completions_turns="),
        ("train_items", lambda x: [], "Task 't': train_items is called without arguments, .* argument: 'x'"),
        ("eval_items", lambda x: [], "Task 't': eval_items is called without arguments"),
        ("num_agents", 0, "num_agents must be a whole number"),
        ("num_agents", True, "num_agents must be a whole number"),
        ("reward", None, "reward must be a function"),
        ("transition", 3, "transition must be a function"),
        ("metrics", "m", "metrics must be a function"),
        ("formatters", [str], "formatters must be one function or a list of 2"),
        ("train_items", [], "train_items of task 't' is empty"),
        ("train_items", ["text"], "item 0 must be a dict"),
        ("train_items", {"train": ITEMS}, "pick one of its splits"),
        ("train_items", "items.json", "must be a list of dicts"),
        ("eval_items", [], "eval_items of task 't' is empty"),
        ("suggested_config", ["num_turns"], "suggested_config must be a dict"),
    ],
)
def test_a_bad_field_is_named(field: str, value: object, message: str) -> None:
    good = {"name": "t", "train_items": ITEMS, "reward": reward}
    with pytest.raises(TaskError, match=message):
        Task(**good | {field: value})


def test_items_come_from_a_list_a_dataset_or_a_function() -> None:
    dataset = datasets.Dataset.from_list(ITEMS)
    for source in (ITEMS, dataset, lambda: ITEMS, lambda: dataset):
        items = Task(name="t", train_items=source, reward=reward).load_train_items()
        assert [items[i]["prompt"] for i in range(len(items))] == ["a", "b"]


def test_a_function_that_returns_nothing_useful_is_named() -> None:
    task = Task(name="t", train_items=lambda: None, reward=reward)
    with pytest.raises(TaskError, match="train_items of task 't' must be a list of dicts"):
        task.load_train_items()


def test_a_dataset_dict_asks_for_a_split() -> None:
    splits = datasets.DatasetDict(train=datasets.Dataset.from_list(ITEMS))
    with pytest.raises(TaskError, match=r"keys \['train'\]; pick one"):
        checked_items(splits, "items")


def test_metrics_average_over_the_items_that_have_the_key() -> None:
    assert mean_per_key([{"turn_1/a": 1, "turn_1/b": 5}, {"turn_1/a": 2}], num_turns=1) == {
        "turn_1/a": 1.5,
        "turn_1/b": 5,
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "returned None; return a list of one dict per item"),
        ({"turn_1/a": 1.0}, ".*; return a list of one dict per item"),
        ([{"turn_1/a": 1.0}], ".*; return a list of one dict per item"),
        ([{}, 3], "returned 3 for item 1; return a dict of numbers"),
        ([{}, {"turn_1/a": "good"}], "returned 'good' as 'turn_1/a' of item 1; return a number"),
        ([{}, {"turn_1/a": None}], "returned None as 'turn_1/a' of item 1"),
        ([{}, {1: 1.0}], "returned the key 1 for item 1"),
    ],
)
def test_metrics_that_return_something_else_are_named(rows: Any, message: str) -> None:
    task = Task(name="t", train_items=ITEMS, reward=reward, metrics=lambda **arguments: rows)
    with pytest.raises(TaskError, match=f"metrics of task 't' {message}"):
        task.checked_metrics(agent_completions_turns=[], batch_items=ITEMS, prompts=[])


def test_metrics_may_be_any_numbers() -> None:
    values = {"a": 1, "b": True, "c": np.float32(0.5)}
    task = Task(name="t", train_items=ITEMS, reward=reward, metrics=lambda **arguments: (values, {}))
    rows = task.checked_metrics(agent_completions_turns=[], batch_items=ITEMS, prompts=[])
    assert rows == [{"a": 1.0, "b": 1.0, "c": 0.5}, {}]


@pytest.mark.parametrize("name", list(TASKS))
def test_every_built_in_task_is_complete(name: str) -> None:
    task = load_task(name, Path())
    assert task.name == name
    assert task.description
    assert task.cooperation
    assert task.load_eval_items()
    assert len(task.load_train_items()) > 0
