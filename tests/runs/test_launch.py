"""Launching, cloning, deleting and finding runs again, with real supervisors and fake trainings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import filelock
import pytest
from fake_run import (
    processes_of,
    start,
    supervisor_of,
    until,
    until_gone,
    until_state,
    until_training,
)
from typer.testing import CliRunner

from workbench.cli import app
from workbench.config import IACConfig, MAGRPOConfig
from workbench.runs import trash
from workbench.runs.hardware import Cpu, Gpu, Hardware
from workbench.runs.launch import clone, device_needs, launch, reconcile, resume, stop
from workbench.runs.locks import Need
from workbench.runs.processes import Identity
from workbench.runs.spec import RunSpec
from workbench.runs.supervision import Patience, Supervision, read_exit, read_supervision
from workbench.runs.workspace import RunFolder, RunStatus, Workspace, WorkspaceError

SPEC = RunSpec(name="three", task="rendezvous", algorithm="magrpo", model="builtin:tiny")
GONE = Identity(2**22 + 1, 1.0)
CPU = Cpu("cpu", 2, 2**30, 2**30)


# --- launch and resume ----------------------------------------------------------------------------


def test_a_double_click_starts_one_run(space: Workspace) -> None:
    found: list[RunFolder] = []
    clicks = [threading.Thread(target=lambda: found.append(start(space, "three", token="click"))) for _ in range(4)]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    assert len(found) == 4
    assert len({run.id for run in found}) == 1
    assert [run.id for run in space.runs()] == [found[0].id]
    assert start(space, "three", token="another click").id != found[0].id
    for run in space.runs():
        until_state(run, "finished")
        until_gone(run)


def test_a_double_click_resumes_once(space: Workspace) -> None:
    run = start(space, "forever")
    until_training(run)
    stop(run, "kill")
    status = until_state(run, "stopped")
    resume(run, token="again", trainer="fake_run")
    resume(run, token="again", trainer="fake_run")
    with pytest.raises(WorkspaceError, match="already; stop it first"):
        resume(run, token="another", trainer="fake_run")
    until_training(run, status.step + 1)
    assert run.log_file.read_text().count("fake training, resume") == 1
    stop(run, "kill")
    until_gone(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"num_turn": 2}}, "did you mean 'num_turns'"),
        ({"task": "/gone.py:TASK"}, "does not exist"),
        ({"algorithm": "magrp"}, "did you mean 'magrpo'"),
    ],
)
def test_a_bad_spec_starts_nothing(space: Workspace, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        launch(space, SPEC.model_copy(update=change))
    assert space.runs() == []


def test_a_run_that_cannot_be_resumed_stays_what_it_was(space: Workspace) -> None:
    run = start(space, "three")
    until_state(run, "finished")
    until_gone(run)
    before = run.status_file.read_bytes()
    with pytest.raises(WorkspaceError, match=r"is finished; to train longer, raise config\.num_train_epochs"):
        resume(run)
    with pytest.raises(ValueError, match="but not 'algorithm'"):
        resume(run, ["algorithm=iac"])
    spec = run.spec()
    run.write_spec(spec.model_copy(update={"name": "refused"}))  # from here on the training process refuses
    resume(run, ["config.num_train_epochs=99"], trainer="fake_run")
    until_gone(run)
    assert run.status_file.read_bytes() == before
    ended = read_exit(run.exit_file)
    assert ended is not None
    assert (ended.mode, ended.reason) == ("resume", "There is no device 'cuda:9'.")


def test_a_resume_stopped_in_the_queue_changes_nothing(space: Workspace) -> None:
    run = start(space, "three")
    until_state(run, "finished")
    until_gone(run)
    before = run.status_file.read_bytes()
    blocker = start(space, "forever")
    until_training(blocker)
    resume(run, ["config.num_train_epochs=99"], trainer="fake_run")
    assert run.read_status().state == "queued"
    stop(run)
    until_gone(run)
    assert run.status_file.read_bytes() == before
    stop(blocker, "kill")
    until_gone(blocker)


def test_a_supervisor_that_cannot_start_is_a_failed_run(
    space: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "psutil.py").write_text("raise SystemExit('no psutil here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    run = start(space, "three")
    status = until_state(run, "failed")
    assert "supervisor could not start (exit code 1)" in str(status.error)
    ended = read_exit(run.exit_file)
    assert ended is not None
    assert ended.log_tail == ("no psutil here",)
    assert read_supervision(run.supervision_file) is None


def test_a_clone_is_the_spec_to_edit(space: Workspace) -> None:
    run = start(space, "three")
    until_gone(run)
    data = clone(run)
    data["name"] = "again"
    assert RunSpec.parse(data, "form", space.root) == run.spec().model_copy(update={"name": "again"})


# --- devices --------------------------------------------------------------------------------------


def test_devices_of_a_run() -> None:
    none = Hardware(CPU)
    two = Hardware(CPU, (Gpu("cuda:0", 3, "GPU-a", "x"), Gpu("cuda:1", 1, "GPU-b", "x")))
    cpu, first, second = Need("cpu", "cpu"), Need("cuda:0", "GPU-a"), Need("cuda:1", "GPU-b")
    assert device_needs(MAGRPOConfig(), none) == (cpu,)
    assert device_needs(MAGRPOConfig(), two) == (first,)
    assert device_needs(MAGRPOConfig(agent_devices="cpu"), two) == (cpu,)
    mp = {"parallel_training": "mp"}
    assert device_needs(MAGRPOConfig(agent_devices="cuda", reference_devices="cuda:1", **mp), two) == (first, second)
    assert device_needs(IACConfig(agent_devices=["cuda:1", "cuda:1"], critic_devices="cpu", **mp), two) == (second, cpu)
    assert device_needs(MAGRPOConfig(reference_devices="cuda:1"), two) == (second,)  # serial: all models on the one
    assert device_needs(MAGRPOConfig(agent_devices="cuda:7"), two) == (Need("cuda:7", "cuda-7"),)  # refused later


@pytest.mark.parametrize("text", ["0", "many", "-1", ""])
def test_a_bad_number_of_slots_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WORKBENCH_CPU_SLOTS", text)
    with pytest.raises(WorkspaceError, match="WORKBENCH_CPU_SLOTS must be a whole number of at least 1"):
        device_needs(MAGRPOConfig(), Hardware(CPU))


# --- finding runs again ---------------------------------------------------------------------------


def test_a_queued_run_without_its_supervisor_is_lost_and_can_be_resumed(space: Workspace) -> None:
    blocker, run = start(space, "forever"), start(space, "forever")
    until_training(blocker)
    until(lambda: (found := read_supervision(run.supervision_file)) is not None and found.ready)
    supervisor_of(run).send(signal.SIGKILL)
    status = until_state(run, "lost")
    assert f"workbench resume {run.id}" in str(status.error)
    assert reconcile(space).lost == (run.id,)
    assert run.read_status().state == "lost"
    stop(blocker, "kill")
    until_gone(blocker)
    resume(run, trainer="fake_run")
    until_training(run)
    stop(run, "kill")
    until_state(run, "stopped")
    until_gone(run)


def test_what_supervisor_and_trainer_leave_when_both_are_killed_is_ended(space: Workspace) -> None:
    run = start(space, "child")
    trainer = until_training(run)
    supervisor_of(run).send(signal.SIGKILL)
    trainer.send(signal.SIGKILL)
    until_state(run, "lost")
    until(lambda: len(processes_of(run)) == 1)  # the child
    assert reconcile(space).lost == (run.id,)
    until_gone(run)
    assert run.read_status().state == "lost"
    assert reconcile(space) == type(reconcile(space))()


def test_a_run_that_cannot_be_locked_does_not_hide_the_others(space: Workspace) -> None:
    runs = [space.create_run(SPEC) for _ in range(3)]
    for run in runs:
        run.write_supervision(Supervision(GONE, "train", 0.0, mark=f"{run.id}:x"))
    runs[1].supervisor_lock.mkdir()  # even root cannot open it as a file
    assert set(reconcile(space).lost) == {runs[0].id, runs[2].id}


def test_a_training_from_the_command_line_can_be_stopped_and_its_neighbours_live(space: Workspace) -> None:
    """It shares its process group with others, which must not be signalled."""
    run = space.create_run(SPEC.model_copy(update={"name": "ignore"}))
    shell = subprocess.Popen(
        ["sh", "-c", f"sleep 600 & {sys.executable} -m fake_run '{run.path}' train; wait"], start_new_session=True
    )
    try:
        until_training(run)
        stop(run, "terminate", Patience(terminate=0.3))
        status = until_state(run, "stopped")
        assert "killed on request" in str(status.error)
        until_gone(run)
        assert shell.poll() is None
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_a_reader_sees_each_stage(space: Workspace) -> None:
    """supervisor.json of this living process over a finished run's status, then of a dead one."""
    run = space.create_run(SPEC)
    run.write_status(RunStatus("finished", step=3, total=3, pid=GONE.pid, process_started=GONE.started))
    me = Supervision(Identity.own(), "resume", 1.0)
    run.write_supervision(me)
    assert run.read_status().state == "queued"
    run.write_supervision(replace(me, trainer=Identity.own()))
    assert (run.read_status().state, run.read_status().phase) == ("running", "start")
    run.write_supervision(replace(me, trainer=GONE))
    assert run.read_status().state == "finished"  # the trainer has spoken
    run.write_supervision(replace(me, supervisor=GONE))
    assert run.read_status().state == "finished"
    run.supervision_file.write_text("{")
    assert run.read_status().state == "finished"


