"""Every error of a command is one sentence and a non-zero exit, and `workbench runs` still works."""

from __future__ import annotations

import errno
import socket

import filelock
import pytest
from fake_trainer import FakeTrainer, fail_with, interrupt
from shell import SPEC, Shell, assert_one_sentence

from workbench.runs.workspace import RunFolder, RunStatus
from workbench.tracking.trace import read_metrics
from workbench.trainers import Algorithm

IAC = SPEC.replace("magrpo", "iac")
SHARED = IAC + "config: {use_separate_critic: false}\n"
TASKS = """
from workbench.tasks import Task
items, reward = [{"prompt": "x"}], lambda first, second: [0.0] * len(first)
EMPTY = Task(name="empty", train_items=lambda: [], reward=reward)
ARITY = Task(name="arity", train_items=items, reward=lambda texts: [0.0])
FORMATTER = Task(name="formatter", train_items=items, reward=reward, formatters=[lambda: "x", lambda item: "y"])
TRANSITION = Task(name="transition", train_items=items, reward=reward, transition=lambda item: ["x", "y"])
"""


@pytest.mark.parametrize(
    ("moment", "error", "message"),
    [
        ("building", ValueError("no such model 'x'"), "no such model 'x'"),
        ("during", TypeError("bad reward\nin two lines"), "TypeError: bad reward in two lines"),
        (
            "during",
            OSError(errno.ENOSPC, "No space left on device", "trace.db"),
            "The disk is full while writing trace.db",
        ),
        ("during", RuntimeError("writer: No space left on device (os error 28)"), "The disk is full"),
        ("during", PermissionError(errno.EACCES, "Permission denied", "/runs/x"), "No permission for /runs/x"),
        ("during", MemoryError(), "Out of memory: lower config.micro_batch_size"),
        ("during", SystemExit("stop"), "SystemExit: stop"),
        ("saving", OSError(errno.ENOSPC, "No space left on device"), "The disk is full"),
    ],
)
def test_a_failing_run_says_why_and_is_listed(shell: Shell, moment: str, error: BaseException, message: str) -> None:
    setattr(FakeTrainer, moment, fail_with(error))
    result = shell.train()
    assert_one_sentence(result, message)
    assert result.stdout.splitlines()[-1] == str(shell.run.path)
    status = shell.run.read_status()
    assert status.state == "failed"
    assert message in str(status.error)
    assert "Traceback" in shell.run.log_file.read_text()
    assert not shell.run.model_folder.exists()
    listed = shell("runs")
    assert listed.exit_code == 0
    assert "failed" in listed.stdout
    if moment == "saving":
        assert FakeTrainer.last.end_state.states == ["FINISHED", "FAILED"]


def test_debug_shows_the_traceback(shell: Shell) -> None:
    FakeTrainer.during = fail_with(ValueError("boom"))
    assert "Traceback" in shell.train("--debug").stderr


def test_a_failure_keeps_an_earlier_good_model(shell: Shell) -> None:
    FakeTrainer.during = interrupt
    shell.train()
    FakeTrainer.reset()
    shell("resume", shell.run.id)
    (shell.run.model_folder / "agent_0" / "weights").write_text("good")
    FakeTrainer.saving = fail_with(OSError(errno.ENOSPC, "No space left on device"))
    assert_one_sentence(shell("resume", shell.run.id, "--set", "config.num_train_epochs=99"), "The disk is full")
    assert (shell.run.model_folder / "agent_0" / "weights").read_text() == "good"
    assert not (shell.run.path / ".saving").exists()


