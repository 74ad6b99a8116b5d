"""Another dataset in place of a task's own items: what a spec's `dataset:` key says, and how it is loaded.

Anything that `datasets.load_dataset` reads: a hub name, a local folder, or json, csv, parquet, arrow and text files.
Nothing is loaded or downloaded before the items are asked for; only then is `datasets` imported.
"""

from __future__ import annotations

import functools
import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import pydantic
from pydantic import BaseModel, ConfigDict

from workbench.callbacks import format_prompt, resolve_formatters
from workbench.fields import did_you_mean
from workbench.tasks.base import Items, Task, TaskError
from workbench.types import Item

if TYPE_CHECKING:
    from datasets import Dataset

BUILDERS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet",
            ".arrow": "arrow", ".txt": "text"}  # fmt: skip
"""The reader of a data file by the ending of its name; its name is also a valid `path`, with `data_files`."""
COMPRESSED = {".gz", ".bz2", ".xz", ".zst"}

Text = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1)]
Files = Text | list[Text]
Count = Annotated[int, pydantic.Field(strict=True, ge=1)]


class DatasetSpec(BaseModel):
    """The rows to use instead of a task's own. A text alone is the path: `dataset: trl-lib/tldr`, `dataset: rows.csv`.

    path: a hub name, a local folder, a data file, or the reader of `data_files` (json, csv, parquet, arrow, text).
    data_files: a file, a list of files, or one of these per split name; patterns such as *.jsonl are fine.
    name: the dataset's configuration. revision: version of a hub dataset. split: the rows to train on, such as train
    or train[:90%]. eval_split: the rows to evaluate on; without one, there are none. columns: `prompt: post` shows the
    task the dataset's column post as prompt. limit: use the first so many rows of each split.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    path: Text
    name: Text | None = None
    data_files: Files | dict[str, Files] | None = None
    revision: Text | None = None
    split: Text = "train"
    eval_split: Text | None = None
    columns: dict[str, Text] = {}
    limit: Count | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        return {"path": data} if isinstance(data, str) else data

    def located(self, base_folder: Path) -> Self:
        """The same dataset, valid from any folder: local files and folders absolute, from `base_folder`.

        Raises TaskError when a file is named twice, or a reader has no files to read.
        """
        builder = _builder_of(self.path)
        if builder is not None and self.data_files is not None:
            raise TaskError(
                f"dataset.path is the file {self.path!r} and dataset.data_files names files, too; "
                f"write path: {builder} and keep the files in data_files."
            )
        if builder is not None:
            return self.model_copy(update={"path": builder, "data_files": _absolute(self.path, base_folder)})
        if self.path in BUILDERS.values():
            return self.model_copy(update={"data_files": self._absolute_files(base_folder)})
        folder = base_folder / Path(self.path).expanduser()
        is_local = folder.is_dir() or self.path.startswith((".", "~", "/"))
        return self.model_copy(update={"path": str(folder.resolve()) if is_local else self.path})

    def _absolute_files(self, base_folder: Path) -> Any:
        if not self.data_files:
            raise TaskError(f"dataset.path is {self.path}, which reads files; name them in dataset.data_files.")
        if isinstance(self.data_files, dict):
            return {split: _each(files, base_folder) for split, files in self.data_files.items()}
        return _each(self.data_files, base_folder)


def with_dataset(task: Task, dataset: DatasetSpec) -> Task:
    """The task with a (located) dataset's rows as its items. They load when they are first asked for, once.

    Loading raises TaskError with one sentence when a file, split or column is missing or a needed value is empty.
    """
    evaluation: Callable[[], Items] | None = None
    if dataset.eval_split is not None:
        evaluation = functools.cache(functools.partial(load_items, task, dataset, dataset.eval_split))
    return replace(
        task,
        train_items=functools.cache(functools.partial(load_items, task, dataset, dataset.split)),
        eval_items=evaluation,
    )


def load_items(task: Task, dataset: DatasetSpec, split: str) -> Items:
    """The rows of one split with the columns that `task` needs; see `with_dataset`."""
    rows = _load(dataset, split)
    if dataset.limit is not None:
        rows = rows.select(range(min(dataset.limit, len(rows))))
    what = f"Dataset {_named(dataset)}, split {split!r},"
    if len(rows) == 0:
        raise TaskError(f"{what} has no rows; choose another split.")
    _check_columns(task, dataset, rows, what)
    items: Items = Renamed(rows, dataset.columns) if dataset.columns else rows
    _check_formatters(task, items[0], what)
    return items


@dataclass(frozen=True)
class Renamed:
    """Rows that also have other rows' columns under the names of `columns` (new name -> name in `rows`)."""

    rows: Items
    columns: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Item]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int, /) -> Item:
        row = self.rows[index]
        return {**row, **{name: row[source] for name, source in self.columns.items()}}