# --- the command line -----------------------------------------------------------------------------


def test_the_stop_command_and_a_resume_of_a_queued_run(space: Workspace) -> None:
    first, second = start(space, "forever"), start(space, "forever")
    until_training(first)
    place = ["--workspace", str(space.root)]
    refused = CliRunner().invoke(app, ["resume", second.id, *place])
    assert refused.exit_code == 1
    assert f"workbench stop {second.id}" in refused.stderr
    assert "queued" in CliRunner().invoke(app, ["runs", *place]).stdout
    assert CliRunner().invoke(app, ["stop", second.id, *place]).exit_code == 0
    assert CliRunner().invoke(app, ["stop", first.id, "--kill", *place]).exit_code == 0
    for run in (first, second):
        until_state(run, "stopped")
        until_gone(run)
    again = CliRunner().invoke(app, ["stop", first.id, "--now", *place])
    assert again.exit_code == 1
    assert f"Error: Run {first.id} is stopped; there is nothing to stop." in again.stderr


# --- trash ----------------------------------------------------------------------------------------


def test_a_deleted_run_can_be_restored_until_the_trash_is_emptied(space: Workspace) -> None:
    run = space.create_run(SPEC)
    trash.delete(space, run)
    assert space.runs() == []
    (entry,) = trash.contents(space)
    assert entry.run.id == run.id
    assert entry.size > 0
    assert entry.run.spec() == SPEC
    assert trash.restore(space, run.id) == run
    assert [found.id for found in space.runs()] == [run.id]
    assert trash.contents(space) == []
    trash.delete(space, run)
    assert trash.empty(space) == 1
    assert trash.contents(space) == []
    assert space.runs() == []


@pytest.mark.parametrize("name", ["gone", "../runs", "/", ""])
def test_only_what_is_in_the_trash_can_be_restored_or_emptied(space: Workspace, name: str) -> None:
    space.create_run(SPEC)
    for action in (trash.restore, trash.empty):
        with pytest.raises(WorkspaceError, match="There is no run"):
            action(space, name)
    assert len(space.runs()) == 1


def test_a_run_at_work_is_not_deleted(space: Workspace) -> None:
    run = start(space, "forever")
    until_training(run)
    with pytest.raises(WorkspaceError, match="is running; stop it before you delete it"):
        trash.delete(space, run)
    stop(run, "kill")
    until_state(run, "stopped")
    until_gone(run)
    with filelock.FileLock(run.lock_file), pytest.raises(WorkspaceError, match="in use by another process"):
        trash.delete(space, run)
    trash.delete(space, run)
    assert not run.path.exists()


def test_a_run_folder_that_vanishes_takes_its_processes_with_it(space: Workspace, tmp_path: Path) -> None:
    run = start(space, "ignore")
    until_training(run)
    run.path.rename(tmp_path / "elsewhere")
    until(lambda: not processes_of(run))
