"""Loading a task from a user's Python file."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from workbench.fields import did_you_mean
from workbench.tasks.base import Task, TaskError


def is_file_reference(reference: str) -> bool:
    """True for `path/to/file.py:OBJECT`, also when the object or the ending is missing."""
    return ":" in reference or reference.endswith(".py") or "/" in reference


def absolute_reference(reference: str, base_folder: Path) -> str:
    """The same task, valid from any folder: a file's path made absolute, a built-in name as it is."""
    if not is_file_reference(reference):
        return reference
    file, name = split_reference(reference)
    return f"{(base_folder / Path(file).expanduser()).resolve()}:{name}"


def split_reference(reference: str) -> tuple[str, str]:
    """(file, object) of `file.py:OBJECT`."""
    file, colon, name = reference.rpartition(":")
    if not colon or not name.isidentifier() or not file.endswith(".py"):
        raise TaskError(
            f"A task of your own is written path/to/file.py:OBJECT, such as my_task.py:TASK, got {reference!r}."
        )
    return file, name


def load_task_file(reference: str, base_folder: Path) -> Task:
    """The Task object of `path/to/file.py:OBJECT`; see `workbench.tasks.load_task`."""
    file, name = split_reference(reference)
    path = (base_folder / Path(file).expanduser()).resolve()
    if not path.is_file():
        raise TaskError(f"The task file {path} does not exist; check the path in task: {reference}.")
    module = import_file(path)
    if name not in vars(module):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise TaskError(f"The task file {path} defines no {name!r}{did_you_mean(name, public)}.")
    task = vars(module)[name]
    if not isinstance(task, Task):
        raise TaskError(
            f"{name} in {path} is a {type(task).__name__}, not a workbench.tasks.Task; make it TASK = Task(...)."
        )
    return task


def import_file(path: Path) -> ModuleType:
    """Run the file as a module of its own. Its folder joins the import path, after everything else."""
    # The name is unique per path, so that two files called task.py do not meet in sys.modules.
    name = f"workbench_task_{path.stem}_{hashlib.sha1(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TaskError(f"The task file {path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the file raises, SystemExit included, is its failure
        del sys.modules[name]
        raise TaskError(f"The task file {path} {_failure(error, path)}.") from error
    return module


def _failure(error: BaseException, path: Path) -> str:
    """What went wrong and on which line of the user's file."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"has a syntax error on line {error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f" on line {frames[-1].lineno}" if frames else ""
    message = " ".join(str(error).split()).rstrip(".")
    text = message if isinstance(error, TaskError) else f"{type(error).__name__}: {message}"
    return f"failed to import{where}: {text}"
