"""code_pair on the HumanEval problems with the shortest prompts, which a small model reads and answers fastest."""

from __future__ import annotations

import dataclasses

from workbench.tasks.code_pair import CODE_PAIR, eval_problems, train_problems

TRAIN, EVAL = 4, 4  # problems


def shortest(problems: list[dict[str, str]], count: int) -> list[dict[str, str]]:
    """The `count` problems with the shortest prompts, in that order."""
    return sorted(problems, key=lambda problem: len(problem["prompt"]))[:count]


TASK = dataclasses.replace(
    CODE_PAIR,
    name="code_pair_short",
    train_items=lambda: shortest(train_problems(), TRAIN),
    eval_items=lambda: shortest(eval_problems(), EVAL),
)
