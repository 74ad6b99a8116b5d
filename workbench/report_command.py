"""`workbench report RUN...`: one HTML file about runs, to keep or to send."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench.reporting import DebugOption, reporting


def report(
    run: Annotated[list[str], typer.Argument(help="Ids of runs, or their folders; several are compared.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; report-<id>.html by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
    workspace: Annotated[Path, typer.Option("--workspace", "-w", help="Folder that holds runs/ and mlflow.db.")] = Path(
        "."
    ),
    debug: DebugOption = False,
) -> None:
    """Write curves, settings, completions and alarms of runs into one HTML file that needs no network."""
    with reporting(debug):
        from workbench.report import default_name, write_report
        from workbench.runs.workspace import Workspace

        found = [Workspace(workspace).run(name) for name in dict.fromkeys(run)]
        runs = list({folder.path: folder for folder in found}.values())
        file = output or Path(default_name(runs))
        write_report(runs, file, force)
        print(f"{file.stat().st_size / 2**20:.1f} MiB; open it in a browser.", file=sys.stderr)
        print(file)
