"""A script written for the public package runs here after its import lines and model name are changed."""

import math
from functools import partial

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from workbench.rewards import RewardProcessors
from workbench.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer


def length_ratio(short, long, target_min=2.0, target_max=3.0):
    rewards = []
    for a, b in zip(short, long):
        ratio = len(b) / len(a) if a else 0.0
        rewards.append(math.exp(-max(target_min - ratio, ratio - target_max, 0.0)) if a else 0.0)
    return rewards


def test_loaded_agents_partial_reward_scaled_and_tracked(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    from workbench.models.loading import BUILTIN_FOLDER

    name = str(BUILTIN_FOLDER / "storyteller")
    trainer = MAGRPOTrainer(
        agents=[AutoModelForCausalLM.from_pretrained(name) for _ in range(2)],
        reward_func=partial(length_ratio, target_min=2, target_max=3),
        reward_processor=RewardProcessors.scale(factor=100.0),
        args=MAGRPOConfig(
            num_train_epochs=1,
            agent_learning_rate=5e-5,
            logging_steps=10,
            num_generations=8,
            num_turns=1,
            max_new_tokens=16,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["Describe a city in the clouds:", "Write about a dragon:"]}),
        tokenizer=AutoTokenizer.from_pretrained(name),
        wandb_config={"project": "a-project", "entity": "an-entity", "name": "length-ratio"},
    )
    trainer.train()
    trainer.save_model("output/models")
    assert trainer.env_step == 16
    assert (tmp_path / "output/models/agent_1/model.safetensors").exists()
    assert 0 < trainer.latest_metrics["turn_1/reward_mean"] <= 100
