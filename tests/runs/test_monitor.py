"""Progress where there is no terminal, the heartbeat, and signals that stay ignored."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from workbench.runs import monitor
from workbench.runs.monitor import PlainLines, StatusKeeper, StopSignals
from workbench.runs.workspace import RunFolder, RunStatus


def test_plain_lines_are_few_and_end_with_the_last_item(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([100.0, 102.0, 104.0, 138.0, 142.0, 143.0])
    monkeypatch.setattr(monitor.time, "monotonic", lambda: next(clock))
    lines = PlainLines()
    for step in (0, 1, 2, 3, 4, 4):
        lines.show(step, 4, "rollout", 0.5 if step > 2 else None)
    # Item 1 comes first; item 2 is too soon after it; after 38 s and 3 items one more takes 38 / 3 = 13 s.
    assert capsys.readouterr().err.splitlines() == [
        "item 1/4 (25%), 6 s left",
        "item 3/4 (75%), reward 0.500, 13 s left",
        "item 4/4 (100%), reward 0.500, 0 s left",
    ]


def test_the_heartbeat_writes_what_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "HEARTBEAT_SECONDS", 0.01)
    run = RunFolder(tmp_path)
    run.write_status(RunStatus("stopped", started=5.0, step=3))
    keeper = StatusKeeper(run)
    keeper.begin()
    keeper.update(phase="update", step=4)
    written = monitor.threading.Event()
    monkeypatch.setattr(keeper, "_write", written.set)
    assert written.wait(5)
    monkeypatch.undo()
    status = keeper.finish("finished")
    assert run.read_status() == status
    assert (status.state, status.step, status.started) == ("finished", 4, 5.0)


def test_the_final_state_is_kept_even_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path)
    keeper = StatusKeeper(run)
    keeper.begin()

    def full(self: Path, text: str, encoding: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    keeper.finish("failed", "The disk is full.")
    status = run.read_status()
    assert (status.state, status.error) == ("failed", "The disk is full.")


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        with StopSignals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.requested
            signal.raise_signal(signal.SIGTERM)
            assert stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)
