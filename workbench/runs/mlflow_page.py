"""MLflow's own web page on a workspace's database, for as long as the command runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from workbench.runs.workspace import WorkspaceError
from workbench.tracking.mlflow import init_database, mlflow_uri, sqlite_path

HOST = "127.0.0.1"
GRACE_SECONDS = 10.0  # between asking the server to stop and making it


def serve(workspace: Path, port: int) -> None:
    """Serve until Ctrl-C or SIGTERM, then stop the server and everything it started.

    port 0 takes a free one. Raises WorkspaceError when the port is taken or MLflow runs elsewhere.
    """
    uri = mlflow_uri(workspace.resolve())
    if uri.startswith(("http://", "https://")):
        raise WorkspaceError(f"MLFLOW_TRACKING_URI points to the server {uri}; open that address in a browser.")
    port = free_port(port)
    init_database(uri)
    artifacts = (sqlite_path(uri) or workspace.resolve() / "mlflow.db").parent / "mlartifacts"
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    command += ["--default-artifact-root", str(artifacts), "--host", HOST, "--port", str(port), "--workers", "1"]
    # A session of its own, so that a signal reaches the server's workers through us only, all of them.
    server = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    print(f"MLflow shows {uri} at http://{HOST}:{port} (Ctrl-C stops it)", flush=True)
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = server.wait()
    finally:
        signal.signal(signal.SIGTERM, previous)
        _stop(server)
    raise WorkspaceError(f"MLflow's server ended with exit code {code}; its messages are above.")


def free_port(port: int) -> int:
    """The port itself if it is free, any free one for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise WorkspaceError(
                f"Port {port} on {HOST} cannot be used ({error.strerror}); choose another --port."
            ) from error
        return int(probe.getsockname()[1])


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server's whole process group; its id stays ours until the last member is gone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(GRACE_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