@pytest.mark.parametrize(
    ("spec", "override", "message"),
    [
        (SPEC, "config.num_turn=2", "did you mean 'num_turns'"),
        (SPEC, "config.num_turns=two", "num_turns: must be a valid integer"),
        (SPEC, "modle=x", "did you mean 'model'"),
        (SPEC, "task=gone.py:TASK", "gone.py does not exist"),
        (SPEC, "task=broken.py:TASK", "failed to import on line 2: ZeroDivisionError"),
        (SPEC, "model_config.dtpe=float32", "model_config has an unknown key 'dtpe' (did you mean 'dtype'?)"),
        (SPEC, "model_config.dtype=int8", "model_config['dtype'] must be a torch dtype"),
        (SPEC, "model_config.revision=main", "has no effect on builtin:tiny"),
        (SPEC, "model=builtin:tny", "There is no built-in model 'builtin:tny' (did you mean 'builtin:tiny'?)"),
        (SPEC, "model=./gone", "There is no model at"),
        (SPEC, "model=/gone/model.gguf", "There is no model at '/gone/model.gguf'"),
        (SPEC, "model=gone.gguf", "There is no model at 'gone.gguf'"),
        (SPEC, "model=some/where/gone", "There is no model at 'some/where/gone'"),
        (SPEC, "model=work_without_model", "holds no model (no config.json)"),
        (SPEC, "model=''", "model must not be empty"),
        (SPEC, "config.agent_devices=gpu", "agent_devices: 'gpu' is not a device name"),
        (SPEC, "config.agent_devices=[cpu, cuda:99]", "agent_devices"),
        (SPEC, "config.reference_devices=cuda:99", "reference_devices: there is no device 'cuda:99'"),
        (SPEC, "tracking.wandb.projct=x", "wandb_config has no key 'projct' (did you mean 'project'?)"),
        (SPEC, "tracking.mlflow=3", "tracking.mlflow must be true, false or a tracking URI"),
        (SPEC, "algorithm=maac", "maac needs a critic"),
        (SPEC, "algorithm=iac", "iac needs a critic"),
        (IAC, "critic=[builtin:tiny]", "critics must be a list of 2"),
        (IAC, "critic=./gone", "There is no model at"),
        (SHARED, "critic=builtin:tiny", "config.use_separate_critic=false"),
        (SPEC, "task=tasks.py:EMPTY", "train_items of task 'empty' is empty"),
        (SPEC, "task=tasks.py:ARITY", "Task 'arity': reward_func takes 1 completion lists"),
        (SPEC, "task=tasks.py:FORMATTER", "Task 'formatter': The formatter of agent 0 cannot be called"),
        (SPEC, "task=tasks.py:TRANSITION", "Task 'transition': external_transition cannot be called"),
        (SPEC, "task=rendezvou", "did you mean 'rendezvous'"),
        (SPEC, "algorithm=magrp", "did you mean 'magrpo'"),
        (SPEC, "x", "--set takes KEY=VALUE"),
        ("name: [", "name=t", "line 1: this is not valid YAML"),
        ("", "name=t", "it is empty"),
        ("3: 4", "name=t", "unknown key '3'"),
    ],
)
def test_a_bad_spec_makes_no_run(shell: Shell, spec: str, override: str, message: str) -> None:
    (shell.folder / "broken.py").write_text("import os\n1 / 0\n")
    (shell.folder / "tasks.py").write_text(TASKS)
    (shell.folder / "work_without_model").mkdir()
    shell.spec.write_text(spec)
    result = shell.train("--set", override)
    assert_one_sentence(result, message)
    assert result.stdout == ""
    assert shell.workspace.runs() == []
    assert shell("runs").exit_code == 0


def test_a_missing_spec_and_a_missing_run(shell: Shell) -> None:
    assert_one_sentence(shell("train", shell.folder / "gone.yaml"), "gone.yaml does not exist")
    for command in ("resume", "eval", "play"):
        assert_one_sentence(shell(command, "nothing"), "There is no run 'nothing'")


def test_a_file_where_the_workspace_should_be(shell: Shell) -> None:
    shell.workspace.root.write_text("in the way")
    assert_one_sentence(shell.train(), "is in the way or is not a folder")


def test_an_unwritable_run_folder(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: RunFolder, status: RunStatus) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self.status_file))

    monkeypatch.setattr(RunFolder, "write_status", refuse)
    assert_one_sentence(shell.train(), "No permission for")
    assert shell("runs").exit_code == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [("algorithm=marloo", "but not 'algorithm'"), ("config.num_turn=1", "did you mean 'num_turns'")],
)
def test_resume_refuses_bad_changes_and_keeps_the_spec(shell: Shell, override: str, message: str) -> None:
    FakeTrainer.during = interrupt
    shell.train()
    before = shell.run.spec_file.read_text()
    assert_one_sentence(shell("resume", shell.run.id, "--set", override), message)
    assert shell.run.spec_file.read_text() == before
    assert shell.run.read_status().state == "stopped"


