"""The run spec: one YAML file that says what to train, and everything needed to start it.

Reading and resolving a spec loads the task and checks every value; it loads no model and no torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field

from workbench.config import TrainingConfig
from workbench.fields import did_you_mean
from workbench.runs.yamlfile import SpecError, read_mapping, with_overrides
from workbench.tasks import Task, TaskError, load_task
from workbench.tasks.dataset import DatasetSpec, with_dataset
from workbench.tasks.files import absolute_reference
from workbench.trainers import ALGORITHMS, Algorithm
from workbench.trainers import algorithm as find_algorithm

__all__ = ["ResolvedRun", "RunSpec", "SpecError", "Tracking"]

_GROUP = "a group of keys (a YAML mapping)"
KINDS = {
    "agents": "a list of model names",
    "critic": "a model name or a list of them",
    "config": _GROUP,
    "model_config": _GROUP,
    "tracking": _GROUP,
    "tracking.mlflow": "true, false or a tracking URI",
    "tracking.wandb": _GROUP,
    "dataset": "a dataset's name, a data file, or a group of keys (a YAML mapping)",
    "dataset.data_files": "a file, a list of files, or these per split",
    "dataset.columns": "a group of keys (the task's column: the dataset's column)",
    "dataset.limit": "a whole number of at least 1",
}
"""What a key holds, for error messages; every other key holds a text."""

Text = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1)]
Uri = Annotated[str, pydantic.StringConstraints(strict=True, strip_whitespace=True, min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, protected_namespaces=())


class Tracking(_Strict):
    """Where the numbers go besides the run folder.

    experiment: MLflow experiment. mlflow: true = the workspace's database (or MLFLOW_TRACKING_URI),
    false = none, or a tracking URI. wandb: settings of Weights & Biases, null = none.
    """

    experiment: Text = "workbench"
    mlflow: pydantic.StrictBool | Uri = True
    wandb: dict[str, Any] | None = None


class RunSpec(_Strict):
    """One run as data. `agents` names one model per agent, `model` one for all; exactly one is given."""

    name: Text
    task: Text
    dataset: DatasetSpec | None = None
    algorithm: Text
    model: Text | None = None
    agents: list[Text] | None = None
    critic: Text | list[Text] | None = None
    config: dict[str, Any] = {}
    model_options: dict[str, Any] = Field(default={}, alias="model_config")
    tracking: Tracking = Tracking()

    @pydantic.model_validator(mode="before")
    @classmethod
    def _empty_groups(cls, data: Any) -> Any:
        """`config:` with nothing after it is an empty group, not a null."""
        return {k: {} if v is None and k in ("config", "model_config", "tracking") else v for k, v in data.items()}

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Self:
        """Read a spec file and apply `key.path=value` overrides; paths in it start at its folder.

        Raises SpecError with one sentence that names the file and the key or line.
        """
        path = Path(path)
        if path.is_dir():
            raise SpecError(f"{path} is a folder; name the YAML file of a run spec.")
        if not path.is_file():
            raise SpecError(f"The run spec {path} does not exist; check the path.")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SpecError(f"{path} is not a text file in UTF-8; a run spec is a YAML text.") from error
        return cls.parse(with_overrides(read_mapping(text, str(path)), overrides), str(path), path.resolve().parent)

    @classmethod
    def parse(cls, data: Mapping[str, Any], source: str, base_folder: Path) -> Self:
        """A spec from plain data; task files, data files and local models become absolute, from `base_folder`."""
        try:
            spec = cls.model_validate(data)
        except pydantic.ValidationError as error:
            raise SpecError(f"{source}: {_reason(error)}.") from None
        if (spec.model is None) == (spec.agents is None):
            given = "neither" if spec.model is None else "both"
            raise SpecError(f"{source}: give either model (one for all agents) or agents (a list), not {given}.")
        return spec.model_copy(
            update={
                "task": absolute_reference(spec.task, base_folder),
                "dataset": spec.dataset and spec.dataset.located(base_folder),
                "model": _absolute_model(spec.model, base_folder),
                "agents": _absolute_models(spec.agents, base_folder),
                "critic": _absolute_models(spec.critic, base_folder)
                if isinstance(spec.critic, list)
                else _absolute_model(spec.critic, base_folder),
            }
        )

    def with_overrides(self, overrides: Sequence[str]) -> Self:
        """This spec with `key.path=value` overrides; paths in them start at the current folder."""
        return self.parse(with_overrides(self.data(), overrides), "--set", Path.cwd())

    def data(self) -> dict[str, Any]:
        """The spec as plain data in the file's key names."""
        return self.model_dump(by_alias=True)

    def dump(self) -> str:
        """The spec as YAML; `load` of it gives an equal spec."""
        return yaml.safe_dump(self.data(), sort_keys=False, allow_unicode=True)

    def resolve(self) -> ResolvedRun:
        """Load the task, choose the algorithm and build its configuration. A dataset's rows load when they are used.

        The task's suggested_config comes first, the spec's config wins. A task without a transition
        has one turn unless someone says otherwise. Raises ValueError (SpecError, TaskError) with one sentence.
        """
        algorithm = find_algorithm(self.algorithm)
        if self.critic is not None and algorithm.family == "reinforce":
            raise SpecError(
                f"critic is set, but {self.algorithm} has no critic; remove it, or use an actor-critic algorithm."
            )
        task = load_task(self.task, Path.cwd())
        if self.dataset is not None:
            task = with_dataset(task, self.dataset)
        self._check_team(task)
        values = {**_suggested(task, algorithm, self.config), **self.config, "num_agents": task.num_agents}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            config = _build(algorithm, values)
        if config.num_turns > 1 and task.transition is None:
            raise SpecError(
                f"config.num_turns is {config.num_turns}, but task {task.name!r} has no transition to a second turn; "
                "set config.num_turns=1 or give the task a transition."
            )
        spec = self.model_copy(update={"config": {name: _plain(getattr(config, name)) for name in values}})
        return ResolvedRun(spec, task, algorithm, config, tuple(str(w.message) for w in caught))

    def _check_team(self, task: Task) -> None:
        if self.agents is not None and len(self.agents) != task.num_agents:
            raise SpecError(
                f"Task {task.name!r} has {task.num_agents} agents, but agents lists {len(self.agents)} models; "
                f"list {task.num_agents}, or use model for one that all agents share."
            )
        wanted = self.config.get("num_agents", task.num_agents)
        if wanted != task.num_agents:
            raise SpecError(
                f"config.num_agents is {wanted!r}, but task {task.name!r} has {task.num_agents} agents; "
                "leave config.num_agents out, or make a task for that many."
            )


