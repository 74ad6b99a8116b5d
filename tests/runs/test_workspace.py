"""Run folders: created whole, listed whatever their state, status replaced as a whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace, WorkspaceError
from workbench.terminal import show_runs

SPEC = RunSpec(name="My Run!", task="rendezvous", algorithm="magrpo", model="builtin:tiny")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


def test_a_new_run_is_complete(workspace: Workspace) -> None:
    run = workspace.create_run(SPEC)
    assert run.id.startswith("my-run-")
    assert run.spec() == SPEC
    assert run.read_status().state == "created"
    assert run.checkpoint_folder.is_dir()
    assert [r.path for r in workspace.runs()] == [run.path]


def test_a_run_that_cannot_be_written_leaves_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RunFolder, status: RunStatus) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_status", full)
    with pytest.raises(OSError, match="No space left"):
        workspace.create_run(SPEC)
    assert list(workspace.runs_folder.iterdir()) == []


def test_runs_are_found_by_id_and_by_path_and_suggested(workspace: Workspace) -> None:
    run = workspace.create_run(SPEC)
    assert workspace.run(run.id) == workspace.run(str(run.path)) == run
    with pytest.raises(WorkspaceError, match=f"did you mean '{run.id}'"):
        workspace.run(run.id[:-1])
    with pytest.raises(WorkspaceError, match="There is no run ''"):
        workspace.run("")
    with pytest.raises(WorkspaceError, match="There is no run 'xxx"):
        workspace.run("x" * 3000)  # longer than any file system's names


def test_foreign_and_half_made_folders_are_passed_over(workspace: Workspace) -> None:
    run = workspace.create_run(SPEC)
    (workspace.runs_folder / "notes").mkdir()
    (workspace.runs_folder / "file.txt").write_text("x")
    draft = workspace.runs_folder / ".draft"
    draft.mkdir()
    (draft / "spec.yaml").write_text("")
    assert [r.id for r in workspace.runs()] == [run.id]


def test_an_empty_or_missing_workspace_has_no_runs(workspace: Workspace) -> None:
    assert workspace.runs() == []


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (None, "unknown"),
        ("", "damaged"),
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"state": "dancing"}', "damaged"),
        ('{"state": "finished", "step": "many"}', "damaged"),
        ('{"state": "running", "pid": "abc"}', "damaged"),
        ('{"state": "running", "pid": -1, "process_started": 1.0}', "damaged"),
        ('{"state": "running", "pid": 1000000000000, "process_started": 1.0}', "damaged"),
        ('{"state": "finished", "started": 1e30}', "damaged"),
        ('{"state": "finished", "started": NaN}', "damaged"),
        ('{"state": "finished", "step": 1, "total": -1}', "damaged"),
        ('{"state": "finished", "step": 1%s}' % ("0" * 400), "damaged"),
        ('{"state": "finished", "key_of_a_newer_version": 1}', "finished"),
    ],
)
def test_a_bad_status_is_a_state_and_never_an_error(
    workspace: Workspace, text: str | None, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = workspace.create_run(SPEC)
    run.status_file.unlink()
    if text is not None:
        run.status_file.write_text(text)
    assert run.read_status().state == state
    assert [r.id for r in workspace.runs()] == [run.id]
    show_runs(workspace)
    assert state in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("My Run!", "my-run"),
        ("你好 世界", "你好-世界"),
        ("Größe_2", "größe-2"),
        ("हिन्दी", "हिन्दी"),
        ("../..", "run"),
        ("🙂", "run"),
        ("ж" * 200, "ж" * 40),
        ("好" * 200, "好" * 26),
    ],
)
def test_a_runs_id_keeps_the_letters_of_its_name(workspace: Workspace, name: str, start: str) -> None:
    run = workspace.create_run(SPEC.model_copy(update={"name": name}))
    assert re.fullmatch(re.escape(start) + r"-\d{8}-\d{6}-[0-9a-f]{4}", run.id)
    assert workspace.run(run.id) == run


def test_a_running_run_lives_as_long_as_its_process(workspace: Workspace) -> None:
    run = workspace.create_run(SPEC)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = psutil.Process(child.pid).create_time()
    run.write_status(RunStatus("running", pid=child.pid, process_started=started))
    assert run.read_status().state == "running"
    run.write_status(RunStatus("running", pid=child.pid, process_started=started - 100))  # the pid was used again
    assert run.read_status().state == "lost"
    run.write_status(RunStatus("running", pid=child.pid, process_started=started))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead but not yet reaped: a zombie is not alive
    assert run.read_status().state == "lost"
    assert "workbench resume" in str(run.read_status().error)
    child.communicate()


def test_a_status_is_replaced_whole(workspace: Workspace) -> None:
    run = workspace.create_run(SPEC)
    run.write_status(RunStatus("finished", step=3, total=3, reward=0.5))
    assert json.loads(run.status_file.read_text())["reward"] == 0.5
    assert run.read_status() == RunStatus("finished", step=3, total=3, reward=0.5)
    assert [p.name for p in run.path.iterdir() if p.name.startswith(".status")] == []


def test_only_complete_checkpoints_count(workspace: Workspace) -> None:
    run = workspace.create_run(SPEC)
    for name in ("step-00000012", "step-00000004", ".draft-00000020-1", "step-00000030", "notes"):
        (run.checkpoint_folder / name).mkdir()
        if name != "step-00000030":
            (run.checkpoint_folder / name / "state.pt").write_text("x")
    assert list(run.checkpoints()) == [4, 12]
