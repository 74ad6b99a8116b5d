"""A trainer that only goes through the motions, for tests of what surrounds training."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from workbench.tracking.base import NullMonitor, NullTracker, TrackerGroup
from workbench.types import Completion, Node, RolloutTree


class EndState(NullTracker):
    """Remembers how a run ended."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def end(self, state: str) -> None:
        self.states.append(state)


class FakeTrainer:
    """Counts to four items. `during` is called in each of them, `building` and `saving` at their time."""

    items = 4
    during: ClassVar[Callable[[FakeTrainer], None]]
    building: ClassVar[Callable[[FakeTrainer], None]]
    saving: ClassVar[Callable[[FakeTrainer], None]]
    last: ClassVar[FakeTrainer]

    @classmethod
    def reset(cls) -> None:
        """Nothing goes wrong."""
        cls.during = cls.building = cls.saving = lambda self: None

    def __init__(self, **arguments: Any) -> None:
        type(self).last = self
        self.arguments = arguments
        self.monitor: Any = NullMonitor()
        self.end_state = EndState()
        self.tracker = TrackerGroup([self.end_state])
        self.checkpoint_dir = Path()
        self.stopped = False
        self.resumed_from: Path | None = None
        self.weights = "initial"
        type(self).building(self)

    def train(self, resume_from_checkpoint: Path | None = None) -> None:
        self.resumed_from = resume_from_checkpoint
        first = int(resume_from_checkpoint.name[5:]) if resume_from_checkpoint else 0
        self.tracker.begin({})
        for item in range(first, self.items):
            self.monitor.phase("rollout")
            type(self).during(self)
            self.monitor.progress(item + 1, self.items, {"turn_1/reward_mean": 0.25 * item})
            if self.monitor.stop_requested():
                self.save_checkpoint(item + 1)
                self.stopped = True
                break
        self.tracker.end("KILLED" if self.stopped else "FINISHED")

    def save_checkpoint(self, step: int) -> None:
        import torch

        from workbench import checkpoint

        folder = self.checkpoint_dir / f"step-{step:08d}"
        folder.mkdir(parents=True)
        torch.save({"version": checkpoint.VERSION, "models": 0}, folder / "state.pt")

    def load_checkpoint(self, folder: Path) -> None:
        self.weights = folder.name

    def save_model(self, folder: Path) -> None:
        (folder / "agent_0").mkdir(parents=True)
        (folder / "agent_0" / "weights").write_text("trained")
        type(self).saving(self)

    def close(self) -> None: ...

    def evaluate(self, count: int) -> dict[str, float]:
        return {"eval/turn_1/reward_mean": 0.5, "count": float(count)}

    def play(self, items: list[dict[str, Any]], seed: int = 0) -> list[RolloutTree]:
        return [RolloutTree([self._node(item["prompt"])]) for item in items]

    def _node(self, prompt: str) -> Node:
        source = (self.arguments["agents"] or [self.arguments["agent_model"]])[0]
        text = f"[{self.weights} {Path(source).name}]"
        completion = Completion(prompt, (1,), text, (1,), finished=False, logprob=-1.0)
        return Node(item=0, turn=1, prompts=(prompt,), completions=((completion,),), rewards=(0.75,))


def interrupt(trainer: FakeTrainer) -> None:
    """One Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def interrupt_twice(trainer: FakeTrainer) -> None:
    """An impatient Ctrl-C."""
    interrupt(trainer)
    interrupt(trainer)


def warn_user(trainer: FakeTrainer) -> None:
    """What the configuration or the loop tells the user."""
    warnings.warn("look out", stacklevel=1)


def fail_with(error: BaseException) -> Callable[[FakeTrainer], None]:
    """A hook that raises."""

    def hook(trainer: FakeTrainer) -> None:
        raise error

    return hook
