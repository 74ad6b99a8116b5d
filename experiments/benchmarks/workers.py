"""How much faster are two agents in worker processes (one CPU thread each) than in one process (two threads)?

Real chat models of 135 million parameters, the same seed and items in both modes, in turn; loading is not timed.
    OMP_NUM_THREADS=2 python experiments/benchmarks/workers.py
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from workbench.tasks import TASKS
from workbench.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer

TASK = TASKS["story_length_chat"]
PLACES = {"none": {}, "mp": {"parallel_training": "mp", "agent_devices": "cpu"}}


def train_once(place: str, options: argparse.Namespace) -> tuple[float, float, float]:
    """Seconds of training once everything is loaded: in all, generating, updating."""
    args = MAGRPOConfig(num_turns=1, num_train_epochs=1, num_generations=options.generations,
                        max_new_tokens=options.tokens, rollout_buffer_size=1,
                        eval_interval=0, logging_steps=10**6, **PLACES[place])  # fmt: skip
    trainer = MAGRPOTrainer(agent_model=options.model, num_agents=2, reward_func=TASK.reward,
                            formatters=TASK.formatters, args=args, model_config={"dtype": options.dtype},
                            train_dataset=list(TASK.load_train_items())[:options.items])  # fmt: skip
    begin = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begin
    trainer.close()
    return seconds, trainer.latest_metrics["time/rollout_s"], trainer.latest_metrics["time/update_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--items", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--generations", type=int, default=8, help="completions per agent and prompt (K)")
    parser.add_argument("--tokens", type=int, default=32, help="max_new_tokens")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(2)
    seconds: dict[str, list[tuple[float, float, float]]] = {place: [] for place in PLACES}
    for _ in range(options.rounds):
        for place, times in seconds.items():
            times.append(train_once(place, options))
            print("{:5} {:.2f} s (rollout {:.2f}, update {:.2f})".format(place, *times[-1]), flush=True)
    ratios = [none[0] / mp[0] for none, mp in zip(seconds["none"], seconds["mp"])]
    print(f"mp is {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
