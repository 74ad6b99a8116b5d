"""Short trainings of a random byte-level model on the rendezvous, as run folders with real traces."""

import warnings
from pathlib import Path

import pytest
import torch

from workbench.runs.build import build_trainer
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.tracking.trace_writer import TraceWriter

SHORT = {"num_turns": 2, "num_train_epochs": 2, "max_new_tokens": 4, "early_termination_threshold": None,
         "eval_interval": 4, "eval_num_samples": 2, "rollout_buffer_size": 4, "logging_steps": 4}  # fmt: skip


def train(root: Path, algorithm: str, name: str = "", **config) -> RunFolder:
    """A finished run in the workspace `root`."""
    torch.set_num_threads(1)
    critical = algorithm in ("maac", "iac")
    critic = {"critic": "builtin:tiny"} if critical else {}
    size = {"num_generations": 1 if critical else 4}
    data = {"name": name or algorithm, "task": "rendezvous", "algorithm": algorithm, "model": "builtin:tiny", **critic,
            "config": SHORT | size | config, "tracking": {"mlflow": False}}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resolved = RunSpec.parse(data, "test", root).resolve()
        trainer = build_trainer(resolved)
    run = Workspace(root).create_run(resolved.spec)
    trainer.tracker.trackers.append(TraceWriter(run.trace_file))
    trainer.train()
    run.write_status(RunStatus("finished", step=3, total=3, reward=0.5, started=100.0, ended=160.0))
    return run


@pytest.fixture(scope="session")
def maac_run(tmp_path_factory) -> RunFolder:
    return train(tmp_path_factory.mktemp("maac"), "maac", reference_kl_enabled=True, reference_kl_coef=0.5)


@pytest.fixture(scope="session")
def iac_run(tmp_path_factory) -> RunFolder:
    return train(tmp_path_factory.mktemp("iac"), "iac")


@pytest.fixture(scope="session")
def magrpo_run(tmp_path_factory) -> RunFolder:
    return train(tmp_path_factory.mktemp("magrpo"), "magrpo", reference_kl_enabled=True)
