"""Errors as sentences: ours as they are, a user's with type, file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workbench.rewards import RewardFunction
from workbench.runs.errors import OUT_OF_MEMORY, sentence
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


def in_a_thread() -> None:
    with ThreadPoolExecutor() as pool:
        pool.submit(json.loads, "{").result()


def test_a_place_is_never_in_pythons_own_library(tmp_path: Path) -> None:
    assert sentence(caught(in_a_thread)).endswith("in in_a_thread).")
    with ThreadPoolExecutor() as pool:
        error = pool.submit(json.loads, "{").exception()
    assert error is not None
    assert (
        sentence(error)
        == "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."
    )


def test_a_neighbour_of_the_package_is_not_the_package(tmp_path: Path) -> None:
    import workbench

    file = f"{Path(workbench.__file__).parent}_of_mine/reward.py"
    namespace: dict[str, Callable[..., object]] = {}
    exec(compile("def reward():\n    raise ValueError('mine')\n", file, "exec"), namespace)
    assert sentence(caught(namespace["reward"])) == f"ValueError: mine ({file}, line 2, in reward)."


def test_out_of_memory_promises_the_same_result_only_where_it_holds() -> None:
    same = OUT_OF_MEMORY.partition("(same result")[0]
    assert "micro_batch_size" in same
    assert "generation_batch_size" not in same
