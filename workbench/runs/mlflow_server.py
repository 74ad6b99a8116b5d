"""MLflow's own page in the background of the app: started when first asked for, gone as soon as the app is.

`python -m workbench.runs.mlflow_server WORKSPACE --parent PID STARTED --port PORT` is its process: it serves until it
is stopped, or until that parent is gone, however it went. The app process never imports mlflow; it only asks the port
whether the page answers.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from workbench.runs.endings import ERROR, TAIL_BYTES
from workbench.runs.environment import QUIET
from workbench.runs.errors import sentence
from workbench.runs.mlflow_page import GRACE_SECONDS, HOST, free_port, serve
from workbench.runs.processes import MARK, Identity, end_all, marked
from workbench.tracking.mlflow import mlflow_uri

NO_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Without its job runners, processes of their own that nobody here uses, MLflow starts and leaves much sooner."""
OFF, STARTING, READY, FAILED = "off", "starting", "ready", "failed"
WATCH_SECONDS = 0.5  # how long a server may outlive its app, besides the time it takes to leave
ASK_SECONDS = 0.5  # for the page to answer; it is on this machine
LEAVE_SECONDS = 2 * GRACE_SECONDS + 5.0  # what `serve` may take to stop its server, and a moment
STOP_SECONDS = 1.0  # what a reader waits for a server to leave by itself; the database survives a kill


@dataclass(frozen=True)
class ServerState:
    """state: off, starting, ready or failed. url: where the page is once it is ready. error: one sentence."""

    state: str
    url: str | None = None
    error: str | None = None


def external_server(workspace: Path) -> str | None:
    """The address of the MLflow server that MLFLOW_TRACKING_URI names; None for a database, which needs one."""
    uri = mlflow_uri(workspace)
    return uri if uri.startswith(("http://", "https://")) else None


class BackgroundServer:
    """The one server of an app process for one workspace; safe to use from several threads."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object lives
        self._mark = ""
        self._url: str | None = None
        self._ready = False
        self._error: str | None = None

    def start(self) -> None:
        """Start it unless it is there; returns at once, see `look`."""
        with self._lock:
            if self._running():
                return
            self._clear()
            try:
                self._launch()
            except (OSError, ValueError) as error:
                self._error = sentence(error)

    def look(self) -> ServerState:
        """What it does now; takes a moment while it starts, nothing otherwise."""
        with self._lock:
            if self._process is None:
                return ServerState(FAILED if self._error else OFF, error=self._error)
            if not self._running():
                self._error = f"MLflow's server ended: {self._last_words()}"
                self._clear()
                return ServerState(FAILED, error=self._error)
            self._ready = self._ready or self._answers()
            return ServerState(READY, self._url) if self._ready else ServerState(STARTING)

    def stop(self) -> None:
        """End it and wait until nothing of it is left."""
        with self._lock:
            if self._process is not None:
                self._process.terminate()
            self._clear()
            self._error = None

    def _launch(self) -> None:
        own, port = Identity.own(), free_port(0)
        self._mark = f"mlflow:{own.pid}:{own.started}:{port}"
        os.truncate(self._output.fileno(), 0)
        command = [sys.executable, "-m", __spec__.name, str(self.workspace), "--port", str(port)]
        command += ["--parent", str(own.pid), str(own.started)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
            env={**QUIET, **NO_JOBS, **os.environ, MARK: self._mark},
        )
        self._url, self._ready, self._error = f"http://{HOST}:{port}", False, None

    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _clear(self) -> None:
        """Nothing of an earlier server may stay, not even when its watchdog was killed."""
        if self._process is not None:
            end_all(marked(self._mark), STOP_SECONDS)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._url is not None
        connection = http.client.HTTPConnection(self._url.removeprefix("http://"), timeout=ASK_SECONDS)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _last_words(self) -> str:
        file = self._output.fileno()
        size = os.fstat(file).st_size
        # Not seek: the server shares this file's position.
        text = os.pread(file, TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = next((line.removeprefix(ERROR) for line in reversed(lines) if line.startswith(ERROR)), None)
        return said or (lines[-1] if lines else "without a word.")


# --- in the process of its own --------------------------------------------------------------------


def main(workspace: Path, parent: Identity, port: int) -> int:
    """Serve until told to stop or the parent is gone; the exit code of the process."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    try:
        serve(workspace, port)
    except KeyboardInterrupt:
        return 0
    except Exception as error:  # noqa: BLE001 - said to the app, which reads the last line
        print(f"{ERROR}{sentence(error)}", file=sys.stderr)
        return 1
    return 0


def _follow(parent: Identity) -> None:
    """End this process when the parent is gone; again and again, in case a signal came too early to be obeyed."""
    while True:
        time.sleep(WATCH_SECONDS)
        if not parent.alive():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(LEAVE_SECONDS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workbench.runs.mlflow_server")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--parent", nargs=2, required=True, metavar=("PID", "STARTED"))
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    pid, started = given.parent
    sys.exit(main(given.workspace, Identity(int(pid), float(started)), given.port))
