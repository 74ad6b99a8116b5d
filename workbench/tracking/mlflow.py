"""MLflow: a run's parameters, metrics, spec and saved models in a local database or on any MLflow server.

Whatever goes wrong here is logged and never stops training. mlflow takes seconds to import, so this module
imports it only inside functions. It knows neither trainers nor the workspace's run folders.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import filelock

from workbench.fields import did_you_mean
from workbench.tracking.base import FAILED, FINISHED, KILLED, NullTracker

log = logging.getLogger(__name__)
KEYS = ("tracking_uri", "workspace", "experiment", "run_name", "tags", "spec", "artifact_location")
SQLITE = "sqlite:///"
INIT_SECONDS = 120.0  # how long a process waits while another one creates the database
PARAMS_PER_BATCH, METRICS_PER_BATCH, NAME_LENGTH, PARAM_LENGTH = 100, 1000, 250, 6000  # MLflow's limits
KEPT_METRICS = 50_000  # values kept for later while MLflow does not answer
WARN_EVERY = 100
PAUSE_FACTOR = 10.0  # after a failure of t seconds no metrics are sent for 10 t, so at most a tenth of the time is lost


def mlflow_uri(workspace: str | Path, uri: str | None = None) -> str:
    """The tracking URI: the given one, else MLFLOW_TRACKING_URI, else `mlflow.db` in the workspace.

    A relative SQLite path is relative to the workspace. The answer is absolute, so that trainer, app and MLflow's own
    page open the same database from any folder.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}mlflow.db"
    path = sqlite_path(uri)
    if path is None:
        return uri
    query = uri.partition("?")[1:]
    return f"{SQLITE}{(Path(workspace) / path).resolve().as_posix()}{''.join(query)}"


def sqlite_path(uri: str) -> Path | None:
    """The database file behind a SQLite URI; None for servers, other databases and memory."""
    name = uri.removeprefix(SQLITE).partition("?")[0]
    return Path(name) if uri.startswith(SQLITE) and name not in ("", ":memory:") else None


def init_database(uri: str) -> None:
    """Create the SQLite database behind `uri` if it is new; other URIs are left to their server.

    One process at a time: MLflow's schema migration fails when several start it together. WAL lets readers and
    writers work side by side. Raises OSError that names the file.
    """
    path = sqlite_path(uri)
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _quiet()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # before the lock: others need not wait for it

    with filelock.FileLock(f"{path}.lock", timeout=INIT_SECONDS):
        try:
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.Error as error:
            # Found here because MLflow itself would retry for minutes.
            raise OSError(f"Cannot use the MLflow database {path}: {error}.") from error
        SqlAlchemyStore(uri, str(path.parent / "mlartifacts")).engine.dispose()


def set_run_state(uri: str, run_id: str, state: str) -> bool:
    """Close a run that its own process could not close; True when done, False with a logged reason."""
    if state not in (FINISHED, FAILED, KILLED):
        raise ValueError(f"state must be {FINISHED}, {FAILED} or {KILLED}, got {state!r}.")
    try:
        path = sqlite_path(uri)
        if path is not None and not path.is_file():
            raise FileNotFoundError(f"there is no database {path}")
        client_of(uri).set_terminated(run_id, state)
    except Exception as error:  # noqa: BLE001 - tidying up after a run must not take the caller down
        log.warning("MLflow: run %s could not be set to %s: %s", run_id, state, error)
        return False
    return True


