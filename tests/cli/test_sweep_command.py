"""`workbench sweep` as a user runs it: real trainings of a tiny model, results on screen and in files, MLflow."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.runs.sweep import SweepFolder
from workbench.runs.sweep_spec import load_sweep
from workbench.runs.workspace import Workspace
from workbench.tracking import trace
from workbench.tracking.mlflow import mlflow_uri

TEXT = """
name: tiny
base:
  task: rendezvous
  model: builtin:tiny
  algorithm: magrpo
  config: {num_train_epochs: 1, num_generations: 2, eval_interval: 2, eval_num_samples: 2, logging_steps: 2}
grid: {config.advantage_normalization: [true, false]}
"""
KEY = "eval/turn_1/reward_mean"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(TEXT)
    return path


def workbench(*arguments: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    command = [sys.executable, "-m", "workbench.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)


def test_a_sweep_from_the_first_run_to_the_results(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    space = tmp_path / "work"
    done = workbench("sweep", file, "--workspace", space, "--results", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    runs = SweepFolder(Workspace(space), load_sweep(file)).runs()
    assert [run.read_status().state for run in runs.values()] == ["finished", "finished"]

    data = json.loads((tmp_path / "out.json").read_text())
    assert (data["factor"], data["metric"], data["warnings"]) == ("advantage_normalization", KEY, [])
    for cell, run in zip(data["cells"], runs.values()):
        last = trace.read_metrics(run.trace_file, [KEY])["value"].iloc[-1]
        assert (cell["n"], cell["low"]) == (1, None)
        assert cell["mean"] == pytest.approx(last)
        assert f"{last:.4f}" in done.stdout
    assert [cell["advantage_normalization"] for cell in data["cells"]] == ["true", "false"]
    assert "n counts runs, one per seed" in done.stdout
    assert "2/2 advantage_normalization=false, seed=0: finished" in done.stderr

    from mlflow.tracking import MlflowClient

    client = MlflowClient(mlflow_uri(space))
    experiment = client.get_experiment_by_name("workbench")
    found = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
    children = [found[str(run.read_status().mlflow_run)] for run in runs.values()]
    (parent,) = {child.data.tags["mlflow.parentRunId"] for child in children}
    assert len(found) == 3
    assert (found[parent].info.status, found[parent].data.tags["sweep"]) == ("FINISHED", "tiny")

    again = workbench("sweep", file, "--workspace", space, "--results", tmp_path / "out.csv")
    assert again.returncode == 0, again.stderr
    assert len(Workspace(space).runs()) == 2  # nothing was run twice
    with (tmp_path / "out.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [row["advantage_normalization"] for row in rows] == ["true", "false"]
    assert float(rows[0]["mean"]) == pytest.approx(data["cells"][0]["mean"])
    assert len(client.search_runs([experiment.experiment_id])) == 3  # the same parent as before


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_status_shows_every_run_and_starts_none(file: Path, tmp_path: Path) -> None:
    result = run("sweep", file, "--workspace", tmp_path / "work", "--status")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("not started") == 2
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--results", "out.txt"), "--results needs a file that ends in .csv or .json, got 'out.txt'"),
        (("--results", "nowhere/out.csv"), "create it first"),
        (("--equal", "steps"), "--equal is env_step or none, got 'steps'"),
    ],
)
def test_a_wrong_option_is_found_before_anything_runs(
    file: Path, tmp_path: Path, arguments: tuple[str, str], said: str
) -> None:
    result = run("sweep", file, "--workspace", tmp_path / "work", *arguments)
    assert result.exit_code == 1
    assert result.stderr.count("Error: ") == 1
    assert said in result.stderr
    assert not (tmp_path / "work").exists()


def test_what_only_torch_can_tell_is_found_before_the_first_run(file: Path, tmp_path: Path) -> None:
    grid = "grid: {config.agent_devices: [cpu, 'cuda:77']}"
    file.write_text(TEXT.replace("grid: {config.advantage_normalization: [true, false]}", grid))
    result = run("sweep", file, "--workspace", tmp_path / "work")
    assert result.exit_code == 1
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert "The sweep cannot be started: run agent_devices=cuda:77, seed=0: " in error
    assert Workspace(tmp_path / "work").runs() == []
