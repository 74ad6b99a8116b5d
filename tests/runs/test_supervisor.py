"""Real supervisors with real (fake) training processes: how runs end, are stopped, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from fake_run import start, supervisor_of, until, until_gone, until_state, until_training

from workbench.runs.errors import OUT_OF_MEMORY
from workbench.runs.launch import reconcile, resume, stop
from workbench.runs.locks import DeviceQueue, Need, Ticket, lock_folder, waiting
from workbench.runs.order import Order
from workbench.runs.processes import Identity
from workbench.runs.supervision import Patience, StopRequest, read_exit, read_stop, read_supervision
from workbench.runs.workspace import RunFolder, Workspace, WorkspaceError
from workbench.tracking.trace import read_metrics

HASTE = Patience(save=0.3, terminate=60.0)
NO_PATIENCE = Patience(save=0.3, terminate=0.3)


def test_a_run_is_queued_trains_and_ends_with_nothing_left(space: Workspace) -> None:
    run = start(space, "three")
    assert run.read_status().state in ("queued", "running")
    status = until_state(run, "finished")
    until_gone(run)
    assert (status.step, status.error, status.phase) == (3, None, "")
    ended = read_exit(run.exit_file)
    assert ended is not None
    assert (ended.code, ended.signal, ended.reason, ended.killed) == (0, None, None, 0)
    assert ended.peak_rss is not None
    assert 5e6 < ended.peak_rss < 1e9  # a small Python process
    assert "fake training, train" in "".join(ended.log_tail)
    assert not run.stop_file.exists()


@pytest.mark.parametrize(
    ("what", "code", "number", "said"),
    [
        ("memory", 1, None, OUT_OF_MEMORY),
        ("refused", 1, None, "There is no device 'cuda:9'."),
        ("killed", None, signal.SIGKILL, "out of memory|because memory ran out, or by someone's kill -9"),
        ("segfault", None, signal.SIGSEGV, "crashed in native code (SIGSEGV)"),
        ("quiet", 0, None, "ended with exit code 0 and without a word"),
    ],
)
def test_every_bad_end_is_a_failed_run_with_its_reason(
    space: Workspace, what: str, code: int | None, number: int | None, said: str
) -> None:
    run = start(space, what)
    status = until_state(run, "failed")
    until_gone(run)
    ended = read_exit(run.exit_file)
    assert ended is not None
    assert (ended.code, ended.signal) == (code, number)
    assert any(words in str(status.error) for words in said.split("|"))
    assert ended.reason == status.error
    assert status.ended is not None


def test_save_stops_after_the_item_and_the_run_goes_on_later(space: Workspace) -> None:
    run = start(space, "forever")
    until_training(run)
    stop(run)
    status = until_state(run, "stopped")
    until_gone(run)
    assert status.error is None
    assert list(run.checkpoints()) == [status.step]
    with pytest.raises(WorkspaceError, match="is stopped; there is nothing to stop"):
        stop(run)
    resume(run, ["config.num_train_epochs=3"], trainer="fake_run")
    until_training(run, status.step + 1)
    assert "fake training, resume config.num_train_epochs=3" in run.log_file.read_text()
    with pytest.raises(WorkspaceError, match="is running already"):
        resume(run, trainer="fake_run")
    stop(run, "kill")
    until_state(run, "stopped")
    until_gone(run)


@pytest.mark.parametrize(
    ("what", "level", "patience", "last", "number"),
    [
        ("hang", "save", HASTE, "Interrupted before a checkpoint", None),  # its patience over, it is told to leave
        ("hang", "terminate", HASTE, "Interrupted before a checkpoint", None),
        ("ignore", "save", NO_PATIENCE, "killed on request", signal.SIGKILL),
        ("forget", "terminate", NO_PATIENCE, "killed on request", signal.SIGKILL),
        ("child", "kill", HASTE, "killed on request", signal.SIGKILL),
    ],
)
def test_a_stop_gets_harder_until_nothing_is_left(
    space: Workspace, what: str, level: str, patience: Patience, last: str, number: int | None
) -> None:
    run = start(space, what)
    until_training(run)
    stop(run, level, patience)
    status = until_state(run, "stopped")
    until_gone(run)
    assert last in str(status.error)
    ended = read_exit(run.exit_file)
    assert ended is not None
    assert ended.signal == number


def test_a_training_that_does_not_leave_after_its_last_word_is_ended(space: Workspace) -> None:
    run = start(space, "linger")
    until_gone(run)
    ended = read_exit(run.exit_file)
    assert ended is not None
    assert (ended.code, ended.signal, ended.reason) == (None, signal.SIGKILL, None)
    assert run.read_status().state == "finished"


def test_what_a_training_leaves_behind_is_ended(space: Workspace) -> None:
    run = start(space, "child")
    trainer = until_training(run)
    assert trainer.send(signal.SIGKILL)
    until_state(run, "failed")
    until_gone(run)
    ended = read_exit(run.exit_file)
    assert ended is not None
    assert ended.killed == 1


def test_a_process_that_is_still_starting_has_nothing_to_save(space: Workspace) -> None:
    run = start(space, "slow start")
    until(lambda: run.read_status().phase == "start")
    run.stop_file.touch()  # what `touch stop` in a terminal does
    status = until_state(run, "stopped")
    until_gone(run)
    ended = read_exit(run.exit_file)
    assert ended is not None
    assert ended.signal == signal.SIGTERM
    assert "told to leave at once" in str(status.error)


def test_a_stop_wish_can_be_made_stronger_but_not_weaker(space: Workspace) -> None:
    run = start(space, "ignore")
    until_training(run)
    os.kill(supervisor_of(run).pid, signal.SIGSTOP)  # so that nothing happens meanwhile
    try:
        for level, kept in (("terminate", "terminate"), ("save", "terminate"), ("kill", "kill")):
            stop(run, level)
            wish = read_stop(run.stop_file)
            assert wish is not None
            assert wish.level == kept
    finally:
        os.kill(supervisor_of(run).pid, signal.SIGCONT)
    until_state(run, "stopped")
    until_gone(run)
    with pytest.raises(WorkspaceError, match="The level of a stop is one of save, terminate, kill, got 'hard'"):
        stop(run, "hard")


@pytest.mark.parametrize(
    ("level", "elapsed", "due"),
    [
        # patience: 600 s to save, then 20 s to leave
        ("save", 0, "save"),
        ("save", 599, "save"),
        ("save", 600, "terminate"),
        ("save", 619, "terminate"),
        ("save", 620, "kill"),
        ("terminate", 19, "terminate"),
        ("terminate", 20, "kill"),
        ("kill", 0, "kill"),
    ],
)
def test_which_level_is_due(level: str, elapsed: float, due: str) -> None:
    assert StopRequest(level, asked=1000.0).due(1000.0 + elapsed) == due


@pytest.mark.parametrize("text", ["", "{", '{"level": "hard", "asked": 1.0}', '{"level": "kill", "asked": 9e12}'])
def test_an_unreadable_wish_means_save_from_the_time_of_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "stop"
    assert read_stop(file) is None
    file.write_text(text)
    assert read_stop(file) == StopRequest("save", file.stat().st_mtime)


# --- the queue ------------------------------------------------------------------------------------


def test_one_run_at_a_time_on_the_cpu_and_a_waiting_one_can_be_stopped(space: Workspace) -> None:
    first, second, third = (start(space, "forever") for _ in range(3))
    until_training(first)
    for waits in (second, third):
        until(lambda run=waits: (s := read_supervision(run.supervision_file)) is not None and s.waits_for)
        assert waits.read_status().state == "queued"
    found = read_supervision(third.supervision_file)
    assert found is not None
    assert first.id in found.waits_for[0]
    assert found.devices == ("cpu",)
    stop(second)
    status = until_state(second, "stopped")
    assert "Stopped in the queue" in str(status.error)
    until_gone(second)
    assert third.read_status().state == "queued"
    stop(first, "kill")
    until_training(third)  # its turn has come
    stop(third, "kill")
    for run in (first, third):
        until_state(run, "stopped")
        until_gone(run)
    assert waiting(lock_folder(space.root)) == []
    resume(second, trainer="fake_run")  # one that never began starts from the beginning
    until_training(second)
    stop(second, "kill")
    until_gone(second)


def test_slots_let_several_runs_share_the_cpu(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CPU_SLOTS", "2")
    runs = [start(space, "forever") for _ in range(3)]
    until(lambda: sorted(run.read_status().state for run in runs) == ["queued", "running", "running"])
    for run in runs:
        stop(run, "kill")
        until_gone(run)


def place(folder: Path, needs: list[Need], run: str, since: float) -> DeviceQueue:
    return DeviceQueue(folder, needs, Ticket.of(run, since, needs, Identity.own()))


def test_first_come_first_served_and_all_devices_or_none(tmp_path: Path) -> None:
    """Both GPUs are asked for by the first in the queue while one is taken: the second run must not overtake it."""
    zero, one = Need("cuda:0", "GPU-a"), Need("cuda:1", "GPU-b")
    with place(tmp_path, [zero], "holder", 1.0) as queue:
        held = queue.try_take()
    assert held is not None
    with place(tmp_path, [zero, one], "both", 2.0) as both, place(tmp_path, [one], "late", 3.0) as late:
        assert both.try_take() is None
        assert both.waits_for == ("cuda:0 (holder)",)
        assert late.try_take() is None
        assert late.waits_for == ("cuda:1 (both)",)
        held.release()
        taken = both.try_take()
        assert taken is not None
        assert len(taken.files) == 2
    with place(tmp_path, [one], "late", 3.0) as late:
        assert late.try_take() is None
        taken.release()
        assert late.try_take() is not None
    assert waiting(tmp_path) == []


def test_tickets_of_the_dead_and_unreadable_ones_are_removed(tmp_path: Path) -> None:
    need = Need("cpu", "cpu")
    with place(tmp_path, [need], "a", 2.0):
        DeviceQueue(tmp_path, [need], Ticket.of("dead", 1.0, [need], Identity(2**22 + 1, 1.0))).join()
        (tmp_path / "queue" / "0-broken.json").write_text("{")
        assert [ticket.run for ticket in waiting(tmp_path)] == ["a"]
        assert len(list((tmp_path / "queue").iterdir())) == 1


def test_a_lock_ends_with_its_last_holder_and_not_before(space: Workspace) -> None:
    """kill -9 of the supervisor: the trainer goes on, keeps the CPU for itself, and is adopted."""
    first, second = start(space, "forever"), start(space, "three")
    trainer = until_training(first)
    supervisor_of(first).send(signal.SIGKILL)
    until(lambda: not supervisor_of(first).alive())
    step = first.read_status().step
    until_training(first, step + 2)
    assert second.read_status().state == "queued"
    assert reconcile(space).adopted == (first.id,)
    assert supervisor_of(first).alive()
    assert supervisor_of(first).pid != trainer.pid
    assert second.read_status().state == "queued"
    stop(first)
    until_state(first, "stopped")
    until_gone(first)
    ended = read_exit(first.exit_file)
    assert ended is not None
    assert (ended.mode, ended.code, ended.reason) == ("adopt", None, None)
    until_state(second, "finished")
    until_gone(second)
    assert len(read_metrics(first.trace_file)) == first.read_status().step


# --- cost and shape -------------------------------------------------------------------------------


def test_a_supervisor_is_small_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, psutil, workbench.runs.supervisor, workbench.runs.launch\n"
        "heavy = [m for m in ('torch', 'transformers', 'mlflow', 'streamlit', 'pandas', 'numpy') if m in sys.modules]\n"
        "print(heavy, psutil.Process().memory_info().rss < 80e6)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[] True"


def test_an_order_survives_the_command_line(tmp_path: Path) -> None:
    order = Order(
        RunFolder(tmp_path / "a b; rm"),
        "resume",
        "x:y",
        1234.5678,
        (Need("cuda:0", "GPU-a", 1), Need("a=b", "a-b", 1), Need("cpu", "cpu", 3)),
        ("config.agent_devices=[cpu, cpu]", "tracking.experiment=--x"),
    )
    command = order.command()
    assert Order.parse(command[command.index("workbench.runs.supervisor") + 1 :]) == order


def test_the_launcher_has_no_zombies(space: Workspace) -> None:
    run = start(space, "three")
    until_state(run, "finished")
    until_gone(run)
    until(lambda: psutil.STATUS_ZOMBIE not in [child.status() for child in psutil.Process().children()])
