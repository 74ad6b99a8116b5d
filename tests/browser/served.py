"""The real app in a process of its own, and real runs for it to show."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from fake_run import processes_of, until

from workbench.runs.launch import launch
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, Workspace

SECONDS = 180.0
SLOTS = "6"  # runs at once, so that none of a test waits for one of another
COMMAND = "from workbench.cli import main; main()"
SHORT = {"num_turns": 2, "num_train_epochs": 2, "max_new_tokens": 4, "early_termination_threshold": None,
         "eval_interval": 4, "eval_num_samples": 2, "logging_steps": 4, "save_interval": 4}  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class App:
    """`workbench app` on a port of its own, which it keeps over a restart as an app that somebody restarts does."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.port = workspace, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it answers."""
        command = [sys.executable, "-c", COMMAND, "app", "--no-browser", "--port", str(self.port)]
        self.workspace.root.mkdir(exist_ok=True)
        with (self.workspace.root / "app.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--workspace", str(self.workspace.root)], cwd=self.workspace.root, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, env=_environment(),
            )  # fmt: skip
        until(self._answers, SECONDS)

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as answer:
            return bool(answer.read() == b"ok")
        return False

    def log(self) -> str:
        return (self.workspace.root / "app.log").read_text(encoding="utf-8")

    def kill(self) -> None:
        """kill -9 of the server and nothing else, such as its end for want of memory."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None


def _environment() -> dict[str, str]:
    others = {
        name: value for name, value in os.environ.items() if name not in ("WORKBENCH_LOCKS", "MLFLOW_TRACKING_URI")
    }
    return {**others, "OMP_NUM_THREADS": "1", "WORKBENCH_CPU_SLOTS": SLOTS}


@contextlib.contextmanager
def served(root: Path) -> Iterator[App]:
    """The app with a new workspace; neither it nor a run of it outlives the block."""
    app = App(Workspace(root))
    app.start()
    try:
        yield app
    finally:
        if app.process is not None:
            app.kill()
        end_runs(app.workspace)


def end_runs(workspace: Workspace) -> None:
    for run in workspace.runs():
        for pid in processes_of(run):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


def trained(workspace: Workspace, algorithm: str, **config: Any) -> RunFolder:
    """A short real run of the built-in tiny model, just launched; it finishes in seconds."""
    critical = algorithm in ("maac", "iac")
    data = {"name": f"short {algorithm}", "task": "rendezvous", "algorithm": algorithm, "model": "builtin:tiny",
            "config": SHORT | {"num_generations": 1 if critical else 4} | config,
            "tracking": {"mlflow": False}}  # fmt: skip
    if critical:
        data["critic"] = "builtin:tiny"
    return launch(workspace, RunSpec.parse(data, "test", workspace.root))