class MLflowTracker(NullTracker):
    """One MLflow run. `config` takes the keys of KEYS, all optional; an unknown one is a ValueError.

    If the run cannot be opened, one warning says so and the tracker stays silent. Metrics that MLflow refuses for a
    while are kept and sent later. NaN and infinities are logged as NaN, since MLflow would store an infinity as
    1.8e308. A resumed run cannot delete what MLflow holds after the checkpoint: those points stay, and are not
    logged a second time.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        for key in config:
            if key not in KEYS:
                raise ValueError(f"mlflow_config has no key {key!r}{did_you_mean(key, KEYS)}.")
        workspace = Path(config.get("workspace") or ".").resolve()
        self.uri = mlflow_uri(workspace, config.get("tracking_uri"))
        self.experiment: str = config.get("experiment") or "marl-workbench"
        self.run_name: str | None = config.get("run_name")
        self.tags = {str(key): str(value) for key, value in (config.get("tags") or {}).items()}
        self.spec = config.get("spec")
        self.artifact_location = artifact_folder(config.get("artifact_location"), workspace, self.uri)
        self.run_id: str | None = None
        self._mlflow: Any = None
        self._state: str | None = None
        self._waiting: list[Any] = []  # mlflow Metric objects not yet sent
        self._sent: dict[str, int] = {}  # last step MLflow held of each metric when the run was resumed
        self._retry_at = 0.0
        self._failures: Counter[str] = Counter()

    def begin(self, params: Mapping[str, Any]) -> None:
        self._attempt("the run could not be opened, so nothing is tracked", lambda: self._open(self.tags))
        if self.run_id is not None:
            self._attempt("the parameters are missing", lambda: self._log_params(params))
            self._attempt("the spec is missing", self._log_spec)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if self.run_id is None:
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = {_name(key): float(value) for key, value in values.items()}
        self._waiting += [
            Metric(key, value if math.isfinite(value) else math.nan, now, step)
            for key, value in points.items()
            if step > self._sent.get(key, -1)
        ]
        del self._waiting[:-KEPT_METRICS]
        if time.monotonic() >= self._retry_at:
            self._flush()

    def artifacts(self, folder: Path) -> None:
        if self.run_id is not None:
            self._attempt(f"the folder {folder} was not uploaded", lambda: self._upload(Path(folder).resolve()))

    def mark(self) -> dict[str, Any]:
        return {"run_id": self.run_id}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Continue the marked run; if MLflow no longer has it, a new run with the same tags takes over."""
        self._attempt("the run could not be reopened, so nothing is tracked", lambda: self._reopen(mark.get("run_id")))

    def end(self, state: str) -> None:
        if self.run_id is None or self._state == state:
            return
        self._flush()
        if self._attempt(f"the run was not set to {state}", lambda: self._mlflow.set_terminated(self.run_id, state)):
            self._state = state

    def _open(self, tags: Mapping[str, str]) -> None:
        self._mlflow = self._mlflow or client_of(self.uri)
        experiment = experiment_id(self._mlflow, self.experiment, self.artifact_location)
        self.run_id = self._mlflow.create_run(experiment, tags=dict(tags), run_name=self.run_name).info.run_id

    def _reopen(self, run_id: str | None) -> None:
        self._mlflow = client_of(self.uri)
        run = active_run(self._mlflow, run_id) if run_id else None
        if run is None:
            log.warning("MLflow: run %s no longer exists, a new one continues it.", run_id)
            self._open(self.tags | {"resumed_from": str(run_id)})
            return
        for key in run.data.metrics:
            history = self._mlflow.get_metric_history(run_id, key)
            self._sent[key] = max((point.step for point in history), default=-1)
        self._mlflow.update_run(run_id, status="RUNNING")
        self.run_id, self._state = run_id, None

    def _log_params(self, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        flat = [Param(_name(key), value[:PARAM_LENGTH]) for key, value in flatten(params).items()]
        for start in range(0, len(flat), PARAMS_PER_BATCH):
            self._mlflow.log_batch(self.run_id, params=flat[start : start + PARAMS_PER_BATCH], synchronous=True)

    def _log_spec(self) -> None:
        if self.spec is not None:
            self._mlflow.log_artifact(self.run_id, str(Path(self.spec).resolve()))

    def _upload(self, folder: Path) -> None:
        if not folder.is_dir():
            raise NotADirectoryError("there is no such folder")  # MLflow would say nothing
        self._mlflow.log_artifacts(self.run_id, str(folder), artifact_path=folder.name)

    def _flush(self) -> None:
        """Send what waits; on a failure keep it and pause."""
        started = time.monotonic()
        while self._waiting:
            batch = self._waiting[:METRICS_PER_BATCH]
            if not self._attempt("metrics are late", partial(self._send, batch)):
                now = time.monotonic()
                self._retry_at = now + PAUSE_FACTOR * (now - started)
                return
            del self._waiting[: len(batch)]

    def _send(self, batch: Sequence[Any]) -> None:
        self._mlflow.log_batch(self.run_id, metrics=batch, synchronous=True)

    def _attempt(self, consequence: str, action: Callable[[], object]) -> bool:
        """True when the action went through. Each consequence is logged once, then every WARN_EVERY failures."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - tracking must never stop training
            if self._failures[consequence] % WARN_EVERY == 0:
                log.warning("MLflow at %s: %s: %s", self.uri, consequence, " ".join(str(error).split()) or repr(error))
            self._failures[consequence] += 1
            return False
        return True


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested mappings as one with dotted keys; lists as JSON, everything else as text."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, default=str) if isinstance(value, list | tuple) else str(value)
    return flat


def _name(key: str) -> str:
    """The nearest name that MLflow accepts: it must also be a plain relative path."""
    parts = re.sub(r"[^\w\-.: /]", "_", key)[:NAME_LENGTH].split("/")
    return "/".join(part for part in parts if part not in ("", ".", "..")) or "_"


def artifact_folder(location: str | None, workspace: Path, uri: str) -> str | None:
    """Where MLflow puts the files of its runs; None leaves it to the server. location: as configured, if it is."""
    if location is not None:
        return location if "://" in location else str((workspace / location).resolve())
    return None if sqlite_path(uri) is None else str(workspace / "mlartifacts")  # a server chooses its own


def _quiet() -> None:
    """No telemetry, no progress chatter, and answers in seconds; a user's own environment settings win."""
    settings = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
                "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false", "MLFLOW_LOGGING_LEVEL": "WARNING",
                "MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}  # fmt: skip
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    import mlflow.tracking  # noqa: F401 - importing sets the levels that are changed here

    for name in ("alembic", "mlflow.store"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It prints a stack trace for every database error, which our one warning already tells.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def client_of(uri: str) -> Any:
    """An MlflowClient of a database, which is there afterwards, or of a server."""
    init_database(uri)
    _quiet()
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def experiment_id(client: Any, name: str, artifact_location: str | None) -> str:
    """The id of the experiment of that name, created if need be."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifact_location))
        except MlflowException:
            experiment = client.get_experiment_by_name(name)  # another run was faster, or the error is a real one
            if experiment is None:
                raise
    return str(experiment.experiment_id)


def active_run(client: Any, run_id: str) -> Any:
    """The run, or None when it was deleted; other failures are raised."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return run if run.info.lifecycle_stage == "active" else None
