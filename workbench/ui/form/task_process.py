"""A process of its own for a task of the user's: `python -m workbench.ui.form.task_process`, a request on stdin.

The app asks it to examine a run spec, or to launch it, which loads the task's file, too. What the file prints goes to
stderr, so that stdout holds the answer alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from workbench.runs.errors import sentence
from workbench.runs.launch import launch, resume
from workbench.runs.processes import Identity
from workbench.runs.spec import RunSpec
from workbench.runs.supervision import read_supervision
from workbench.runs.workspace import RunFolder, Workspace, WorkspaceError
from workbench.tasks import TaskError
from workbench.tasks.files import is_file_reference
from workbench.ui.form.examine import Examination, examine, plain_base

SECONDS = 30.0  # for a task's file to load, and for a supervisor to take a run over
LAST_WORDS = 300  # characters of what a process that failed said last


@dataclass(frozen=True)
class Request:
    """data: a run spec whose relative paths start at folder. token: launch the run with it; None = examine only.
    resume: the id of a run to go on with instead."""

    data: dict[str, Any]
    folder: Path
    workspace: Path
    token: str | None = None
    resume: str | None = None


@dataclass(frozen=True)
class Answer:
    """One of them: what was found, the launched run's id, or what went wrong."""

    found: Examination | None = None
    run: str | None = None
    error: str | None = None


REQUEST = pydantic.TypeAdapter(Request)
ANSWER = pydantic.TypeAdapter(Answer)


# --- in the app -----------------------------------------------------------------------------------


def examined(data: Mapping[str, Any], workspace: Path) -> Examination:
    """`examine`, in a process of its own when the task is a file; paths start at the workspace's folder."""
    if not is_file_reference(str(data["task"])):
        return examine(data, workspace)
    answer = _ask(Request(dict(data), workspace, workspace), SECONDS)
    if answer.found is not None:
        return answer.found
    return Examination(plain_base(data["algorithm"]), error=answer.error, blamed="task")


def launched(data: Mapping[str, Any], workspace: Workspace, token: str) -> RunFolder:
    """Launch a run spec given as plain data, as `workbench.runs.launch.launch` does, with the same errors."""
    if not is_file_reference(str(data["task"])):
        return launch(workspace, RunSpec.parse(data, "spec", workspace.root), token)
    answer = _ask(Request(dict(data), workspace.root, workspace.root, token), 2 * SECONDS)
    if answer.run is None:
        raise WorkspaceError(answer.error or "The run could not be launched.")
    return workspace.run(answer.run)


def resumed(run: RunFolder, workspace: Workspace, token: str) -> None:
    """Resume a run, as `workbench.runs.launch.resume` does, with the same errors."""
    data = run.spec().data()
    if not is_file_reference(str(data["task"])):
        return resume(run, token=token)
    answer = _ask(Request(data, workspace.root, workspace.root, token, run.id), 2 * SECONDS)
    if answer.run is None:
        raise WorkspaceError(answer.error or "The run could not be resumed.")


def _ask(request: Request, seconds: float) -> Answer:
    command = [sys.executable, "-m", "workbench.ui.form.task_process"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        output, words = process.communicate(REQUEST.dump_json(request), timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Answer(error=f"The task {request.data['task']} did not load within {seconds:.0f} seconds.")
    try:
        return ANSWER.validate_json(output)
    except pydantic.ValidationError:
        last = " ".join(words.decode(errors="replace").split())[-LAST_WORDS:]
        said = f": {last}" if last else ""
        return Answer(
            error=f"The task {request.data['task']} ended the process that loaded it (exit code {process.returncode})"
            f"{said}"
        )


# --- in the process of its own --------------------------------------------------------------------


def answer(request: Request) -> Answer:
    """What `request` asks for; whatever the user's file raises is the answer's error."""
    try:
        if request.token is None:
            return Answer(found=examine(request.data, request.folder))
        run = _started(request, Workspace(request.workspace), request.token)
        _wait_for_supervisor(run)
        return Answer(run=run.id)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        return Answer(error=sentence(error))


def _started(request: Request, workspace: Workspace, token: str) -> RunFolder:
    if request.resume is None:
        return launch(workspace, RunSpec.parse(request.data, "spec", request.folder), token)
    run = workspace.run(request.resume)
    resume(run, token=token)
    return run


def _wait_for_supervisor(run: RunFolder) -> None:
    """Until its supervisor has the run: before that, the run is lost when this process ends."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = read_supervision(run.supervision_file)
        if found is None or found.supervisor != Identity.own():
            return
        time.sleep(0.05)
    raise TaskError(f"The supervisor of run {run.id} did not start within {SECONDS:.0f} seconds.")


def main() -> None:
    request = REQUEST.validate_json(sys.stdin.buffer.read())
    channel = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(channel, "wb") as out:
        out.write(ANSWER.dump_json(answer(request)))


if __name__ == "__main__":
    main()