@dataclass(frozen=True)
class ResolvedRun:
    """A spec whose every part was found and checked.

    spec: holds the suggested values too, so that it alone repeats the run. warnings: what building
    the configuration warned about.
    """

    spec: RunSpec
    task: Task
    algorithm: Algorithm
    config: TrainingConfig
    warnings: tuple[str, ...] = ()


def _suggested(task: Task, algorithm: Algorithm, own_config: Mapping[str, Any]) -> dict[str, Any]:
    """The task's suggestions that this algorithm has; a name that no algorithm has is a mistake.

    own_config: the spec's own values, whose num_turns decides whether a suggested num_generations can be meant.
    """
    known = {f.name for entry in ALGORITHMS.values() for f in fields(entry.config)}
    for name in task.suggested_config:
        if name not in known:
            hint = did_you_mean(name, sorted(known))
            raise TaskError(f"suggested_config of task {task.name!r} has {name!r}, which no algorithm knows{hint}.")
    own = {f.name for f in fields(algorithm.config)}
    turns = {} if task.transition else {"num_turns": 1}
    wanted = {"num_turns": algorithm.config.num_turns, **turns, **task.suggested_config, **own_config}["num_turns"]
    if algorithm.family != "reinforce" and str(wanted) != "1":
        own.discard("num_generations")  # over several turns an actor-critic samples one path, not a tree
    return turns | {name: value for name, value in task.suggested_config.items() if name in own}


def _build(algorithm: Algorithm, values: Mapping[str, Any]) -> TrainingConfig:
    try:
        return algorithm.config.from_dict(values)
    except ValueError as error:
        raise SpecError(f"config: {str(error).rstrip('.')}.") from error


def _plain(value: Any) -> Any:
    """Tuples as lists, the way YAML gives them back."""
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _absolute_model(source: str | None, base_folder: Path) -> str | None:
    """A model that lies in a local folder or file by its absolute path; every other name as it is."""
    if source is None or source.startswith("builtin:"):
        return source
    path = base_folder / Path(source).expanduser()
    return str(path.resolve()) if path.exists() or source.startswith((".", "~")) else source


def _absolute_models(sources: list[str] | None, base_folder: Path) -> list[str] | None:
    return sources and [_absolute_model(source, base_folder) or source for source in sources]


_LEVELS: dict[str, type[BaseModel]] = {"tracking": Tracking, "dataset": DatasetSpec}
"""The keys that hold keys of their own."""


def _reason(error: pydantic.ValidationError) -> str:
    """The first problem as half a sentence that names the key."""
    # A misspelt key is both unknown and missing; the unknown one is what to change. An empty text is the better half
    # of "neither a text nor a list of texts".
    unknown = ("extra_forbidden", "invalid_key")
    first = min(error.errors(), key=lambda e: (e["type"] not in unknown, e["type"] != "string_too_short"))
    place = [str(part) for part in first["loc"]]
    key = place[-1] if place else ""
    if first["type"] in unknown:
        level = _LEVELS.get(place[0], RunSpec)
        known = [field.alias or name for name, field in level.model_fields.items()]
        return f"unknown key {'.'.join(place)!r}{did_you_mean(key, known)}; known keys are {', '.join(known)}"
    if first["type"] == "missing":
        return f"the key {'.'.join(place)!r} is missing"
    name = ".".join(place[: 2 if place[0] in _LEVELS else 1])
    if first["type"] == "string_too_short":
        return f"{name}{''.join(f'[{part}]' for part in first['loc'] if isinstance(part, int))} must not be empty"
    return f"{name} must be {KINDS.get(name, 'a text')}, got {first['input']!r}"
