"""One MLflow run above several others: its page lists them below it, as MLflow's own nested runs.

The parent is opened by whoever directs the runs, and holds no curve of its own. While it is not complete it is
SCHEDULED and not RUNNING, so that a killed director leaves no run that seems to run for ever. Whatever goes wrong here
is logged and never stops anything. mlflow is imported inside functions only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from workbench.tracking.mlflow import active_run, artifact_folder, client_of, experiment_id, mlflow_uri

log = logging.getLogger(__name__)
PARENT_TAG = "mlflow.parentRunId"
OPEN = "SCHEDULED"


class ParentRun:
    """The parent in one database; run_id is None when it could not be opened, and then all else does nothing."""

    def __init__(self, workspace: Path, uri: str | None, run_id: str | None = None) -> None:
        self.workspace, self.uri, self.run_id = workspace, mlflow_uri(workspace, uri), run_id

    def open(self, experiment: str, name: str, tags: Mapping[str, str], text: str, file: str) -> None:
        """Go on with the known run if MLflow still has it, else open one; text is stored with it as `file`."""

        def action() -> None:
            client = client_of(self.uri)
            if self.run_id is None or active_run(client, self.run_id) is None:
                place = artifact_folder(None, self.workspace, self.uri)
                number = experiment_id(client, experiment, place)
                self.run_id = client.create_run(number, tags=dict(tags), run_name=name).info.run_id
            client.update_run(self.run_id, status=OPEN)
            client.log_text(self.run_id, text, file)

        self._attempt("the parent run could not be opened", action)

    def adopt(self, child: str, uri: str) -> None:
        """Make a run of the same database a child of this one."""
        if self.run_id is not None and uri == self.uri:
            self._attempt("a run has no parent", lambda: client_of(self.uri).set_tag(child, PARENT_TAG, self.run_id))

    def close(self, state: str) -> None:
        """state: FINISHED, FAILED or KILLED."""
        if self.run_id is not None:
            self._attempt(
                f"the parent run was not set to {state}", lambda: client_of(self.uri).set_terminated(self.run_id, state)
            )

    def _attempt(self, consequence: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - tracking must never stop training
            log.warning("MLflow at %s: %s: %s", self.uri, consequence, " ".join(str(error).split()) or repr(error))
