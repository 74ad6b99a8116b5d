"""`workbench` commands in a workspace of their own, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from workbench.cli import app
from workbench.runs.workspace import RunFolder, Workspace

SPEC = """
name: t
task: rendezvous
algorithm: magrpo
model: builtin:tiny
tracking: {mlflow: false}
"""


class Shell:
    """Runs `workbench` commands in one workspace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = folder / "spec.yaml"
        self.spec.write_text(SPEC)
        self.workspace = Workspace(folder / "work")

    def __call__(self, *arguments: Any) -> Result:
        return CliRunner().invoke(app, [*map(str, arguments), "--workspace", str(self.workspace.root)])

    def train(self, *arguments: Any) -> Result:
        return self("train", self.spec, *arguments)

    @property
    def run(self) -> RunFolder:
        (run,) = self.workspace.runs()
        return run


def assert_one_sentence(result: Result, message: str) -> None:
    """A non-zero exit with one error line that holds `message`, and no traceback."""
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert result.exit_code == 1, result.output
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
