"""Tasks from a user's Python file, and every way in which that can go wrong."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from workbench.tasks import TaskError, load_task

GOOD = """
from workbench.tasks import Task
import helper_of_my_task

def reward(first, second):
    return [helper_of_my_task.VALUE] * len(first)

TASK = Task(name="mine", train_items=[{"prompt": "x"}], reward=reward)
NOT_A_TASK = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper_of_my_task.py").write_text("VALUE = 0.5\n")
    (tmp_path / "my_task.py").write_text(GOOD)
    return tmp_path


def test_a_file_may_import_its_neighbours_and_its_functions_pickle(folder: Path) -> None:
    task = load_task("my_task.py:TASK", folder)
    assert task.reward(["a"], ["b"]) == [0.5]
    assert pickle.loads(pickle.dumps(task.reward))(["a"], ["b"]) == [0.5]


def test_an_absolute_path_ignores_the_base_folder(folder: Path) -> None:
    assert load_task(f"{folder}/my_task.py:TASK", Path("/")).name == "mine"


@pytest.mark.parametrize(
    ("source", "reference", "message"),
    [
        ("", "rendezvou", r"no task 'rendezvou' \(did you mean 'rendezvous'\?\)"),
        ("", "nowhere.py:TASK", "nowhere.py does not exist"),
        ("", "my_task.py", "path/to/file.py:OBJECT"),
        ("", "my_task.json:TASK", "path/to/file.py:OBJECT"),
        (GOOD, "my_task.py:TASKS", r"defines no 'TASKS' \(did you mean 'TASK'\?\)"),
        (GOOD, "my_task.py:NOT_A_TASK", "NOT_A_TASK in .* is a int, not a workbench.tasks.Task"),
        ("x = 1\nimport no_such_module_here\n", "my_task.py:TASK", "failed to import on line 2: ModuleNotFoundError"),
        ("x = 1\ndef broken(:\n", "my_task.py:TASK", "syntax error on line 2"),
        ("raise SystemExit('bye')", "my_task.py:TASK", "failed to import on line 1: SystemExit: bye"),
        (
            GOOD.replace("reward=reward", "reward=None"),
            "my_task.py:TASK",
            "line 8: Task 'mine': reward must be a function",
        ),
        (GOOD.replace("reward=reward", "rewards=reward"), "my_task.py:TASK", "line 8: TypeError: .*'rewards'"),
    ],
)
def test_each_failure_is_one_sentence(folder: Path, source: str, reference: str, message: str) -> None:
    (folder / "my_task.py").write_text(source)
    with pytest.raises(TaskError, match=message) as caught:
        load_task(reference, folder)
    assert "\n" not in str(caught.value)
