"""Errors as sentences: ours as they are, a user's with type, file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbench.rewards import RewardFunction
from workbench.runs.errors import sentence
from workbench.tasks import load_task


def caught(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - any error is the point
        return error
    raise AssertionError("nothing was raised")


def test_an_error_in_the_users_reward_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "my_reward.py"
    code = "def reward(first, second):\n    return [len(first) / 0]\n"
    namespace: dict[str, Callable[..., object]] = {}
    exec(compile(code, str(file), "exec"), namespace)
    function = RewardFunction(namespace["reward"], 2)
    error = caught(lambda: function([["a"], ["b"]], "prompt", {}, "item 0"))
    assert sentence(error) == f"ZeroDivisionError: division by zero ({file}, line 2, in reward)."


def test_our_own_sentences_stay_as_they_are() -> None:
    error = caught(lambda: load_task("nothing", Path()))
    assert sentence(error) == str(error)


def test_our_own_mistakes_keep_their_type() -> None:
    assert sentence(caught(lambda: load_task(None, Path()))).startswith("TypeError: ")  # type: ignore[arg-type]


def test_an_error_without_words_is_named() -> None:
    assert sentence(NotImplementedError()) == "NotImplementedError."
