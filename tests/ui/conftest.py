"""A workspace with small runs that were really trained, for every page to show."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from workbench.runs.workspace import RunFolder, Workspace

SHORT = {"num_turns": 2, "num_train_epochs": 2, "max_new_tokens": 4, "early_termination_threshold": None,
         "eval_interval": 4, "eval_num_samples": 2, "rollout_buffer_size": 4, "logging_steps": 4, "save_interval": 4,
         }  # fmt: skip


def really_trained(workspace: Workspace, algorithm: str, **config) -> RunFolder:
    """A finished run with trace, log, checkpoints and final model: two turns of REINFORCE, or one path of a critic."""
    import torch

    from workbench.runs.execute import train_run
    from workbench.runs.spec import RunSpec

    torch.set_num_threads(1)
    critical = algorithm in ("maac", "iac")
    data = {"name": f"trained {algorithm}", "task": "rendezvous", "algorithm": algorithm, "model": "builtin:tiny",
            "config": SHORT | {"num_generations": 1 if critical else 4} | config, "tracking": {"mlflow": False},
            }  # fmt: skip
    if critical:
        data["critic"] = "builtin:tiny"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resolved = RunSpec.parse(data, "test", workspace.root).resolve()
        run = workspace.create_run(resolved.spec)
        train_run(run, resolved)
    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """One REINFORCE run, one MAAC run, one IAC run, oldest first. Shared: a test that changes a run copies it."""
    workspace = Workspace(tmp_path_factory.mktemp("trained"))
    for algorithm in ("magrpo", "maac", "iac"):
        really_trained(workspace, algorithm)
    return workspace


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace of the test's own that the app shows; empty at first."""
    workspace = Workspace(tmp_path / "work")
    monkeypatch.setenv("WORKBENCH_WORKSPACE", str(workspace.root))
    for name in ("WORKBENCH_LOCKS", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return workspace


@pytest.fixture
def runs(trained: Workspace, monkeypatch: pytest.MonkeyPatch) -> dict[str, RunFolder]:
    """The trained runs by algorithm, in the workspace that the app shows. Not to be changed."""
    monkeypatch.setenv("WORKBENCH_WORKSPACE", str(trained.root))
    return {run.spec().algorithm: run for run in trained.runs()}


@pytest.fixture
def copied(trained: Workspace, shown: Workspace) -> Callable[[str, str], RunFolder]:
    """copied(algorithm, name): a copy of a trained run that a test may spoil, in its own workspace."""

    def copy(algorithm: str, name: str) -> RunFolder:
        original = next(run for run in trained.runs() if run.spec().algorithm == algorithm)
        return RunFolder(Path(shutil.copytree(original.path, shown.runs_folder / name)))

    return copy


@pytest.fixture
def open_page() -> Callable[..., AppTest]:
    """open_page("run", run=..., tab=...): one page with this address, drawn once, without the frame around it."""

    def opened(name: str, **address: object) -> AppTest:
        app = AppTest.from_string(f"from workbench.ui.pages.{name} import page\npage()", default_timeout=120)
        for key, value in address.items():
            app.query_params[key] = str(value)
        return app.run()

    return opened
