"""`workbench tasks`: the list, an item as each agent sees it, typed answers, and a template that runs at once."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from shell import assert_one_sentence
from typer.testing import CliRunner, Result

from workbench.cli import app
from workbench.runs.workspace import Workspace
from workbench.tasks import TASKS, Task
from workbench.terminal import WIDTH_OF_A_PIPE
from workbench.tracking.trace import read_nodes

MINE = """
from workbench.tasks import Task
TASK = Task(name="mine", description="[bold] words", train_items=[{"q": "x"}], num_agents=1,
            formatters=lambda item: item["q"] + "?", reward=lambda texts: [None] * len(texts))
TWO = Task(name="two", train_items=[{"prompt": "x"}], reward=lambda a, b: [[1.0], [-2.0]])
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(WIDTH_OF_A_PIPE))
    (tmp_path / "my_task.py").write_text(MINE)
    return tmp_path


def tasks(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tasks", *arguments])


def test_the_list_names_every_task_with_agents_turns_and_cooperation() -> None:
    result = tasks()
    assert result.exit_code == 0, result.output
    cells = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:4]]
        for line in result.stdout.splitlines()
        if line.startswith("│") and line.split("│")[1].strip()
    }
    assert list(cells) == list(TASKS)
    assert cells["rendezvous"] == ["2", "1+"]
    assert cells["summary_pair"] == ["2", "1"]
    assert cells["arithmetic_review"] == ["2", "2+"]
    assert "what cooperation means" in result.stdout


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_built_in_task_says_what_it_is_and_what_cooperation_means(task: Task) -> None:
    assert task.description.endswith(".")
    assert task.cooperation.endswith(".")


@pytest.mark.parametrize("name", TASKS)
def test_every_built_in_task_shows_its_first_item(name: str) -> None:
    result = tasks("show", name)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("turn 1, agent ") == TASKS[name].num_agents
    assert "reward" not in result.stdout.splitlines()[-1]


def test_show_prints_what_each_agent_sees_and_scores_two_answers() -> None:
    result = tasks("show", "arithmetic_review", "--item", "1", "--answer", "It is 5", "--answer", "no")
    (item,) = [TASKS["arithmetic_review"].load_eval_items()[1]]  # type: ignore[index]
    question, proposed = item["question"], item["proposed"]
    lines = result.stdout.splitlines()
    assert lines[lines.index("turn 1, agent 0 is shown:") + 1] == f"{question}="
    assert lines[lines.index("turn 1, agent 1 is shown:") + 1] == f"{question}={proposed} yes or no:"
    reward = (item["answer"] == 5) + (proposed != item["answer"])
    assert f"reward {reward:.4f}" in lines
    start = lines.index("turn 2, agent 0 is shown:")
    assert lines[start + 1 : start + 3] == [f"Checker on {question}={proposed}: no", f"{question}="]


def test_show_explains_a_reward_level_by_level() -> None:
    result = tasks("show", "summary_pair", "--answer", "a b c d e f g h", "--answer", "a b c d e f g h")
    assert "  1 words (words 8 and 8, allowed 8 to 256): 0.5000\n" in result.stdout
    assert "  2 length (length ratio 1.000, full in 1.6 to 3.2, nothing outside 1.1 to 5.0): 0.0000\n" in result.stdout
    assert ": not reached\nreward 0.5000\n" in result.stdout
    assert "user: Summarize this post in one or two short sentences.\n" in result.stdout


def test_show_takes_a_task_of_ones_own() -> None:
    result = tasks("show", "my_task.py:TASK", "--answer", "anything")
    assert result.stdout.splitlines()[0] == "mine: [bold] words"
    assert "agent 0 is shown:\nx?\n" in result.stdout
    assert "reward none (unscored)" in result.stdout


def test_rewards_that_differ_between_agents_are_all_shown() -> None:
    assert "reward 1.0000, -2.0000" in tasks("show", "my_task.py:TWO", "--answer", "a", "--answer", "b").stdout


def test_show_takes_a_spec_with_its_dataset(here: Path) -> None:
    (here / "rows.csv").write_text("text\nMy very own post.\n")
    (here / "run.yaml").write_text(
        "name: t\ntask: summary_pair\nalgorithm: magrpo\nmodel: builtin:tiny\n"
        "dataset: {path: rows.csv, columns: {prompt: text}}\n"
    )
    result = tasks("show", "run.yaml")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("My very own post.") == 2


def test_answers_are_asked_for_on_a_terminal(here: Path) -> None:
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "workbench.cli", "tasks", "show", "rendezvous"],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(terminal)
        os.write(controller, b"B\n\n")  # agent 1 writes nothing
        out, errors = process.communicate(timeout=120)
    os.close(controller)
    assert process.returncode == 0, errors
    assert "agent 0 writes" in errors
    assert "reward 0.2000" in out  # half of 0.4 for the one symbol


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "sumary_pair"], "no task 'sumary_pair' (did you mean 'summary_pair'?)"),
        (["show", "rendezvous", "--item", "4"], "items 0 to 3; there is no item 4"),
        (["show", "rendezvous", "--item", "-1"], "there is no item -1"),
        (
            ["show", "rendezvous", "--answer", "A"],
            "has 2 agents; give --answer once for each, in their order (1 given)",
        ),
        (["show", "gone.py:TASK"], "gone.py does not exist"),
        (["show", "my_task.py:TSK"], "defines no 'TSK' (did you mean 'TASK'?)"),
        (["show", "gone.yaml"], "gone.yaml does not exist"),
        (["new", "my_task.py"], "my_task.py is there already and stays as it is"),
        (["new", "my_task.txt"], "must be a Python file named by letters"),
        (["new", 'a"b.py'], "must be a Python file named by letters"),
        (["new", "nowhere/my_task.py"], "The folder nowhere does not exist"),
    ],
)
def test_each_mistake_is_one_sentence(here: Path, arguments: list[str], message: str) -> None:
    assert_one_sentence(tasks(*arguments), message)
    assert (here / "my_task.py").read_text() == MINE


def test_debug_shows_the_traceback() -> None:
    result = tasks("show", "nothing", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("file", ["fresh.py", "sub/fresh-one.py"])
def test_a_new_task_trains_at_once(here: Path, file: str) -> None:
    (here / "sub").mkdir()
    made = tasks("new", file)
    assert made.exit_code == 0, made.output
    (here / "spec.yaml").write_text(made.stdout)  # comments and all
    shown = tasks("show", f"{file}:TASK", "--answer", "ab", "--answer", "ba")
    assert "reward 1.0000" in shown.stdout
    quick = ["config.num_train_epochs=1", "config.num_generations=2", "tracking.mlflow=false"]
    trained = CliRunner().invoke(app, ["train", "spec.yaml", *(part for s in quick for part in ("--set", s))])
    assert trained.exit_code == 0, trained.output
    (run,) = Workspace(here).runs()
    nodes = read_nodes(run.trace_file)
    assert sorted(nodes[nodes.phase == "train"].item) == [0, 1, 2, 3]


def test_the_spec_in_the_template_is_the_spec_that_is_printed(here: Path) -> None:
    printed = tasks("new", "fresh.py").stdout.splitlines()[1:]
    written = (here / "fresh.py").read_text().splitlines()
    assert [line.removeprefix("# ") for line in written[-len(printed) :]] == printed
