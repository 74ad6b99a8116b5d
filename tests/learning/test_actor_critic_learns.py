"""Every actor-critic learns the rendezvous from random byte-level models; chance is about 0.04, all met is 1."""

import warnings

import pytest
import torch

from workbench.runs.build import build_trainer
from workbench.runs.spec import RunSpec
from workbench.tracking.base import NullTracker

# V is not normalised, so that the critic's value matters: centring within a group would replace it.
V = {"critic_type": "v", "critic_learning_rate": 1e-3, "advantage_normalization": False}
# In Q mode the actor's weight is what Q has not yet explained: a slow Q leaves it a signal, normalising keeps its size.
Q = {"critic_type": "q", "critic_learning_rate": 1e-4}
# One optimizer for both: a small coefficient leaves the backbone to the actor, and 32 samples per step instead of 16
# keep each agent from settling on a symbol of its own before they ever meet.
SHARED = {"use_separate_critic": False, "value_loss_coef": 0.1, "rollout_buffer_size": 32, "num_train_epochs": 60}
ROWS = {
    "maac v": ("maac", V),
    "maac q": ("maac", Q),
    "iac v": ("iac", V | {"rollout_buffer_size": 32, "num_train_epochs": 60}),
    "iac q": ("iac", Q),
    "iac shared v": ("iac", V | SHARED),
    "iac shared q": ("iac", Q | SHARED),
}


class Points(NullTracker):
    def __init__(self):
        self.points = []

    def metrics(self, step, values):
        self.points.append(values)

    def tenth(self, key, which):
        """Mean of the first (0) or last (-1) tenth of what was logged under `key`."""
        curve = [point[key] for point in self.points if key in point]
        size = len(curve) // 10
        part = curve[:size] if which == 0 else curve[-size:]
        return sum(part) / size


@pytest.mark.parametrize("row", ROWS)
def test_rendezvous_is_learned(row, tmp_path):
    torch.set_num_threads(1)
    algorithm, fields = ROWS[row]
    config = {"rollout_buffer_size": 16, "num_train_epochs": 48, "eval_interval": 0} | fields
    critic = "builtin:tiny" if config.get("use_separate_critic", True) else None
    data = {"name": "r", "task": "rendezvous", "algorithm": algorithm, "model": "builtin:tiny", "critic": critic}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = build_trainer(RunSpec.parse(data | {"config": config}, "test", tmp_path).resolve())
    seen = Points()
    trainer.tracker.trackers.append(seen)
    trainer.train()
    assert seen.tenth("turn_1/reward_mean", 0) < 0.2
    assert seen.tenth("turn_1/reward_mean", -1) > 0.9
    assert abs(seen.tenth("agent_0/turn_1/td_error_mean", -1)) < 0.2  # the critic followed from 0.04 to 1
