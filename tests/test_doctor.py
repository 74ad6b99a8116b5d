"""The doctor's report: a broken check is a finding, and the exit code tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import doctor
from workbench.doctor import Check
from workbench.terminal import show_checks


def test_every_check_runs_and_the_small_model_loads(tmp_path: Path) -> None:
    checks = {check.name: check for check in doctor.diagnose(tmp_path / "not" / "yet")}
    for name in ("python", "torch", "extras", "devices", "memory", "model builtin:tiny", "MLflow", "sandbox"):
        assert checks[name].result in ("ok", "note"), checks[name]
    assert checks["disk"].detail.endswith(str(tmp_path))  # the nearest folder that exists
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize("name", ["", "runs"])
def test_a_file_where_a_folder_should_be_fails(tmp_path: Path, name: str) -> None:
    workspace = tmp_path / "work"
    if name:
        workspace.mkdir()
    (workspace / name).write_text("in the way")
    check = doctor.disk(workspace)
    assert check.result == "fail"
    assert "is a file" in check.detail


def test_a_workspace_that_cannot_be_written_fails_and_one_that_can_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.disk(tmp_path).result in ("ok", "note")
    assert list(tmp_path.iterdir()) == []
    assert doctor.disk(Path("/proc/workbench")).result == "fail"  # refuses even root

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    check = doctor.disk(tmp_path)
    assert (check.result, "No space left on device" in check.detail) == ("fail", True)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_fails() -> None:
    assert doctor.package("no-such-package-here").result == "fail"


def test_a_check_that_breaks_is_a_finding() -> None:
    def broken() -> Check:
        raise RuntimeError("in two\nlines")

    assert doctor._guarded("thing", broken) == Check("thing", "fail", "RuntimeError: in two lines")


def test_the_report_tells_whether_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_checks([Check("a", "ok", "fine"), Check("b", "note", "low")])
    assert not show_checks([Check("a", "ok", "fine"), Check("c", "fail", "pip install 'x[y]'")])
    assert "FAIL c: pip install 'x[y]'" in capsys.readouterr().out
