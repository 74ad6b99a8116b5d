"""Whole `workbench train` runs with a process per model: killed workers, killed trainers, signals, plain scripts."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from children import gone, until, workers
from shells import SCRIPT, write_run
from transformers import AutoModelForCausalLM

from workbench import checkpoint
from workbench.runs.build import build_trainer
from workbench.runs.workspace import Workspace

TESTS = str(Path(__file__).parent)


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}


def start(folder, *arguments):
    """A `workbench` command in a process group of its own, as a terminal starts it; stderr goes to a file."""
    with open(folder / "stderr.txt", "w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "workbench.cli", *map(str, arguments), "--workspace", str(folder)],
            env=environment(), cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
        )  # fmt: skip


@pytest.fixture
def launched():
    """Collects processes that must not outlive a test, whatever happens in it."""
    processes = []
    yield processes
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def train(folder, launched, **config):
    process = start(folder, "train", write_run(folder, **config))
    launched.append(process)
    return process


def only_run(folder):
    (run,) = Workspace(folder).runs()
    return run


def wait_for_checkpoint(folder, process):
    def found():
        assert process.poll() is None, (folder / "stderr.txt").read_text()
        return list(folder.glob("runs/*/checkpoints/step-*"))

    until(found, "the first checkpoint")


def error_lines(folder):
    return [line for line in (folder / "stderr.txt").read_text().splitlines() if line.startswith("Error: ")]


# --- a worker is killed ---------------------------------------------------------------------------


def test_a_killed_worker_fails_the_run_which_goes_on_from_its_checkpoint(tmp_path, launched):
    process = train(tmp_path, launched, num_train_epochs=60)
    wait_for_checkpoint(tmp_path, process)
    running = workers(process.pid)
    assert len(running) == 2
    running[1].kill()
    assert process.wait(timeout=300) == 1
    gone(running)
    run = only_run(tmp_path)
    (error,) = error_lines(tmp_path)
    words = r"Error: (agent [01] on cpu died: killed by SIGKILL, by someone or by the system for lack of memory; "
    sentence = re.match(words + r"its last lines: none\.)", error)
    assert sentence, error
    status = run.read_status()
    assert (status.state, status.error) == ("failed", sentence[1])
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text()
    assert not list(run.checkpoint_folder.glob(".*"))  # no half of one
    newest = run.checkpoints()[max(run.checkpoints())]
    assert checkpoint.read(newest)["cursor"]

    resumed = start(tmp_path, "resume", run.id)
    launched.append(resumed)
    assert resumed.wait(timeout=300) == 0, (tmp_path / "stderr.txt").read_text()
    assert run.read_status().state == "finished"
    assert_as_in_one_process(run)


def assert_as_in_one_process(run):
    """The weights are those of the same spec, trained here, in one process and never interrupted."""
    torch.set_num_threads(1)
    whole = build_trainer(
        run.spec().with_overrides(["config.parallel_training=none", "config.save_interval=0"]).resolve()
    )
    whole.train()
    for i, agent in enumerate(whole.agents):
        saved = AutoModelForCausalLM.from_pretrained(run.model_folder / f"agent_{i}").state_dict()
        torch.testing.assert_close(dict(saved), dict(agent.state_dict()), rtol=0, atol=1e-5)


# --- the trainer is killed or asked to stop --------------------------------------------------------


def test_a_killed_trainer_takes_its_busy_workers_along(tmp_path, launched):
    """The worker is in the middle of a sampling that takes minutes, and does not look at its socket."""
    process = train(tmp_path, launched, num_generations=400, max_new_tokens=900)
    generating = tmp_path / "formatted"
    until(generating.exists, "the first prompt")
    running = workers(process.pid)
    spent = sum(p.cpu_times().user for p in running)
    until(lambda: sum(p.cpu_times().user for p in running) > spent + 1, "busy workers")
    process.kill()
    process.wait()
    gone(running, 10)
    assert not list(tmp_path.glob("rewarded"))  # it was in the middle


@pytest.mark.parametrize(("number", "moment"), [
    (signal.SIGINT, "loading"), (signal.SIGINT, "training"), (signal.SIGTERM, "training"),
])  # fmt: skip
def test_a_signal_to_the_whole_group_saves_and_leaves(number, moment, tmp_path, launched):
    """Ctrl-C in a terminal reaches trainer and workers alike; the workers are needed to save."""
    process = train(tmp_path, launched, num_train_epochs=100_000)
    if moment == "training":
        wait_for_checkpoint(tmp_path, process)
    running = until(lambda: workers(process.pid), "workers")
    os.killpg(process.pid, number)
    assert process.wait(timeout=300) == 130, (tmp_path / "stderr.txt").read_text()
    gone(running)
    run = only_run(tmp_path)
    assert run.read_status().state == "stopped"
    newest = run.checkpoints()[max(run.checkpoints())]
    assert checkpoint.read(newest)["cursor"]
    assert not workers(process.pid)


# --- plain scripts --------------------------------------------------------------------------------


def test_a_plain_script_needs_no_main_guard_and_leaves_nothing(tmp_path):
    """It trains at its top level, then in a thread, its folder holds files named like modules of Python and torch,
    its model's class lies beside it, and it never closes anything."""
    for name in ("random", "torch", "pickle"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the wrong {name}')\n")
    (tmp_path / "beside.py").write_text("from worker_models import Moody as Own\n")
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script], env=environment(PYTHONPATH=TESTS), cwd=tmp_path, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["same"] is True
    assert len(result["pids"]) == 2
    until(lambda: not any(map(psutil.pid_exists, result["pids"])), "the end of the workers", 20)


# --- before anything exists -----------------------------------------------------------------------


@pytest.mark.parametrize(("config", "message"), [
    ({"agent_devices": ["cpu", "cuda:99"]}, "agent_devices: there is no device 'cuda:99' on this machine"),
    ({"agent_devices": ["cpu"] * 3}, "agent_devices lists 3 devices for 2 models"),
    ({"agent_devices": None}, "agent_devices is required with parallel_training 'mp'"),
    ({"critic_devices": "cpu", "algorithm": "iac", "use_separate_critic": False}, "no separate critic to place"),
    ({"algorithm": "maac"}, "critic_devices is required with parallel_training 'mp'"),
])  # fmt: skip
def test_a_wrong_placement_makes_no_run(config, message, tmp_path):
    from typer.testing import CliRunner

    from workbench.cli import app

    spec = write_run(tmp_path, **config)
    result = CliRunner().invoke(app, ["train", str(spec), "--workspace", str(tmp_path)])
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert message in error
    assert result.exit_code == 1
    assert Workspace(tmp_path).runs() == []
