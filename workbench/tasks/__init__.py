"""Tasks: the built-in ones by name, your own from a Python file."""

from __future__ import annotations

from pathlib import Path

from workbench.fields import did_you_mean
from workbench.tasks.abstract_pair import ABSTRACT_PAIR
from workbench.tasks.arithmetic_review import ARITHMETIC_REVIEW, arithmetic_review
from workbench.tasks.base import Task, TaskError
from workbench.tasks.code_pair import CODE_PAIR
from workbench.tasks.files import is_file_reference, load_task_file
from workbench.tasks.rendezvous import RENDEZVOUS, rendezvous
from workbench.tasks.story_length import STORY_LENGTH, STORY_LENGTH_CHAT
from workbench.tasks.summary_pair import SUMMARY_PAIR

__all__ = ["TASKS", "Task", "TaskError", "arithmetic_review", "load_task", "rendezvous"]

TASKS: dict[str, Task] = {
    "rendezvous": RENDEZVOUS,
    "story_length": STORY_LENGTH,
    "story_length_chat": STORY_LENGTH_CHAT,
    "summary_pair": SUMMARY_PAIR,
    "abstract_pair": ABSTRACT_PAIR,
    "arithmetic_review": ARITHMETIC_REVIEW,
    "code_pair": CODE_PAIR,
}
"""The built-in tasks by the name a run spec uses."""


def load_task(reference: str, base_folder: Path) -> Task:
    """The task that `reference` names: a key of TASKS, or `path/to/file.py:OBJECT`.

    A relative path starts at `base_folder`. Raises TaskError with one sentence when the name,
    file or object does not exist, the file fails to run, or the object is not a Task.
    """
    if is_file_reference(reference):
        return load_task_file(reference, base_folder)
    if reference not in TASKS:
        known = ", ".join(TASKS)
        raise TaskError(
            f"There is no task {reference!r}{did_you_mean(reference, list(TASKS))}; "
            f"use one of {known}, or path/to/file.py:OBJECT for your own."
        )
    return TASKS[reference]
