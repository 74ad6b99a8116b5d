"""The command line: `workbench train`, `resume`, `stop`, `eval`, `play`, `runs`, `config`, `doctor`, `mlflow`, and what
other modules add: `tasks`, `sweep`, `report`.

Every error ends in one sentence on stderr and a non-zero exit; `--debug` shows the traceback.
Heavy packages load inside the commands, so that help is quick.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench.report_command import report
from workbench.reporting import INTERRUPTED, DebugOption
from workbench.reporting import reporting as _reporting
from workbench.sweep_commands import sweep
from workbench.task_commands import tasks_app

app = typer.Typer(
    help="Train teams of language models with multi-agent reinforcement learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(tasks_app, name="tasks")

WorkspaceOption = Annotated[Path, typer.Option("--workspace", "-w", help="Folder that holds runs/ and mlflow.db.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Such as config.num_turns=2.")]
RunArgument = Annotated[str, typer.Argument(help="A run's id, or its folder.")]
CheckpointOption = Annotated[int | None, typer.Option("--checkpoint", metavar="STEP", help="Use this checkpoint.")]
HERE = Path(".")


@app.command()
def train(
    spec: Annotated[Path, typer.Argument(help="YAML file of the run.")],
    set_: SetOption = None,
    workspace: WorkspaceOption = HERE,
    debug: DebugOption = False,
) -> None:
    """Train a team. The last line on stdout is the run's folder."""
    with _reporting(debug):
        from workbench.runs.execute import train_run
        from workbench.runs.mlflow_state import reconcile
        from workbench.runs.preflight import preflight
        from workbench.runs.spec import RunSpec
        from workbench.runs.workspace import Workspace

        resolved = RunSpec.load(spec, set_ or []).resolve()
        preflight(resolved)
        reconcile(Workspace(workspace))
        run = Workspace(workspace).create_run(resolved.spec)
    print(f"Training {resolved.algorithm.name} on {resolved.task.name}: {run.id}", file=sys.stderr)
    try:
        with _reporting(debug, f" (details: {run.log_file})"):
            _exit_unless_finished(train_run(run, resolved).state, run.id)
    finally:
        print(run.path)


@app.command()
def resume(
    run: RunArgument, set_: SetOption = None, workspace: WorkspaceOption = HERE, debug: DebugOption = False
) -> None:
    """Continue a stopped, failed or lost run from its newest checkpoint. --set may change config and tracking."""
    with _reporting(debug):
        from workbench.runs.execute import resume_run
        from workbench.runs.mlflow_state import reconcile
        from workbench.runs.workspace import QUEUED, RUNNING, Workspace, WorkspaceError

        folder = Workspace(workspace).run(run)
        state = folder.read_status().state
        if state == QUEUED:
            raise WorkspaceError(
                f"Run {folder.id} is queued already; to start it here, first: workbench stop {folder.id}"
            )
        if state != RUNNING:
            folder.stop_file.unlink(missing_ok=True)  # of an earlier life that was killed
        reconcile(Workspace(workspace))
        try:
            _exit_unless_finished(resume_run(folder, set_ or []).state, folder.id)
        finally:
            print(folder.path)


@app.command()
def stop(
    run: RunArgument,
    now: Annotated[bool, typer.Option("--now", help="Leave at once, without a checkpoint.")] = False,
    kill: Annotated[bool, typer.Option("--kill", help="Kill it and all that it started.")] = False,
    workspace: WorkspaceOption = HERE,
    debug: DebugOption = False,
) -> None:
    """Stop a running or queued run: it finishes the present item, writes a checkpoint and leaves."""
    with _reporting(debug):
        from workbench.runs.launch import stop as stop_run
        from workbench.runs.supervision import KILL, SAVE, TERMINATE
        from workbench.runs.workspace import Workspace

        folder = Workspace(workspace).run(run)
        stop_run(folder, KILL if kill else TERMINATE if now else SAVE)
        print(f"Run {folder.id} is being stopped; see: workbench runs", file=sys.stderr)


def _exit_unless_finished(state: str, run_id: str) -> None:
    if state != "finished":
        print(f"Stopped; continue with: workbench resume {run_id}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


@app.command(name="eval")
def evaluate(
    run: RunArgument,
    samples: Annotated[int | None, typer.Option(min=1, help="Evaluation items to use; all by default.")] = None,
    checkpoint: CheckpointOption = None,
    workspace: WorkspaceOption = HERE,
    debug: DebugOption = False,
) -> None:
    """Evaluate a run's trained agents on the task's evaluation items."""
    with _reporting(debug):
        from workbench.runs.execute import evaluate_run
        from workbench.runs.workspace import Workspace

        metrics = evaluate_run(Workspace(workspace).run(run), samples, checkpoint)
        for key, value in sorted(metrics.items()):
            print(f"{key}\t{value:.6g}")


@app.command()
def play(
    run: RunArgument,
    item: Annotated[int, typer.Option(help="Number of the evaluation item (training item if the task has none).")] = 0,
    prompt: Annotated[str | None, typer.Option(help="A prompt of your own instead of an item.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="How many times to play it.")] = 1,
    checkpoint: CheckpointOption = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Use the models as they were before training.")
    ] = False,
    workspace: WorkspaceOption = HERE,
    debug: DebugOption = False,
) -> None:
    """Let the agents play one item and show what each saw and wrote, and the reward."""
    with _reporting(debug):
        from workbench.runs.execute import play_run
        from workbench.runs.workspace import Workspace
        from workbench.terminal import show_episodes

        show_episodes(play_run(Workspace(workspace).run(run), item, prompt, samples, checkpoint, untrained))


@app.command()
def runs(workspace: WorkspaceOption = HERE, debug: DebugOption = False) -> None:
    """List the workspace's runs, newest first."""
    with _reporting(debug):
        from workbench.runs.mlflow_state import reconcile
        from workbench.runs.workspace import Workspace
        from workbench.terminal import show_runs

        reconcile(Workspace(workspace))
        show_runs(Workspace(workspace))


@app.command()
def config(
    algorithm: Annotated[str, typer.Argument(help="Such as magrpo.")],
    debug: DebugOption = False,
) -> None:
    """List an algorithm's configuration fields with default, allowed values and meaning."""
    with _reporting(debug):
        from workbench.terminal import show_config
        from workbench.trainers import algorithm as registered

        show_config(registered(algorithm).config)


@app.command()
def doctor(workspace: WorkspaceOption = HERE, debug: DebugOption = False) -> None:
    """Check packages, devices, memory, disk, built-in models and the tracking database."""
    with _reporting(debug):
        from workbench.doctor import diagnose
        from workbench.terminal import show_checks

        if not show_checks(diagnose(workspace)):
            raise typer.Exit(1)


@app.command()
def mlflow(
    workspace: WorkspaceOption = HERE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 = any free one.")] = 5000,
    debug: DebugOption = False,
) -> None:
    """Open MLflow's own page on the workspace's database until Ctrl-C."""
    with _reporting(debug):
        from workbench.runs.mlflow_page import serve

        serve(workspace, port)


app.command()(sweep)
app.command()(report)


@app.command(name="app")
def open_app(
    workspace: WorkspaceOption = HERE,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 = any free one. 8501 if free.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser when it is ready.")] = True,
    debug: DebugOption = False,
) -> None:
    """Open the app on a workspace until Ctrl-C; runs that it started go on."""
    with _reporting(debug):
        from workbench.ui.server import serve

        serve(workspace, port, browser)


def main() -> None:
    """Entry point of the `workbench` command."""
    from workbench.runs.environment import QUIET

    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    app()


if __name__ == "__main__":
    main()
