"""`dataset:` in a run spec: real json, csv and parquet files become a task's items, or one sentence says why not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.runs.spec import ResolvedRun, RunSpec, SpecError
from workbench.runs.workspace import Workspace
from workbench.tasks import TASKS, TaskError
from workbench.tracking.trace import read_completions

ROWS = [{"post": f"Post number {number}.", "votes": number} for number in range(10)]
SPEC: dict[str, Any] = {"name": "t", "task": "summary_pair", "algorithm": "magrpo", "model": "builtin:tiny"}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (tmp_path / "two.json").write_text(json.dumps(ROWS[:2]))
    pd.DataFrame(ROWS).to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame(ROWS).to_parquet(tmp_path / "rows.parquet")
    return tmp_path


def resolved(folder: Path, dataset: Any, **changes: Any) -> ResolvedRun:
    return RunSpec.parse({**SPEC, "dataset": dataset, **changes}, "spec.yaml", folder).resolve()


def train_rows(folder: Path, dataset: Any, **changes: Any) -> list[Any]:
    items = resolved(folder, dataset, **changes).task.load_train_items()
    return [items[index] for index in range(len(items))]


@pytest.mark.parametrize(
    "dataset",
    [
        {"path": "rows.jsonl"},
        {"path": "rows.csv"},
        {"path": "rows.parquet"},
        {"path": "json", "data_files": "rows.jsonl"},
        {"path": "json", "data_files": ["rows.jsonl"]},
        {"path": "csv", "data_files": {"train": "rows.csv"}},
        {"path": "parquet", "data_files": "rows.*quet"},
        {"path": "csv", "data_files": {"mine": "rows.csv"}, "split": "mine"},
    ],
)
def test_files_of_every_kind_give_the_same_items(folder: Path, dataset: dict[str, Any]) -> None:
    rows = train_rows(folder, {**dataset, "columns": {"prompt": "post"}})
    assert rows == [{**row, "prompt": row["post"]} for row in ROWS]


def test_a_name_alone_is_the_file(folder: Path) -> None:
    pd.DataFrame([{"prompt": "a"}, {"prompt": "b"}]).to_csv(folder / "mine.csv", index=False)
    assert train_rows(folder, "mine.csv") == [{"prompt": "a"}, {"prompt": "b"}]


def test_a_folder_of_files(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "train.jsonl").write_text('{"prompt": "a"}\n')
    (folder / "data" / "test.jsonl").write_text('{"prompt": "b"}\n')
    task = resolved(folder, {"path": "data", "eval_split": "test"}).task
    held_out = task.load_eval_items()
    assert task.load_train_items()[0] == {"prompt": "a"}
    assert held_out is not None
    assert held_out[0] == {"prompt": "b"}


def test_splits_and_limit(folder: Path) -> None:
    dataset = {"path": "rows.jsonl", "columns": {"prompt": "post"}, "split": "train[:80%]", "eval_split": "train[80%:]"}
    task = resolved(folder, dataset).task
    train, held_out = task.load_train_items(), task.load_eval_items()
    assert held_out is not None
    assert [[rows[i]["votes"] for i in range(len(rows))] for rows in (train, held_out)] == [list(range(8)), [8, 9]]
    assert [row["votes"] for row in train_rows(folder, {**dataset, "limit": 3})] == [0, 1, 2]
    assert len(train_rows(folder, {**dataset, "limit": 99})) == 8


def test_without_an_eval_split_there_are_no_evaluation_items(folder: Path) -> None:
    task = resolved(folder, {"path": "rows.jsonl", "columns": {"prompt": "post"}}).task
    assert task.load_eval_items() is None


def test_columns_can_be_swapped_and_used_twice(folder: Path) -> None:
    (folder / "ab.jsonl").write_text('{"prompt": "p", "post": "q"}\n')
    rows = train_rows(folder, {"path": "ab.jsonl", "columns": {"prompt": "post", "post": "prompt", "other": "post"}})
    assert rows == [{"prompt": "q", "post": "p", "other": "q"}]


def test_a_changed_file_is_read_again_by_the_next_run(folder: Path) -> None:
    file = folder / "mine.jsonl"
    file.write_text('{"prompt": "old"}\n')
    assert train_rows(folder, "mine.jsonl") == [{"prompt": "old"}]
    file.write_text('{"prompt": "newer"}\n')
    assert train_rows(folder, "mine.jsonl") == [{"prompt": "newer"}]


def test_one_run_loads_a_split_once(folder: Path) -> None:
    task = resolved(folder, {"path": "rows.jsonl", "columns": {"prompt": "post"}}).task
    first = task.load_train_items()
    (folder / "rows.jsonl").unlink()
    assert task.load_train_items() is first


def test_any_task_takes_a_dataset_that_has_its_columns(folder: Path) -> None:
    (folder / "sums.csv").write_text("question,answer,proposed\n2+2,4,5\n")
    run = resolved(folder, "sums.csv", task="arithmetic_review")
    (item,) = [run.task.load_train_items()[0]]
    assert run.task.reward(["4"], ["no"], batch_items=[item]) == [2.0]
    assert run.config.num_turns == 2  # the task stays what it was


def test_a_resolved_spec_repeats_the_run_from_anywhere(folder: Path) -> None:
    run = resolved(folder, {"path": "json", "data_files": {"train": ["two.json"]}, "columns": {"prompt": "post"}})
    copy = folder / "elsewhere" / "spec.yaml"
    copy.parent.mkdir()
    copy.write_text(run.spec.dump())
    assert RunSpec.load(copy) == run.spec
    again = RunSpec.load(copy, ["dataset.limit=1"]).resolve().task.load_train_items()
    assert [again[i]["prompt"] for i in range(len(again))] == ["Post number 0."]


def test_names_that_are_not_local_stay_as_they_are(folder: Path) -> None:
    spec = resolved(folder, {"path": "org/name", "data_files": "part/one.json"}).spec
    assert spec.dataset is not None
    assert (spec.dataset.path, spec.dataset.data_files) == ("org/name", "part/one.json")
    url = resolved(folder, {"path": "json", "data_files": "https://example.org/x.json"}).spec
    assert url.dataset is not None
    assert url.dataset.data_files == "https://example.org/x.json"


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"path": "rows.csv", "colums": {}}, r"unknown key 'dataset.colums' \(did you mean 'columns'\?\)"),
        ({"data_files": "rows.csv"}, "the key 'dataset.path' is missing"),
        ({"path": "rows.csv", "limit": 0}, "dataset.limit must be a whole number of at least 1, got 0"),
        ({"path": "rows.csv", "limit": True}, "dataset.limit must be a whole number of at least 1, got True"),
        ({"path": "rows.csv", "columns": ["post"]}, "dataset.columns must be a group of keys"),
        ({"path": "csv", "data_files": {"train": {}}}, "dataset.data_files must be a file, a list of files"),
        ({"path": ""}, "dataset.path must not be empty"),
        ([1], "dataset must be a dataset's name, a data file, or a group of keys"),
    ],
)
def test_each_bad_key_is_one_sentence(folder: Path, dataset: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        resolved(folder, dataset)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"path": "json"}, "reads files; name them in dataset.data_files"),
        ({"path": "a.csv", "data_files": "b.csv"}, "write path: csv and keep the files in data_files"),
        ({"path": "gone.csv"}, r"The data file .*gone\.csv does not exist"),
        ({"path": "json", "data_files": ["two.json", "gone.json"]}, r"The data file .*gone\.json does not exist"),
        ({"path": "json", "data_files": "gone*.json"}, r"The data file .*gone\*\.json does not exist"),
        ({"path": "./gone"}, "Dataset '.*gone', split 'train': Couldn't find any data file"),
        ({"path": "rows.csv", "split": "test"}, """split 'test': Unknown split "test". Should be one of"""),
        ({"path": "rows.csv", "split": "train[5:5]"}, "corresponds to no data"),
        ({"path": "rows.csv"}, "no column 'prompt', which task 'summary_pair' needs; it has post, votes: name the one"),
        (
            {"path": "rows.csv", "columns": {"prompt": "pst"}},
            r"no column 'pst' \(did you mean 'post'\?\) for 'prompt'; it has post, votes",
        ),
        ({"path": "bad.jsonl"}, "JSON parse error"),
        ({"path": "empty.jsonl"}, "has no rows; its files are empty"),
        ({"path": "notparquet.parquet"}, "Parquet file size is 5 bytes"),
        ({"path": "holes.jsonl"}, "has 2 of 3 rows without a value in 'prompt'"),
    ],
)
def test_each_bad_dataset_is_one_sentence(folder: Path, dataset: Any, message: str) -> None:
    (folder / "bad.jsonl").write_text('{"prompt": "a"}\n{')
    (folder / "empty.jsonl").write_text("")
    (folder / "notparquet.parquet").write_text("hello")
    (folder / "holes.jsonl").write_text('{"prompt": null}\n{"prompt": "a"}\n{"prompt": null}\n')
    with pytest.raises(TaskError, match=message) as caught:
        train_rows(folder, dataset)
    assert "\n" not in str(caught.value)


def test_a_column_that_only_a_formatter_knows_is_named(folder: Path) -> None:
    (folder / "my_task.py").write_text(
        "from workbench.tasks import Task\n"
        "TASK = Task(name='mine', train_items=[{'q': 'x'}], reward=lambda a, b: [0.0] * len(a),\n"
        "            formatters=lambda item: item['q'])\n"
    )
    with pytest.raises(TaskError, match="no column 'q', which task 'mine' needs; it has post, votes"):
        train_rows(folder, "rows.csv", task="my_task.py:TASK")
    rows = train_rows(folder, {"path": "rows.csv", "columns": {"q": "post"}}, task="my_task.py:TASK")
    assert rows[0]["q"] == "Post number 0."


def test_a_spec_with_a_dataset_is_read_and_resolved_without_heavy_packages(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from workbench.runs.spec import RunSpec\n"
        f"RunSpec.parse({ {**SPEC, 'dataset': 'rows.csv'}!r}, 's', Path({str(folder)!r})).resolve()\n"
        "print([name for name in ('torch', 'transformers', 'datasets', 'pandas') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_training_evaluation_and_play_use_the_dataset(folder: Path) -> None:
    (folder / "mine.jsonl").write_text("".join(f'{{"ask": "Pick {letter}:"}}\n' for letter in "ABCDE"))
    (folder / "spec.yaml").write_text(
        "{name: t, task: rendezvous, algorithm: magrpo, model: 'builtin:tiny', tracking: {mlflow: false},\n"
        " config: {num_train_epochs: 1, num_generations: 2, eval_interval: 0},\n"
        " dataset: {path: mine.jsonl, columns: {prompt: ask}, split: 'train[:3]', eval_split: 'train[3:]'}}\n"
    )

    def workbench(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--workspace", str(folder)])
        assert result.exit_code == 0, result.output
        return result.stdout

    workbench("train", str(folder / "spec.yaml"))
    (run,) = Workspace(folder).runs()
    assert set(read_completions(run.trace_file).prompt) == {"Pick A:", "Pick B:", "Pick C:"}
    assert "Pick E:" in workbench("play", run.id, "--item", "1")
    assert "eval/turn_1/reward_mean" in workbench("eval", run.id)


@pytest.mark.parametrize("algorithm", ["maac", "iac"])
def test_an_actor_critic_takes_a_task_of_several_turns_without_its_number_of_generations(
    folder: Path, algorithm: str
) -> None:
    config = resolved(folder, None, task="arithmetic_review", algorithm=algorithm).config
    assert (config.num_turns, config.num_generations) == (2, 1)
    assert resolved(folder, None, task="rendezvous", algorithm=algorithm).config.num_generations == 16


def test_an_unreachable_hub_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        TaskError, match=r"Dataset 'no-such-org/no-such-set', .*name local files in dataset\.data_files"
    ):
        train_rows(folder, "no-such-org/no-such-set")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": "prompt"}, "columns must be a list of column names, got 'prompt'"),
        ({"columns": [1]}, "columns must be a list of column names"),
        ({"explain": "why"}, "explain must be a function"),
        ({"explain": lambda texts: {}}, "explain is called as explain"),
    ],
)
def test_a_tasks_columns_and_explanation_are_checked_when_it_is_built(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        replace(TASKS["summary_pair"], **changes)
