"""The rooms of the library import one way, and heavy packages stay where they belong."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "workbench"
# Each room may import the rooms that stand after it (DAG, highest first).
LAYERS = [
    {"cli"},
    {"task_commands", "sweep_commands", "report_command"},
    {"terminal", "reporting", "sweep_display"},
    {"doctor"},
    {"ui"},
    {"report"},
    {"insight"},
    {"runs"},
    {"trainers"},
    {"rollout", "checkpoint"},
    {"parallel", "tracking", "stopwatch"},
    {"tasks"},
    {"models"},
    {"rewards", "callbacks"},
    {"objectives", "estimators", "config"},
    {"types", "fields"},
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
HOMES = {"streamlit": {"ui"}, "mlflow": {"tracking"}, "wandb": {"tracking"}, "peft": {"models"}}
HOMES["transformers"] = {"models"}
HOMES["datasets"] = {"tasks"}
INSIGHT = ", ".join(f"workbench.insight.{path.stem}" for path in sorted((ROOT / "insight").glob("[!_]*.py")))


def modules():
    return sorted(ROOT.rglob("*.py"))


def room_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def at_run_time(node):
    """All nodes but those under `if TYPE_CHECKING`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"):
            yield from at_run_time(child)


def imported(path):
    for node in at_run_time(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
            if node.module == "workbench":
                yield from (f"workbench.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_import_one_way(path):
    room = room_of(path)
    if room == "__init__":
        return
    assert room in RANK, f"{room} is a new room: give it a layer"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "workbench" and len(parts) > 1 and parts[1] != room:
            assert RANK[parts[1]] >= RANK[room], f"{path.name} ({room}) must not import {name}"
        if parts[0] in HOMES:
            assert room in HOMES[parts[0]], f"{name} belongs in {HOMES[parts[0]]}, not in {room}"


@pytest.mark.parametrize(
    "module",
    [
        "workbench",
        "workbench.cli",
        "workbench.config",
        "workbench.tasks",
        "workbench.runs.spec",
        "workbench.runs.sweep",
        "workbench.report",
        INSIGHT,
    ],
)
def test_what_the_app_and_the_command_line_import_is_free_of_torch(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'transformers', 'mlflow') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_public_names_resolve():
    import workbench

    for name in workbench.__all__:
        assert getattr(workbench, name).__name__ == name
