"""What can be known to be wrong with a run before anything of it exists: no folder is made, no model is loaded.

The checks are those of the parts themselves, in the order in which a trainer would meet them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from workbench.runs.spec import ResolvedRun, SpecError
from workbench.tasks import TaskError

MODEL_FILES = ("config.json", "adapter_config.json")


def preflight(resolved: ResolvedRun) -> None:
    """Raises ValueError with one sentence. Imports torch; loads the task's items, but no model."""
    _check_task(resolved)
    _check_tracking(resolved)
    _check_models(resolved)
    _check_devices(resolved)
    _check_critics(resolved)


def _check_task(resolved: ResolvedRun) -> None:
    from workbench.callbacks import Transition, resolve_formatters
    from workbench.rewards import RewardFunction

    task = resolved.task
    with _naming_the_task(task.name):
        RewardFunction(task.reward, task.num_agents)
        resolve_formatters(task.formatters, task.num_agents)
        if task.transition is not None:
            Transition(task.transition, task.num_agents)
    task.load_train_items()
    task.load_eval_items()


@contextlib.contextmanager
def _naming_the_task(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise TaskError(f"Task {name!r}: {error}") from error


def _check_tracking(resolved: ResolvedRun) -> None:
    from workbench.tracking import build_trackers

    build_trackers(None, resolved.spec.tracking.wandb)


def _check_models(resolved: ResolvedRun) -> None:
    from workbench.models.loading import ModelOptions, locate

    spec = resolved.spec
    own = {"critic_value_head_hidden_dim"} if resolved.algorithm.family != "reinforce" else set()  # the trainer's key
    options = ModelOptions.parse({key: value for key, value in spec.model_options.items() if key not in own})
    critics = [spec.critic] if isinstance(spec.critic, str) else spec.critic or []
    for source in dict.fromkeys([*([spec.model] if spec.model else spec.agents or []), *critics]):
        if source == "builtin:tiny":
            options.refuse_loading(source)
        else:
            _check_location(source, locate(source), options.loading.get("subfolder"))


def _check_location(source: str, location: Path | str, subfolder: str | None) -> None:
    if isinstance(location, str):
        if location.count("/") > 1:  # a hub name has one at most
            raise SpecError(f"There is no model at {source!r}; check the path.")
    elif location.is_dir():
        folder = location / (subfolder or "")
        if not any((folder / name).is_file() for name in MODEL_FILES):
            raise SpecError(f"The folder {folder} holds no model (no {MODEL_FILES[0]}); check the path.")


def _check_devices(resolved: ResolvedRun) -> None:
    from workbench.models.devices import place

    separate = resolved.algorithm.family != "reinforce" and getattr(resolved.config, "use_separate_critic", True)
    critics = (1 if resolved.algorithm.name == "maac" else resolved.task.num_agents) if separate else 0
    place(resolved.config, resolved.task.num_agents, critics)


def _check_critics(resolved: ResolvedRun) -> None:
    if resolved.algorithm.family == "reinforce":
        return
    critic, config = resolved.spec.critic, resolved.config
    if not getattr(config, "use_separate_critic", True):
        if critic is not None:
            raise SpecError(
                "critic is set, but config.use_separate_critic=false puts the critics on the agents' models; "
                "remove one of them."
            )
        return
    name = resolved.algorithm.name
    if critic is None:
        raise SpecError(f"{name} needs a critic; add critic: with a model, such as the agents' own.")
    from workbench.trainers.critics import critic_sources

    count = 1 if name == "maac" else resolved.task.num_agents
    one, several = (None, critic) if isinstance(critic, list) else (critic, None)
    critic_sources(one, several, count, name)
