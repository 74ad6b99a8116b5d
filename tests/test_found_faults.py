"""Faults that users of the core really hit, each as a test of its kind."""

import json
import shutil

import pytest
import torch

from workbench.models.loading import BUILTIN_FOLDER, ModelError, ModelOptions, load_model
from workbench.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer


def make(**changes):
    arguments = {
        "agent_model": "builtin:tiny",
        "reward_func": lambda a, b: [0.0] * len(a),
        "args": MAGRPOConfig(num_turns=1, num_generations=2, max_new_tokens=2, num_train_epochs=1),
        "train_dataset": [{"prompt": "x"}],
    }
    return MAGRPOTrainer(**arguments | changes)


def test_a_folder_that_lacks_weights_is_refused(tmp_path):
    """Two layers more in the config than in the file: they would be random."""
    folder = shutil.copytree(BUILTIN_FOLDER / "storyteller", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] += 2
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="lacks weights"):
        load_model(str(folder), ModelOptions.parse({}))


@pytest.mark.parametrize(
    "options", [{"dtype": "int8"}, {"lora": True}, {"lora": {"rank": 3}}, {"model_kwargs": 3}, "x"]
)
def test_unusable_model_options_name_themselves(options):
    with pytest.raises(ModelError, match="model_config"):
        load_model("builtin:storyteller", ModelOptions.parse(options))


@pytest.mark.parametrize("dataset", [3, "text", {"prompt": "x"}])
def test_what_is_no_dataset_is_named(dataset):
    with pytest.raises(ValueError, match="train_dataset must be a list"):
        make(train_dataset=dataset)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formatters": lambda: "x"}, "formatter of agent 0 cannot be called"),
        ({"external_transition": lambda prompt, agent_completions: []}, "external_transition cannot be called"),
        ({"reward_processor": 3}, "reward_processor must be a function"),
        ({"tokenizer": "gpt2"}, "tokenizer must be a loaded tokenizer"),
        ({"num_agents": "2"}, "num_agents must be a whole number"),
    ],
)
def test_callbacks_that_cannot_be_called_are_found_before_training(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_a_finished_trainer_says_so_when_trained_again():
    trainer = make()
    trainer.train()
    with pytest.raises(ValueError, match="run all its epochs"):
        trainer.train()


def test_a_reward_processor_may_return_a_tensor():
    trainer = make(reward_processor=torch.tensor)
    trainer.train()
    assert trainer.env_step == 2


def test_a_reward_may_empty_the_lists_it_got():
    def greedy(a, b):
        rewards = [float(len(x)) for x in a]
        a.clear()
        return rewards

    trainer = make(reward_func=greedy)
    trainer.train()
    assert trainer.env_step == 2


def test_an_adapter_is_drawn_from_the_seed():
    lora = {"lora": {"r": 2, "target_modules": ["q_proj"]}}
    one, other = make(model_config=lora), make(model_config=lora)
    for a, b in zip(one.agents[0].parameters(), other.agents[0].parameters()):
        assert torch.equal(a, b)


def test_the_last_log_point_reaches_whoever_watches():
    seen = {}

    class Watching:
        def phase(self, name): ...

        def progress(self, step, total, metrics):
            seen.update(metrics)

        def stop_requested(self):
            return False

    trainer = make()
    trainer.monitor = Watching()
    trainer.train()
    assert "turn_1/reward_mean" in seen
