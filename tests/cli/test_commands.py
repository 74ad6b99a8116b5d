"""The command line: what it prints, what it leaves on disk, and its exit codes.

Training is faked; what is tested is everything around it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

from fake_trainer import FakeTrainer, fail_with, interrupt, interrupt_twice, warn_user
from shell import Shell, assert_one_sentence
from typer.testing import CliRunner

from workbench.cli import app
from workbench.config import MARLOOConfig


def test_train_ends_with_the_run_folder(shell: Shell) -> None:
    result = shell.train("--set", "config.num_turns=2")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == str(shell.run.path)
    status = shell.run.read_status()
    assert (status.state, status.step, status.total, status.reward) == ("finished", 4, 4, 0.75)
    assert shell.run.spec().config["num_turns"] == 2
    assert (shell.run.model_folder / "agent_0" / "weights").read_text() == "trained"
    assert sorted(p.name for p in shell.run.path.iterdir() if p.suffix != ".lock" and not p.name.startswith(".")) == [
        "checkpoints", "log.txt", "model", "spec.yaml", "status.json", "trace.db"
    ]  # fmt: skip


def test_the_trainer_gets_what_the_task_and_the_spec_say(shell: Shell) -> None:
    shell.train(
        "--set",
        "tracking.mlflow=sqlite:///x.db",
        "--set",
        "tracking.experiment=e",
        "--set",
        "model_config.dtype=float32",
    )
    arguments = FakeTrainer.last.arguments
    assert (arguments["agent_model"], arguments["agents"], arguments["num_agents"]) == ("builtin:tiny", None, 2)
    assert arguments["model_config"] == {"dtype": "float32"}
    assert arguments["args"].max_new_tokens == 2
    assert arguments["eval_aggregator"]([{"turn_1/met": 1.0}], num_turns=1) == {"turn_1/met": 1.0}
    mlflow = arguments["mlflow_config"]
    assert (mlflow["tracking_uri"], mlflow["experiment"], mlflow["run_name"]) == ("sqlite:///x.db", "e", shell.run.id)
    assert mlflow["workspace"] == str(shell.workspace.root)
    assert FakeTrainer.last.checkpoint_dir == shell.run.checkpoint_folder


def test_warnings_reach_the_screen_and_the_log(shell: Shell) -> None:
    FakeTrainer.during = warn_user
    result = shell.train("--set", "config.discount=0.5")
    for message in ("discount is not used", "look out"):
        assert message in result.stderr
        assert message in shell.run.log_file.read_text()


def test_ctrl_c_saves_a_checkpoint_and_resume_goes_on(shell: Shell) -> None:
    FakeTrainer.during = interrupt
    result = shell.train()
    assert result.exit_code == 130
    assert result.stdout.splitlines()[-1] == str(shell.run.path)
    assert "workbench resume" in result.stderr
    assert (shell.run.read_status().state, shell.run.read_status().step) == ("stopped", 1)
    FakeTrainer.reset()
    result = shell("resume", shell.run.id, "--set", "config.agent_learning_rate=0.1")
    assert result.exit_code == 0, result.output
    assert FakeTrainer.last.resumed_from == shell.run.checkpoints()[1]
    assert FakeTrainer.last.arguments["args"].agent_learning_rate == 0.1
    assert shell.run.spec().config["agent_learning_rate"] == 0.1
    assert shell.run.read_status().state == "finished"


def test_a_second_ctrl_c_leaves_at_once(shell: Shell) -> None:
    FakeTrainer.during = interrupt_twice
    assert shell.train().exit_code == 130
    status = shell.run.read_status()
    assert (status.state, status.error) == ("stopped", "Interrupted before a checkpoint could be written.")
    assert not shell.run.model_folder.exists()


def test_resume_without_a_checkpoint_starts_over_and_says_so(shell: Shell) -> None:
    FakeTrainer.during = fail_with(ValueError("boom"))
    shell.train()
    FakeTrainer.reset()
    result = shell("resume", shell.run.id)
    assert result.exit_code == 0
    assert "no checkpoint yet; starting it from the beginning" in result.stderr
    assert FakeTrainer.last.resumed_from is None


def test_resume_passes_over_a_damaged_checkpoint(shell: Shell) -> None:
    FakeTrainer.during = interrupt
    shell.train()
    damaged = shell.run.checkpoint_folder / "step-00000003"
    damaged.mkdir()
    (damaged / "state.pt").write_text("no checkpoint")
    FakeTrainer.reset()
    result = shell("resume", shell.run.id)
    assert result.exit_code == 0, result.output
    assert "step-00000003 cannot be read" in result.stderr
    assert FakeTrainer.last.resumed_from == shell.run.checkpoints()[1]


def test_a_finished_run_is_not_trained_again_by_accident(shell: Shell) -> None:
    shell.train()
    assert_one_sentence(shell("resume", shell.run.id), "is finished; to train longer")
    assert_one_sentence(shell("resume", shell.run.id, "--set", "config.num_train_epochs=99"), "it has none")
    assert shell.run.read_status().state == "finished"


def test_a_running_run_is_not_started_twice(shell: Shell) -> None:
    def start_again(trainer: FakeTrainer) -> None:
        FakeTrainer.reset()
        assert_one_sentence(shell("resume", shell.run.id), "is running (process")

    FakeTrainer.during = start_again
    assert shell.train().exit_code == 0


def test_eval_prints_metrics(shell: Shell) -> None:
    shell.train()
    assert shell("eval", shell.run.id).stdout == "count\t4\neval/turn_1/reward_mean\t0.5\n"
    assert "count\t3" in shell("eval", shell.run.id, "--samples", 3).stdout


def test_play_uses_the_model_that_was_asked_for(shell: Shell) -> None:
    FakeTrainer.during = interrupt
    shell.train()
    run = shell.run.id
    assert "[step-00000001 builtin:tiny]" in shell("play", run).stdout
    assert "[initial builtin:tiny]" in shell("play", run, "--untrained").stdout
    FakeTrainer.reset()
    shell("resume", run)
    result = shell("play", run, "--prompt", "Where [now]?", "--samples", 2)
    assert result.stdout.count("[initial agent_0]") == 2
    assert "Where [now]?" in result.stdout
    assert "reward 0.7500" in result.stdout
    assert "[step-00000001 builtin:tiny]" in shell("play", run, "--checkpoint", 1).stdout
    assert_one_sentence(shell("play", run, "--checkpoint", 7), "no checkpoint of step 7; there are 1")
    assert_one_sentence(shell("play", run, "--item", 99), "has items 0 to 3")


def test_a_resumed_runs_checkpoints_are_newer_than_its_old_model(shell: Shell) -> None:
    FakeTrainer.during = interrupt
    shell.train()
    FakeTrainer.reset()
    shell("resume", shell.run.id)
    FakeTrainer.during = interrupt
    FakeTrainer.items = 9
    try:
        shell("resume", shell.run.id, "--set", "config.num_train_epochs=99")
    finally:
        FakeTrainer.items = 4
    assert "[step-00000002 builtin:tiny]" in shell("play", shell.run.id).stdout


def test_status_is_readable_json(shell: Shell) -> None:
    shell.train()
    status = json.loads(shell.run.status_file.read_text())
    assert {"state", "phase", "step", "total", "pid", "started", "heartbeat", "error"} <= set(status)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, workbench.cli, workbench.runs.spec, workbench.runs.workspace, workbench.tasks\n"
        "heavy = {'torch', 'transformers', 'mlflow', 'datasets', 'pandas', 'streamlit'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_config_lists_every_field_with_its_help(shell: Shell) -> None:
    result = CliRunner().invoke(app, ["config", "marloo"])
    assert result.exit_code == 0, result.output
    for field in dataclasses.fields(MARLOOConfig):
        assert field.name in result.output
    assert "'rloo'" in result.output
    assert "mean, max, rloo, raw" in result.output


def test_config_of_an_unknown_algorithm_suggests_one() -> None:
    assert_one_sentence(CliRunner().invoke(app, ["config", "magrp"]), "did you mean 'magrpo'?")