def finished_with_a_checkpoint(shell: Shell) -> dict[str, bytes]:
    FakeTrainer.during = interrupt
    shell.train()
    FakeTrainer.reset()
    assert shell("resume", shell.run.id).exit_code == 0
    return {path.name: path.read_bytes() for path in (shell.run.spec_file, shell.run.status_file)}


@pytest.mark.parametrize("moment", ["building", "restoring"])
@pytest.mark.parametrize("error", [ValueError("no device cuda:9"), SystemExit("stop"), KeyboardInterrupt()])
def test_a_resume_that_cannot_begin_leaves_the_run_as_it_was(
    shell: Shell, moment: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = finished_with_a_checkpoint(shell)
    FakeTrainer.building = fail_with(error)
    if moment == "restoring":
        FakeTrainer.reset()
        monkeypatch.setattr(FakeTrainer, "train", lambda self, resume_from_checkpoint: fail_with(error)(self))
    result = shell("resume", shell.run.id, "--set", "config.num_train_epochs=2", "--set", "config.agent_devices=cuda:9")
    assert result.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert {name: (shell.run.path / name).read_bytes() for name in before} == before
    assert "Trace" in shell.run.log_file.read_text() or isinstance(error, KeyboardInterrupt)
    monkeypatch.undo()
    monkeypatch.setattr(Algorithm, "load_trainer", lambda self: FakeTrainer)
    FakeTrainer.reset()
    assert "[initial agent_0]" in shell("play", shell.run.id).stdout
    assert shell("resume", shell.run.id, "--set", "config.num_train_epochs=2").exit_code == 0
    assert shell.run.spec().config["num_train_epochs"] == 2


def test_a_failed_start_over_keeps_the_trace(shell: Shell) -> None:
    FakeTrainer.during = lambda trainer: trainer.tracker.metrics(1, {"a": 1.0})
    FakeTrainer.saving = fail_with(ValueError("boom"))
    shell.train()
    FakeTrainer.reset()
    FakeTrainer.building = fail_with(ValueError("no device"))
    assert_one_sentence(shell("resume", shell.run.id), "no device")
    assert len(read_metrics(shell.run.trace_file)) == FakeTrainer.items
    FakeTrainer.reset()
    assert shell("resume", shell.run.id).exit_code == 0
    assert read_metrics(shell.run.trace_file).empty


def test_a_damaged_trace_does_not_stop_a_resume(shell: Shell) -> None:
    FakeTrainer.during = interrupt
    shell.train()
    FakeTrainer.reset()
    shell.run.trace_file.write_bytes(b"no trace" * 1000)
    result = shell("resume", shell.run.id)
    assert result.exit_code == 0, result.output
    (aside,) = shell.run.path.glob("trace.db.damaged-*")
    assert str(aside) in result.stderr


def test_who_holds_a_run_is_named_only_while_it_trains(shell: Shell) -> None:
    shell.train()
    with filelock.FileLock(shell.run.lock_file):
        result = shell("resume", shell.run.id)
    assert_one_sentence(result, "is in use by another process")
    assert str(shell.run.read_status().pid) not in result.stderr


def test_runs_lists_damaged_and_lost_runs(shell: Shell) -> None:
    shell.train()
    spec = shell.run.spec()
    damaged = shell.workspace.create_run(spec)
    damaged.status_file.write_text("{")
    damaged.spec_file.write_text("name: [")
    lost = shell.workspace.create_run(spec)
    lost.write_status(RunStatus("running", pid=2**22 + 1, process_started=1.0))
    result = shell("runs")
    assert result.exit_code == 0, result.output
    for word in ("finished", "damaged", "lost", "4/4 (100%)", "0.750"):
        assert word in result.stdout


def test_play_needs_something_trained(shell: Shell) -> None:
    run = shell.workspace.create_run(RunFolder(shell.folder).spec())
    assert_one_sentence(shell("play", run.id), "no saved model or checkpoint yet")


def test_mlflow_refuses_a_remote_server_and_a_taken_port(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example")
    assert_one_sentence(shell("mlflow"), "points to the server http://tracking.example")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_one_sentence(shell("mlflow", "--port", port), f"Port {port} on 127.0.0.1 cannot be used")
