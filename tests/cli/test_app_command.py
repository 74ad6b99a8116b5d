"""`workbench app`: a real server on the loopback address, and what a signal leaves behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from workbench.runs.workspace import WorkspaceError
from workbench.ui.server import HOST, PORT, SCRIPT, free_port, serve

ROOT = Path(__file__).parents[2]
SECONDS = 180.0


@contextlib.contextmanager
def command(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`workbench app` in a folder of its own; killed at the end if it is still there."""
    code = "from workbench.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "app", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def address(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Workspace and port as the command's first line says them."""
    assert process.stdout is not None
    for line in process.stdout:
        match = re.search(r"shows (.*) at http://127\.0\.0\.1:(\d+)", line)
        if match:
            return match[1], int(match[2])
    raise AssertionError("the command said no address")


def until_healthy(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://{HOST}:{port}/_stcore/health", timeout=5) as answer:
                assert answer.read() == b"ok"
            return
        time.sleep(0.1)
    raise AssertionError("the server did not answer")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_on_loopback_only_and_a_signal_ends_the_server_alone(number: signal.Signals, tmp_path: Path) -> None:
    with command(tmp_path, "--no-browser", "--port", "0", "--workspace", "its work") as process:
        workspace, port = address(process)
        assert workspace == str(tmp_path / "its work")
        until_healthy(port)
        listening = [c.laddr for c in psutil.Process(process.pid).net_connections("tcp") if c.status == "LISTEN"]
        assert [(a.ip, a.port) for a in listening] == [(HOST, port)]
        bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # such as a run
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port), timeout=5)
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert not (tmp_path / "its work").exists()  # looking at a workspace makes nothing


def test_a_taken_port_is_an_error_when_it_was_asked_for(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(WorkspaceError, match=f"Port {port} on 127.0.0.1 cannot be used"):
            serve(tmp_path, port, browser=False)
        with command(tmp_path, "--no-browser", "--port", str(port)) as process:
            output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 1
        assert output.startswith(f"Error: Port {port}")
        assert "Traceback" not in output


def test_without_a_port_the_usual_one_or_any_other() -> None:
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # somebody may have it already
            taken.bind((HOST, PORT))
            taken.listen()
        chosen = free_port(None)
    assert chosen != PORT
    assert chosen > 0


def test_a_workspace_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="is a file; choose another --workspace folder"):
        serve(tmp_path / "file", 0, browser=False)


def test_the_browser_opens_when_the_server_answers(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f"#!/bin/sh\necho \"$1\" > '{opened}.part'; mv '{opened}.part' '{opened}'\n")
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROWSER", str(script))
        with command(tmp_path, "--port", "0") as process:
            _, port = address(process)
            deadline = time.monotonic() + SECONDS
            while not opened.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert opened.read_text().strip() == f"http://{HOST}:{port}"


def test_plain_streamlit_in_a_clone_is_as_private() -> None:
    config = tomllib.loads((ROOT / ".streamlit/config.toml").read_text())
    assert config["server"]["address"] == HOST
    assert config["browser"]["gatherUsageStats"] is False
    assert SCRIPT.read_text().split('"""')[2] == (ROOT / "app.py").read_text().split('"""')[2]
