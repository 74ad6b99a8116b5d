"""Weights & Biases: arguments, missing package or login, no prompt, no network; nothing here leaves the machine."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from workbench.tracking import WandbTracker, build_trackers


class FakeRun:
    """Records what the tracker sends."""

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.exit_code: int | None = None

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for wandb that knows one user; returns the arguments of every wandb.init."""
    calls: list[dict[str, Any]] = []

    def init(**arguments: Any) -> FakeRun:
        calls.append(arguments | {"run": FakeRun(arguments.get("id") or "abc123")})
        return calls[-1]["run"]

    fake = types.ModuleType("wandb")
    fake.__dict__.update(init=init, login=lambda **_: True, Settings=lambda **settings: settings)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return calls


@pytest.fixture
def nobody(tmp_path: Path) -> dict[str, str]:
    """An environment in which nobody is logged in and no address outside this machine is known."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "NETRC"))}
    root = str(Path(__file__).parents[2])
    return kept | {"HOME": str(tmp_path), "WANDB_BASE_URL": "http://127.0.0.1:9", "PYTHONPATH": root}


def test_unknown_keys_and_wrong_tags_are_named() -> None:
    with pytest.raises(ValueError, match=r"no key 'projet' \(did you mean 'project'\?\)"):
        WandbTracker({"projet": "x"})
    with pytest.raises(ValueError, match="tags must be a list"):
        WandbTracker({"tags": "x"})


def test_the_configuration_reaches_wandb(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    tracker = WandbTracker(
        {
            "project": "p",
            "entity": "e",
            "run_name": "n",
            "dir": tmp_path / "w",
            "tags": ["t"],
            "id": "i1",
            "resume": "never",
            "config_sections": {"dataset": {"name": "d"}},
        }
    )
    tracker.begin({"algorithm": "magrpo"})
    (sent,) = calls
    expected = {"project": "p", "entity": "e", "name": "n", "dir": str(tmp_path / "w"), "tags": ["t"], "id": "i1"}
    assert expected.items() <= sent.items()
    assert (sent["resume"], sent["config"]) == ("never", {"algorithm": "magrpo", "dataset": {"name": "d"}})
    assert sent["settings"]["console"] == "off"
    assert (tmp_path / "w").is_dir()


@pytest.mark.parametrize(("state", "code"), [("FINISHED", 0), ("FAILED", 1), ("KILLED", 130)])
def test_metrics_use_env_step_and_the_end_has_an_exit_code(calls: list[dict[str, Any]], state: str, code: int) -> None:
    tracker = WandbTracker({})
    tracker.begin({})
    tracker.metrics(12, {"turn_1/reward_mean": 0.5})
    tracker.end(state)
    tracker.end(state)
    tracker.metrics(13, {"late": 1.0})
    run = calls[0]["run"]
    assert (run.logged, run.exit_code) == ([(12, {"turn_1/reward_mean": 0.5})], code)


def test_a_resumed_run_keeps_its_id(calls: list[dict[str, Any]]) -> None:
    first = WandbTracker({"resume": "never"})
    first.begin({})
    assert first.mark() == {"id": "abc123"}
    second = WandbTracker({"resume": "never"})
    second.rewind(first.mark())
    assert (calls[1]["id"], calls[1]["resume"]) == ("abc123", "allow")
    assert second.mark() == first.mark()


@pytest.mark.parametrize("kind", ["not installed", "init fails", "log fails"])
def test_a_failure_is_one_warning_and_stops_nothing(
    calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    if kind == "not installed":
        monkeypatch.setitem(sys.modules, "wandb", None)
    elif kind == "init fails":
        monkeypatch.setattr(sys.modules["wandb"], "init", fail)
    else:
        monkeypatch.setattr(FakeRun, "log", fail)
    group = build_trackers(None, {"project": "p"})
    group.begin({})
    for step in range(3):
        group.metrics(step, {"a": 1.0})
    group.end("FINISHED")
    reason = "wandb cannot be imported" if kind == "not installed" else "no network"
    assert [record.message for record in caplog.records] == [
        f"Weights & Biases is off for the rest of this run: {reason}"
    ]


def test_without_a_login_nothing_is_asked_on_a_terminal(nobody: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    code = (
        "from workbench.tracking import WandbTracker\n"
        "t = WandbTracker({'project': 'p'}); t.begin({}); t.metrics(1, {'a': 1.0}); t.end('FINISHED'); print('done')"
    )
    terminal, other_end = pty.openpty()  # wandb asks only where it sees a terminal
    try:
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=nobody,
            cwd=tmp_path,
            stdin=other_end,
            stdout=subprocess.PIPE,
            stderr=other_end,
            timeout=60,
        )
        written = os.read(terminal, 10_000).decode()
    finally:
        os.close(terminal)
        os.close(other_end)
    assert (run.returncode, run.stdout) == (0, b"done\n")
    assert written.count("Weights & Biases is off") == 1
    assert "nobody is logged in" in written
    assert not (tmp_path / "wandb").exists()


def test_offline_runs_are_written_without_a_network(nobody: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    code = (
        "from workbench.tracking import WandbTracker\n"
        "t = WandbTracker({'project': 'p', 'mode': 'offline', 'dir': 'runs'}); t.begin({'a': {'b': 1}})\n"
        "t.metrics(4, {'x/y': 1.0, 'bad': float('nan')}); t.end('FINISHED'); assert t.mark()['id']\n"
    )
    subprocess.run([sys.executable, "-c", code], env=nobody, cwd=tmp_path, check=True, timeout=60)
    assert len(list((tmp_path / "runs").glob("wandb/offline-run-*/run-*.wandb"))) == 1