def _load(dataset: DatasetSpec, split: str) -> Dataset:
    _check_files(dataset)
    import datasets  # takes a second, and most runs have no dataset of their own

    try:
        return datasets.load_dataset(
            dataset.path, dataset.name, data_files=dataset.data_files, split=split, revision=dataset.revision
        )
    except StopIteration:  # what an empty json file gives
        raise TaskError(f"Dataset {_named(dataset)} has no rows; its files are empty.") from None
    except (datasets.exceptions.DatasetsError, OSError, ValueError) as error:
        raise TaskError(f"Dataset {_named(dataset)}, split {split!r}: {_reason(error)}.") from error


def _check_files(dataset: DatasetSpec) -> None:
    """TaskError for the first local data file that is not there."""
    if dataset.path not in BUILDERS.values():
        return
    files = dataset.data_files if isinstance(dataset.data_files, dict) else {"": dataset.data_files or []}
    for listed in files.values():
        for file in [listed] if isinstance(listed, str) else listed:
            if "://" not in file and not Path(file).is_file() and not glob.glob(file, recursive=True):
                raise TaskError(f"The data file {file} does not exist; check the path in dataset.")


def _check_columns(task: Task, dataset: DatasetSpec, rows: Dataset, what: str) -> None:
    known = list(rows.column_names)
    for name, source in dataset.columns.items():
        if source not in known:
            raise TaskError(
                f"{what} has no column {source!r}{did_you_mean(source, known)} for {name!r}; "
                f"it has {', '.join(known)}. Correct dataset.columns."
            )
    for name in task.columns:
        if name not in dataset.columns and name not in known:
            raise TaskError(_missing(name, task, known, what))
    for name in dict.fromkeys([*task.columns, *dataset.columns]):
        source = dataset.columns.get(name, name)
        empty = rows.data.column(source).null_count
        if empty:
            raise TaskError(f"{what} has {empty} of {len(rows)} rows without a value in {source!r}; remove them.")


def _check_formatters(task: Task, item: Item, what: str) -> None:
    """TaskError when a formatter asks the first row for a column that it does not have."""
    if task.formatters is None and "prompt" not in item:
        raise TaskError(_missing("prompt", task, list(item), what))
    for agent, formatter in enumerate(resolve_formatters(task.formatters, task.num_agents)):
        try:
            format_prompt(formatter, item, None, f"agent {agent} for the first row")
        except KeyError as error:
            raise TaskError(_missing(str(error.args[0]), task, list(item), what)) from error


def _missing(name: str, task: Task, known: Sequence[str], what: str) -> str:
    return (
        f"{what} has no column {name!r}, which task {task.name!r} needs; it has {', '.join(known)}: "
        f"name the one to use in dataset.columns, such as columns: {{{name}: {known[0]}}}."
    )


def _named(dataset: DatasetSpec) -> str:
    files = dataset.data_files
    return repr(files if isinstance(files, str) else dataset.path)


def _reason(error: BaseException) -> str:
    """The innermost cause as half a sentence; `datasets` hides a parser's words behind words of its own."""
    import datasets

    text = " ".join(str(error).split())
    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__ is not None:
        text = f"{text} ({' '.join(str(error.__cause__).split()).rstrip('.')})"
    if isinstance(error, ConnectionError | datasets.exceptions.DatasetNotFoundError):
        text = f"{text.rstrip('.')}; check its name and the network, or name local files in dataset.data_files"
    return text.rstrip(".")


def _builder_of(path: str) -> str | None:
    """The reader of a file with this name, None when it is not the name of a data file."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in COMPRESSED]
    return BUILDERS.get(suffixes[-1]) if suffixes else None


def _each(files: str | list[str], base_folder: Path) -> str | list[str]:
    return _absolute(files, base_folder) if isinstance(files, str) else [_absolute(f, base_folder) for f in files]


def _absolute(file: str, base_folder: Path) -> str:
    return file if "://" in file else str((base_folder / Path(file).expanduser()).resolve())
