"""Every algorithm learns the rendezvous from a random byte-level model; chance is about 0.04, all met is 1."""

import warnings

import pytest
import torch

from workbench.runs.build import build_trainer
from workbench.runs.spec import RunSpec
from workbench.tracking.base import NullTracker

ROWS = {
    "mareinforce": {"advantage_normalization": False},
    "magrpo": {"advantage_normalization": False},
    "marloo": {"advantage_normalization": False},
    "maremax": {"advantage_normalization": False},
    "magrpo normalised": {},
    "magrpo cross": {"joint_mode": "cross", "num_generations": 8},
    "magrpo two turns": {"num_turns": 2, "num_generations": 8},
}


class Curve(NullTracker):
    def __init__(self):
        self.rewards = []

    def metrics(self, step, values):
        self.rewards += [values[key] for key in ("turn_1/reward_mean",) if key in values]


@pytest.mark.parametrize("row", ROWS)
def test_rendezvous_is_learned(row, tmp_path):
    torch.set_num_threads(1)
    config = {"eval_interval": 0, **ROWS[row]}
    data = {"name": "r", "task": "rendezvous", "algorithm": row.split()[0], "model": "builtin:tiny", "config": config}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = build_trainer(RunSpec.parse(data, "test", tmp_path).resolve())
    curve = Curve()
    trainer.tracker.trackers.append(curve)
    trainer.train()
    tenth = len(curve.rewards) // 10
    assert sum(curve.rewards[:tenth]) / tenth < 0.2
    assert sum(curve.rewards[-tenth:]) / tenth > 0.9
