"""Files of the runs and scripts that tests start as real processes."""

import yaml

TASK = """
from pathlib import Path
from workbench.tasks import Task

HERE = Path(__file__).parent

def shown(item, external_prompts=None):
    (HERE / "formatted").touch()
    return item["prompt"]

def reward(first, second):
    (HERE / "rewarded").touch()
    return [float(len(set(a + b))) for a, b in zip(first, second)]

TASK = Task(
    name="letters",
    train_items=[{"prompt": "a"}, {"prompt": "b"}],
    reward=lambda first, second: reward(first, second),
    formatters=[lambda item, external_prompts=None: shown(item, external_prompts)] * 2,
)
"""

SCRIPT = """
import contextlib, json, os, random, sys, threading, torch
sys.path.insert(0, "")  # as in a notebook: after Python and torch were imported
import psutil
from beside import Own
from worker_models import gpt2
from workbench.models.tiny import tiny_tokenizer
from workbench.trainers.reinforce import MAGRPOTrainer

torch.set_num_threads(1)
seen = {}

def train(mode):
    args = MAGRPOTrainer.config_class(
        num_turns=1, num_train_epochs=1, num_generations=2, max_new_tokens=3, eval_interval=0, parallel_training=mode,
        agent_devices="cpu",
    )
    trainer = MAGRPOTrainer(
        agents=[gpt2(kind=Own)], tokenizer=tiny_tokenizer(),
        reward_func=lambda texts: [float(len(set(text))) for text in texts],
        train_dataset=[{"prompt": "one"}, {"prompt": "two"}], args=args,
    )
    trainer.train()
    return trainer

kept = train("mp")
here = train("none")
thread = threading.Thread(target=lambda: seen.update(trainer=train("mp")))
thread.start()
thread.join()
weights = [t.agents[0].state_dict() for t in (kept, here, seen["trainer"])]
same = all(torch.equal(w[name], weights[1][name]) for w in weights for name in w)
print(json.dumps({"same": same, "pids": [child.pid for child in psutil.Process().children()]}))
"""


def write_run(folder, algorithm="magrpo", **config):
    """Writes spec.yaml and its task file; returns the spec's path."""
    (folder / "letters.py").write_text(TASK)
    settings = {"num_turns": 1, "num_generations": 2, "max_new_tokens": 2, "eval_interval": 0, "num_train_epochs": 2,
                "save_interval": 2, "parallel_training": "mp", "agent_devices": "cpu"} | config  # fmt: skip
    spec = {"name": "letters", "task": "letters.py:TASK", "algorithm": algorithm, "model": "builtin:tiny",
            "config": settings, "tracking": {"mlflow": False}}  # fmt: skip
    if algorithm == "maac":
        spec["critic"] = "builtin:tiny"
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    return folder / "spec.yaml"
