"""Arithmetic review: a solver answers, a checker judges a proposed answer, and each hears the other before turn 2.

Both agents write at the same time, so within a turn neither sees the other's text. An item holds a question, its
answer and a proposed answer that is right or wrong. In every turn the solver (agent 0) answers the question and the
checker (agent 1) says whether the proposed answer is right; the reward is 1 for a correct answer plus 1 for a correct
verdict. After a turn the solver is told what the checker said about the proposal, and the checker what the solver
answered: the verdict says whether the proposal can be copied, the answer what the proposal must be compared with.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.tasks.base import Task, TaskError
from workbench.tasks.word_lists import words
from workbench.types import Item, Prompt

YES = frozenset({"yes", "y", "right", "correct", "true"})
NO = frozenset({"no", "n", "wrong", "incorrect", "false"})
NUMBER = re.compile(r"(?<!\d)-?\d+(?:\.\d+)?")
TRAIN, EVAL = 40, 15  # items; together all sums of two numbers up to 9
HEARD = 80  # characters of the other agent's text that are passed on


def first_line(text: str) -> str:
    """The first line that is not empty, "" for none; what follows it is not read."""
    return next(iter(text.strip().splitlines()), "")


def read_answer(text: str) -> float | None:
    """The last number of the first line: 7 in "7", "3+4=7" and "It is 7."; None without one."""
    found = NUMBER.findall(first_line(text))
    return float(found[-1]) if found else None


def read_verdict(text: str) -> bool | None:
    """True or False when the first word of the first line says yes or no, None when it says neither."""
    word = next(iter(words(first_line(text))), "")
    return True if word in YES else False if word in NO else None


def score(answer: str, verdict: str, item: Item) -> tuple[float, float]:
    """(correct answer, correct verdict), each 0 or 1."""
    return float(read_answer(answer) == float(item["answer"])), float(read_verdict(verdict) is proposal_is_right(item))


def proposal_is_right(item: Item) -> bool:
    """True when the proposed answer is the answer; both may be numbers or their digits."""
    return float(item["proposed"]) == float(item["answer"])


def review_reward(answers: Sequence[str], verdicts: Sequence[str], batch_items: Sequence[Item]) -> list[float]:
    """One reward per joint response: 0, 1 or 2, the same rule in every turn."""
    return [sum(score(*joint)) for joint in zip(answers, verdicts, batch_items)]


def solver_prompt(item: Item, external_prompts: Prompt | None = None) -> Prompt:
    """The question; in a later turn what the transition wrote."""
    return f"{item['question']}=" if external_prompts is None else external_prompts


def checker_prompt(item: Item, external_prompts: Prompt | None = None) -> Prompt:
    """The proposed answer to judge; in a later turn what the transition wrote."""
    return f"{_claim(item)} yes or no:" if external_prompts is None else external_prompts


def review_transition(agent_completions: Sequence[str], item: Item, **history: Any) -> list[str]:
    """Each agent hears what the other wrote, then is asked again."""
    answer, verdict = (" ".join(text.split())[:HEARD] or "nothing" for text in agent_completions)
    return [
        f"Checker on {_claim(item)}: {verdict}\n{solver_prompt(item)}",
        f"Solver on {item['question']}: {answer}\n{checker_prompt(item)}",
    ]


def _claim(item: Item) -> str:
    return f"{item['question']}={item['proposed']}"


def review_metrics(
    agent_completions_turns: Sequence[Sequence[Sequence[str]]], batch_items: Sequence[Item], prompts: Any
) -> list[Mapping[str, float]]:
    """Per item and turn: answer and verdict correct (1 or 0), and whether each could be read at all."""
    rows: list[Mapping[str, float]] = []
    for answers, verdicts, item in zip(*agent_completions_turns, batch_items):
        row: dict[str, float] = {}
        for turn, (answer, verdict) in enumerate(zip(answers, verdicts), start=1):
            row |= {f"turn_{turn}/{name}": value for name, value in _numbers(answer, verdict, item).items()}
        rows.append(row)
    return rows


def _numbers(answer: str, verdict: str, item: Item) -> dict[str, float]:
    answered, judged = score(answer, verdict, item)
    return {
        "answer_correct": answered,
        "verdict_correct": judged,
        "answer_readable": float(read_answer(answer) is not None),
        "verdict_readable": float(read_verdict(verdict) is not None),
    }


def review_explain(texts: Sequence[str], item: Item) -> dict[str, float | str]:
    """How both texts were read, and what each earned."""
    answered, judged = score(texts[0], texts[1], item)
    number, verdict = read_answer(texts[0]), read_verdict(texts[1])
    said = {True: "yes", False: "no", None: "neither yes nor no"}
    right = said[proposal_is_right(item)]
    read = "no number" if number is None else f"{number:g}"
    return {
        f"answer (read as {read}, right is {item['answer']})": answered,
        f"verdict on {item['proposed']} (read as {said[verdict]}, right is {right})": judged,
    }


def arithmetic_review(largest: int = 9, seed: int = 0) -> Task:
    """Sums of two whole numbers that are at most `largest` (>= 9), drawn by `seed`: 40 to train on, 15 others to
    evaluate. In each split every second proposed answer is wrong, by 1 to 3.
    """
    if type(largest) is not int or largest < 9:
        raise TaskError(f"arithmetic_review needs a largest sum of at least 9, got largest={largest!r}.")
    random_numbers = random.Random(seed)
    pairs = [(a, total - a) for total in range(largest + 1) for a in range(total + 1)]
    items = [
        _item(a, b, number % 2 == 0, random_numbers)
        for number, (a, b) in enumerate(random_numbers.sample(pairs, TRAIN + EVAL))
    ]
    return Task(
        name="arithmetic_review",
        description="A solver answers a sum, a checker judges a proposed answer; in turn 2 each has heard the other.",
        cooperation="The checker's verdict tells the solver whether the proposal can be copied, and the solver's "
        "answer tells the checker what to compare the proposal with.",
        num_agents=2,
        train_items=items[:TRAIN],
        eval_items=items[TRAIN:],
        formatters=[solver_prompt, checker_prompt],
        reward=review_reward,
        transition=review_transition,
        metrics=review_metrics,
        explain=review_explain,
        columns=("question", "answer", "proposed"),
        suggested_config=SUGGESTED,
    )


def _item(a: int, b: int, right: bool, random_numbers: random.Random) -> dict[str, Any]:
    answer = a + b
    wrong = [answer + error for error in (-3, -2, -1, 1, 2, 3) if answer + error >= 0]
    proposed = answer if right else random_numbers.choice(wrong)
    return {"prompt": f"{a}+{b}=", "question": f"{a}+{b}", "answer": answer, "proposed": proposed}


# From builtin:tiny these reach, within minutes, what constant answers can earn (a fifth of the answers, half of the
# verdicts); adding takes a larger model.
SUGGESTED = {
    "num_turns": 2,
    "num_generations": 8,
    "max_new_tokens": 4,
    "agent_learning_rate": 3e-3,
    "num_train_epochs": 20,
    "early_termination_threshold": 1.9,  # the reward of two correct agents is 2
    "eval_num_samples": 15,
}
ARITHMETIC_REVIEW = arithmetic_review()
