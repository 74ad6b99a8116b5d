"""MLflow's page in the background of an app: real servers, real databases, an app that is killed."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fake_run import until

from workbench.runs import mlflow_server
from workbench.runs.mlflow_server import FAILED, OFF, READY, STARTING, BackgroundServer, external_server
from workbench.runs.processes import MARK, Identity
from workbench.tracking.mlflow import init_database, mlflow_uri

APP = """
import sys, time
from pathlib import Path
from workbench.runs.mlflow_server import BackgroundServer
server = BackgroundServer(Path(sys.argv[1]))
server.start()
while server.look().state == "starting":
    time.sleep(0.2)
print(server.look().state, server.look().url, "mlflow" in sys.modules or "torch" in sys.modules, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def no_uri_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BackgroundServer]:
    made = BackgroundServer(tmp_path)
    yield made
    made.stop()


def of_app(app: Identity) -> list[int]:
    """Pids of the living processes that serve for an app, by the mark that they inherit."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get(MARK, "").startswith(f"mlflow:{app.pid}:")
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_an_app_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    init_database(mlflow_uri(tmp_path))
    app = subprocess.Popen([sys.executable, "-c", APP, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    identity = Identity.of(app.pid)
    try:
        assert app.stdout is not None
        state, url, heavy = app.stdout.readline().split()
        assert (state, heavy) == (READY, "False")
        host, _, port = url.removeprefix("http://").partition(":")
        assert host == "127.0.0.1"
        page = http.client.HTTPConnection(host, int(port), timeout=60)
        page.request("GET", "/")
        assert b"MLflow" in page.getresponse().read()
        assert len(of_app(identity)) >= 2  # the watchdog and its server
    finally:
        app.send_signal(signal.SIGKILL)
        app.wait()
    until(lambda: not of_app(identity), seconds=120)


def test_it_starts_once_and_stops_with_all_it_started(server: BackgroundServer) -> None:
    assert server.look().state == OFF
    server.start()
    first = of_app(Identity.own())
    server.start()
    assert len(first) == 1 and of_app(Identity.own())[0] == first[0]
    assert server.look().state == STARTING
    server.stop()
    assert of_app(Identity.own()) == []
    assert server.look().state == OFF


def test_a_watchdog_that_was_killed_is_a_failure_and_can_be_replaced(server: BackgroundServer) -> None:
    server.start()
    (watchdog,) = of_app(Identity.own())
    psutil.Process(watchdog).kill()
    until(lambda: server.look().state == FAILED)
    assert (server.look().error or "").startswith("MLflow's server ended: ")
    server.start()
    assert server.look().state == STARTING
    assert watchdog not in of_app(Identity.own())


def test_a_database_that_is_none_is_one_sentence(tmp_path: Path, server: BackgroundServer) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database " * 100)
    server.start()
    until(lambda: server.look().state == FAILED)
    said = server.look().error or ""
    assert "Cannot use the MLflow database" in said and "mlflow.db" in said and "\n" not in said


def test_a_server_elsewhere_is_only_linked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert external_server(tmp_path) is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example:5000")
    assert external_server(tmp_path) == "http://tracking.example:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere.db")
    assert external_server(tmp_path) is None


def test_its_process_says_what_it_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", mlflow_server.__name__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "--parent, --port" in done.stderr
