"""Whole runs through the real command line: same seed, kill and resume, play, the model folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from workbench.tracking import trace

SPEC = """
name: e2e
task: rendezvous
algorithm: {algorithm}
model: builtin:tiny
config: {{num_train_epochs: 5, num_generations: 4, num_turns: 2, early_termination_threshold: null, max_new_tokens: 2,
         rollout_buffer_size: 3, train_batch_size: 2, shuffle: true, eval_interval: 3, eval_num_samples: 2,
         lr_scheduler: linear, warmup_steps: 2, save_interval: 7, reference_kl_enabled: true}}
tracking: {{mlflow: false}}
"""


def workbench(*arguments, check=True, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "workbench.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, **options)
    assert done.returncode == 0 or not check, done.stderr
    return done


def train(folder, algorithm="magrpo", *arguments):
    folder.mkdir(exist_ok=True)
    (folder / "spec.yaml").write_text(SPEC.format(algorithm=algorithm))
    out = workbench("train", folder / "spec.yaml", "--workspace", folder, *arguments)
    return Path(out.stdout.splitlines()[-1])


def rows(run):
    """Everything in the trace that does not tell the time."""
    file = run / "trace.db"
    metrics = trace.read_metrics(file)
    metrics = metrics[~metrics.key.str.startswith(("time/", "tokens_per_s"))]
    tables = [trace.read_nodes(file), trace.read_joints(file), trace.read_completions(file), metrics]
    return [table.drop(columns=["time"], errors="ignore").reset_index(drop=True) for table in tables]


def weights(run):
    return [AutoModelForCausalLM.from_pretrained(run / "model" / f"agent_{i}").state_dict() for i in range(2)]


def assert_same_run(one, other):
    for a, b in zip(rows(one), rows(other)):
        pd.testing.assert_frame_equal(a, b, check_exact=True)
    for a, b in zip(weights(one), weights(other)):
        assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return train(tmp_path_factory.mktemp("unbroken"))


def test_same_spec_and_seed_give_the_same_trace(unbroken, tmp_path):
    assert_same_run(unbroken, train(tmp_path))


def test_a_killed_and_resumed_run_equals_an_unbroken_one(unbroken, tmp_path):
    """The run is killed -9 after its first checkpoint, at a moment nobody chose."""
    (tmp_path / "spec.yaml").write_text(SPEC.format(algorithm="magrpo"))
    command = [sys.executable, "-m", "workbench.cli", "train", tmp_path / "spec.yaml", "--workspace", tmp_path]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("runs/*/checkpoints/step-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = next(p for p in (tmp_path / "runs").iterdir() if p.is_dir() and not p.name.startswith("."))
    assert not (run / "model").exists()
    assert "lost" in workbench("runs", "--workspace", tmp_path).stdout
    workbench("resume", run.name, "--workspace", tmp_path)
    assert_same_run(unbroken, run)


def test_the_model_folder_loads_with_one_call_and_play_shows_both_agents(unbroken):
    AutoTokenizer.from_pretrained(unbroken / "model" / "agent_1")
    out = workbench("play", unbroken.name, "--workspace", unbroken.parents[1]).stdout
    assert "agent 0" in out
    assert "agent 1" in out
    assert "reward" in out


def test_eval_prints_the_documented_metrics(unbroken):
    out = workbench("eval", unbroken.name, "--workspace", unbroken.parents[1]).stdout
    for key in ("eval/turn_1/reward_mean", "eval/turn_2/expected_return"):
        assert key in out


def test_ctrl_c_saves_and_leaves_final_states(tmp_path):
    """One SIGINT: checkpoint, status stopped, MLflow's run KILLED and not left running."""
    spec = SPEC.format(algorithm="marloo").replace("mlflow: false", "mlflow: true").replace("epochs: 5", "epochs: 500")
    (tmp_path / "spec.yaml").write_text(spec)
    command = [sys.executable, "-m", "workbench.cli", "train", tmp_path / "spec.yaml", "--workspace", tmp_path]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("runs/*/checkpoints/step-*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert "stopped" in workbench("runs", "--workspace", tmp_path).stdout
    import mlflow

    runs = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").search_runs(["1"])
    assert [run.info.status for run in runs] == ["KILLED"]
