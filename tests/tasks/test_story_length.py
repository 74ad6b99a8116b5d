"""Story-length rewards worked by hand: 1 for a ratio in [2, 3], exp(-distance) outside, 0 without a first text."""

from __future__ import annotations

import pytest

from workbench.tasks import TASKS
from workbench.tasks.story_length import eval_openings, length_metrics, length_reward, train_openings


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (10, 20, 1.0),
        (10, 25, 1.0),
        (10, 30, 1.0),
        (10, 10, 0.367879),  # ratio 1, distance 1: exp(-1)
        (10, 40, 0.367879),  # ratio 4, distance 1
        (10, 15, 0.606531),  # ratio 1.5: exp(-0.5)
        (10, 0, 0.135335),  # ratio 0: exp(-2)
        (0, 10, 0.0),
        (0, 0, 0.0),
    ],
)
def test_reward(first: int, second: int, expected: float) -> None:
    assert length_reward(["x" * first], ["x" * second]) == pytest.approx([expected], abs=1e-6)


def test_white_space_at_the_ends_does_not_count() -> None:
    assert length_reward([" ab \n", "  "], ["abcd  ", "abcd"]) == [1.0, 0.0]


def test_metrics_leave_the_ratio_out_where_the_first_text_is_empty() -> None:
    rows = length_metrics(agent_completions_turns=[[["ab"], [""]], [["abcd"], ["x"]]], batch_items=[{}, {}], prompts=[])
    assert rows == [
        {"turn_1/agent_0_characters": 2, "turn_1/agent_1_characters": 4, "turn_1/length_ratio": 2},
        {"turn_1/agent_0_characters": 0, "turn_1/agent_1_characters": 1},
    ]


def test_openings_are_distinct_and_the_splits_do_not_meet() -> None:
    train, held_out = [[row["prompt"] for row in rows] for rows in (train_openings(), eval_openings())]
    assert (len(set(train)), len(set(held_out))) == (60, 12)
    assert not set(train) & set(held_out)


def test_the_chat_variant_gives_each_agent_its_role() -> None:
    formatters = TASKS["story_length_chat"].formatters
    assert isinstance(formatters, list)
    short, long = (formatter({"prompt": "Mia."})[0]["content"] for formatter in formatters)
    assert short != long
    assert short.endswith("Mia.")
    assert long.endswith("Mia.")
