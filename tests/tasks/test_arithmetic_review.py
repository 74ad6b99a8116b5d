"""Arithmetic review: how texts are read, rewards of every joint response, and what each agent hears."""

from __future__ import annotations

import pytest

from workbench.tasks import TASKS, TaskError, arithmetic_review
from workbench.tasks.arithmetic_review import (
    checker_prompt,
    proposal_is_right,
    read_answer,
    read_verdict,
    review_explain,
    review_metrics,
    review_reward,
    review_transition,
    solver_prompt,
)

TASK = TASKS["arithmetic_review"]
RIGHT = {"question": "3+4", "answer": 7, "proposed": 7}
WRONG = {"question": "3+4", "answer": 7, "proposed": 8}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("7", 7),
        (" 7\n9", 7),  # the first line only
        ("\n\n3+4=7", 7),
        ("It is 7.", 7),
        ("7.0", 7),
        ("7.5", 7.5),
        ("-7", -7),
        ("10-3", 3),
        ("x7y", 7),
        ("٧", 7),  # a digit of another script
        ("", None),
        ("seven", None),
        ("\n \n", None),
    ],
)
def test_read_answer(text: str, answer: float | None) -> None:
    assert read_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("yes", True),
        (" Yes, it is.", True),
        ("y", True),
        ("'Correct!'", True),
        ("NO", False),
        ("n\nyes", False),
        ("wrong", False),
        ("yesterday", None),
        ("nobody", None),
        ("It is correct", None),  # the first word decides, so that "it is not correct" is no yes
        ("", None),
    ],
)
def test_read_verdict(text: str, verdict: bool | None) -> None:
    assert read_verdict(text) is verdict


@pytest.mark.parametrize(
    ("answer", "verdict", "item", "reward"),
    [
        ("7", "yes", RIGHT, 2),
        ("7", "no", RIGHT, 1),
        ("8", "yes", RIGHT, 1),
        ("8", "no", RIGHT, 0),
        ("7", "no", WRONG, 2),
        ("7", "yes", WRONG, 1),
        ("8", "no", WRONG, 1),  # copying the wrong proposal
        ("8", "yes", WRONG, 0),
        ("", "", RIGHT, 0),
        ("", "", WRONG, 0),  # saying nothing is not "no"
    ],
)
def test_reward(answer: str, verdict: str, item: dict[str, object], reward: float) -> None:
    assert review_reward([answer], [verdict], batch_items=[item]) == [reward]


def test_numbers_of_a_text_file_are_numbers() -> None:
    item = {"question": "3+4", "answer": "7", "proposed": "07"}
    assert proposal_is_right(item)
    assert review_reward(["7"], ["yes"], batch_items=[item]) == [2]


def test_in_turn_1_neither_agent_sees_the_other() -> None:
    assert solver_prompt(WRONG) == "3+4="
    assert checker_prompt(WRONG) == "3+4=8 yes or no:"


def test_the_transition_hands_each_agent_the_others_words() -> None:
    solver, checker = review_transition(agent_completions=["5\n1", " no,\nnever "], item=WRONG, prompt="", num_agents=2)
    assert solver == "Checker on 3+4=8: no, never\n3+4="
    assert checker == "Solver on 3+4: 5 1\n3+4=8 yes or no:"
    assert solver_prompt({**WRONG, "prompt": solver}, external_prompts=solver) == solver
    assert checker_prompt({**WRONG, "prompt": checker}, external_prompts=checker) == checker


def test_silence_and_long_texts_are_handed_on_short() -> None:
    solver, checker = review_transition(agent_completions=["", "x" * 500], item=RIGHT)
    assert solver == f"Checker on 3+4=7: {'x' * 80}\n3+4="
    assert checker.startswith("Solver on 3+4: nothing\n")


def test_metrics_per_item_and_turn() -> None:
    turns = [[["7", "x"], ["8", "7"]], [["no", "no"], ["maybe", "yes"]]]  # [agent][item][turn]
    first, second = review_metrics(turns, [WRONG, RIGHT], ["", ""])
    assert first == {
        "turn_1/answer_correct": 1, "turn_1/verdict_correct": 1,
        "turn_1/answer_readable": 1, "turn_1/verdict_readable": 1,
        "turn_2/answer_correct": 0, "turn_2/verdict_correct": 1,
        "turn_2/answer_readable": 0, "turn_2/verdict_readable": 1,
    }  # fmt: skip
    assert second == {
        "turn_1/answer_correct": 0, "turn_1/verdict_correct": 0,
        "turn_1/answer_readable": 1, "turn_1/verdict_readable": 0,
        "turn_2/answer_correct": 1, "turn_2/verdict_correct": 1,
        "turn_2/answer_readable": 1, "turn_2/verdict_readable": 1,
    }  # fmt: skip


def test_explain_says_how_the_texts_were_read() -> None:
    assert review_explain(["It is 7", "well"], WRONG) == {
        "answer (read as 7, right is 7)": 1.0,
        "verdict on 8 (read as neither yes nor no, right is no)": 0.0,
    }


@pytest.mark.parametrize(("largest", "seed"), [(9, 0), (9, 1), (30, 0)])
def test_items_are_right_sums_and_half_of_the_proposals_are_wrong(largest: int, seed: int) -> None:
    task = arithmetic_review(largest, seed)
    train, held_out = list(task.load_train_items()), list(task.load_eval_items() or [])
    assert (len(train), len(held_out)) == (40, 15)
    for item in train + held_out:
        a, b = map(int, item["question"].split("+"))
        assert a + b == item["answer"] <= largest
        assert item["prompt"] == f"{a}+{b}="
        assert item["proposed"] >= 0
        assert abs(item["proposed"] - item["answer"]) <= 3
    assert sum(map(proposal_is_right, train)) == 20
    assert sum(map(proposal_is_right, held_out)) in (7, 8)
    questions = [item["question"] for item in train + held_out]
    assert len(set(questions)) == 55


def test_items_depend_on_the_seed_alone() -> None:
    assert arithmetic_review(9, 3).train_items == arithmetic_review(9, 3).train_items
    assert arithmetic_review(9, 3).train_items != arithmetic_review(9, 4).train_items
    assert TASK.train_items == arithmetic_review().train_items


@pytest.mark.parametrize("largest", [8, -1, 9.0, True])
def test_too_few_sums(largest: object) -> None:
    with pytest.raises(TaskError, match="largest sum of at least 9"):
        arithmetic_review(largest)  # type: ignore[arg-type]
