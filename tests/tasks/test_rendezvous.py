"""Rendezvous rewards worked by hand: 0.4 * readable share + 0.6 * share of agreeing pairs."""

from __future__ import annotations

import pytest

from workbench.tasks import TaskError, rendezvous


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("A", "A"), 1.0),
        (("  A", "Another"), 1.0),  # the first character that is not a space counts
        (("A", "B"), 0.4),  # both readable, no pair agrees
        (("A", "?"), 0.2),  # one of two readable
        (("A", "z"), 0.25),  # 0.4 * (1 + 0.25) / 2
        (("Z", "Z"), 0.1),  # equal, but not in the set: 0.4 * 0.25
        (("a", "a"), 0.1),  # small letters are other letters
        (("", "?"), 0.0),
        (("é", ""), 0.0),  # only ASCII letters and digits are near misses
    ],
)
def test_two_agents(texts: tuple[str, str], expected: float) -> None:
    assert rendezvous().reward(*([text] for text in texts)) == pytest.approx([expected])


def test_three_agents_of_whom_two_agree() -> None:
    # 0.4 * 3/3 + 0.6 * 1/3 = 0.6
    assert rendezvous(num_agents=3).reward(["A"], ["A"], ["B"]) == pytest.approx([0.6])
    assert rendezvous(num_agents=3).reward(["B"], ["B"], ["B"]) == [1.0]


def test_one_reward_per_joint_response() -> None:
    assert rendezvous().reward(["A", "B"], ["A", "A"]) == pytest.approx([1.0, 0.4])


def test_the_second_turn_shows_what_everybody_chose() -> None:
    task = rendezvous(num_agents=3)
    assert task.transition is not None
    prompts = task.transition(agent_completions=["A!", "", " C"], item={"prompt": "Pick one of A B C D:"}, num_agents=3)
    assert prompts == [
        "You wrote A, others nothing C. Pick one of A B C D:",
        "You wrote nothing, others A C. Pick one of A B C D:",
        "You wrote C, others A nothing. Pick one of A B C D:",
    ]


def test_metrics_per_turn() -> None:
    task = rendezvous()
    assert task.metrics is not None
    # one item, two turns: first A and B, then B and B
    rows = task.metrics(agent_completions_turns=[[["A", "B"]], [["?", "B"]]], batch_items=[{}], prompts=[""])
    assert rows == [{"turn_1/met": 0, "turn_1/symbol_share": 0.5, "turn_2/met": 1, "turn_2/symbol_share": 1}]


@pytest.mark.parametrize(("agents", "symbols"), [(1, "AB"), (2, "A"), (2, "AA"), (2, "A B")])
def test_bad_settings(agents: int, symbols: str) -> None:
    with pytest.raises(TaskError, match="rendezvous needs"):
        rendezvous(agents, symbols)
