"""A shell in which training is faked."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_trainer import FakeTrainer
from shell import Shell

from workbench.trainers import Algorithm


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    FakeTrainer.reset()
    monkeypatch.setattr(Algorithm, "load_trainer", lambda self: FakeTrainer)
    return Shell(tmp_path)
