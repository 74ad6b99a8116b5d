"""`workbench app`: the app's web server in this very process, so that nothing is left of it when the process ends.

It listens on 127.0.0.1 only. Runs have supervisors in sessions of their own, which no end of the server reaches.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import webbrowser
from pathlib import Path

from workbench.runs.workspace import WorkspaceError

HOST = "127.0.0.1"
PORT = 8501
SCRIPT = Path(__file__).parent / "script" / "main_script.py"
VARIABLE = "WORKBENCH_WORKSPACE"  # see workbench.ui.state, which reads it
START_SECONDS = 120.0  # for the server to answer before a browser is opened
POLL_SECONDS = 0.2


def serve(workspace: Path, port: int | None = None, browser: bool = True) -> None:
    """Serve until Ctrl-C or SIGTERM, then return.

    port: None = 8501, or any free one when that is taken; 0 = any free one. browser: open one when the server answers.
    Raises WorkspaceError when the port is taken, or the workspace is a file.
    """
    if workspace.exists() and not workspace.is_dir():
        raise WorkspaceError(f"{workspace} is a file; choose another --workspace folder.")
    chosen = free_port(port)
    url = f"http://{HOST}:{chosen}"
    os.environ[VARIABLE] = str(workspace.expanduser().resolve())
    print(f"The workbench shows {os.environ[VARIABLE]} at {url} (Ctrl-C stops the app, not the runs)", flush=True)
    if browser:
        threading.Thread(target=_open, args=(chosen, url), name="browser", daemon=True).start()
    _run(chosen)


def free_port(port: int | None) -> int:
    """The port itself, any free one for 0, and for None the usual one or else any."""
    for candidate in (PORT, 0) if port is None else (port,):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, candidate))
            return int(probe.getsockname()[1])
    raise WorkspaceError(f"Port {port} on {HOST} cannot be used; choose another --port, or leave it out.")


def _run(port: int) -> None:
    import click
    from streamlit.web import cli

    settings = {
        "server.address": HOST,
        "server.port": port,
        "server.headless": "true",  # else it asks for an e-mail address on the terminal
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
    }
    with contextlib.suppress(click.Abort):  # Ctrl-C while it still starts; later the server ends by itself
        cli.main(
            ["run", str(SCRIPT), *(f"--{name}={value}" for name, value in settings.items())], standalone_mode=False
        )


def _open(port: int, url: str) -> None:
    """Open a browser as soon as the server answers; no browser is no error, the address stands on the terminal."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
            webbrowser.open(url)
            return
        time.sleep(POLL_SECONDS)
