"""What can be said about a draft before anything starts: its task, its defaults, what is wrong, what it will need.

A task of the user's own is a program. It runs in a process of its own (see workbench.ui.form.task_process), where it
can neither bring the app down, nor hold it up, nor load torch into it. Knows no widgets, imports no torch.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from workbench.callbacks import format_prompt, resolve_formatters
from workbench.runs.errors import sentence
from workbench.runs.hardware import Hardware
from workbench.runs.memory_plan import MemoryPlan, memory_plan
from workbench.runs.spec import ResolvedRun, RunSpec
from workbench.tasks import Task
from workbench.trainers import algorithm
from workbench.types import Prompt

ITEMS = 100  # of a task, in which the longest prompt is looked for
TASK_KEYS = ("task", "algorithm")
"""What the defaults of a run depend on."""
SPEC_KEYS = ("name", "task", "dataset", "algorithm", "model", "agents", "critic", "model_config", "tracking")


@dataclass(frozen=True)
class TaskCard:
    """What a person wants to know of a task. prompts: the first item as each agent sees it, one text per agent, or
    why it cannot be shown. longest: characters of the longest prompt among the task's first items, 0 when unknown."""

    name: str
    description: str
    cooperation: str
    num_agents: int
    several_turns: bool
    prompts: tuple[str, ...]
    longest: int = 0


@dataclass(frozen=True)
class Examination:
    """card: None when the task cannot be loaded. base: every config field's default for this task and algorithm.

    error: what is wrong, one sentence; blamed: the spec key or config field it is about, "" when it names none.
    config: all values the run would have, {} while something is wrong.
    """

    base: dict[str, Any]
    card: TaskCard | None = None
    error: str | None = None
    blamed: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


EXAMINATION = pydantic.TypeAdapter(Examination)


def plain_base(name: str) -> dict[str, Any]:
    """The algorithm's own defaults."""
    return {field.name: field.default for field in algorithm(name).config.__dataclass_fields__.values()}


def defaults(data: Mapping[str, Any], folder: Path) -> ResolvedRun:
    """The same task and algorithm with every setting left alone. Runs the task's file, if it has one."""
    return RunSpec.parse(bare(data), "spec", folder).resolve()


def bare(data: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest spec with the same defaults. A dataset is left out: it may have to be downloaded."""
    return {key: data[key] for key in TASK_KEYS} | {"name": "defaults", "model": "builtin:tiny"}


def examine(data: Mapping[str, Any], folder: Path) -> Examination:
    """Look at a run spec given as plain data. folder: where its relative paths start. Runs the task's file, if it has
    one. Never raises for what a spec or a task may do wrong."""
    base = plain_base(data["algorithm"])
    try:
        plain = defaults(data, folder)
        card = _card(plain.task)
    except (ValueError, OSError) as error:
        return Examination(base, error=without_source(sentence(error)), blamed="task")
    base |= plain.spec.config
    try:
        resolved = RunSpec.parse(data, "spec", folder).resolve()
    except (ValueError, OSError) as error:
        text = without_source(sentence(error))
        return Examination(base, card, text, blamed(text, [*base, *SPEC_KEYS]))
    return Examination(base, card, None, "", asdict(resolved.config), resolved.warnings)


def plan(data: Mapping[str, Any], found: Examination, folder: Path, machine: Hardware) -> MemoryPlan:
    """The memory of a run that was found to be right. Does not run the task's file: a task of the same shape stands in
    for it."""
    assert found.card is not None
    chosen = algorithm(data["algorithm"])
    items = [{"prompt": "x" * found.card.longest}] if found.card.longest else [{}]
    task = Task(name="stand-in", num_agents=found.card.num_agents, train_items=items, reward=len)
    spec = RunSpec.parse(data, "spec", folder)
    with warnings.catch_warnings():  # said already when the run was examined
        warnings.simplefilter("ignore")
        config = chosen.config.from_dict(found.config)
    return memory_plan(ResolvedRun(spec, task, chosen, config), machine)


def without_source(text: str) -> str:
    """The sentence without where the value was read: in the form it stands beside it."""
    return re.sub(r"^(spec|config): ", "", re.sub(r"^spec: ", "", text))


def blamed(text: str, names: Sequence[str]) -> str:
    """The first spec key or config field that a sentence names, "" for none: it is the one the sentence is about."""
    return next((word for word in re.findall(r"[a-z_]+", text) if word in names), "")


def _card(task: Task) -> TaskCard:
    return TaskCard(
        name=task.name,
        description=task.description,
        cooperation=task.cooperation,
        num_agents=task.num_agents,
        several_turns=task.transition is not None,
        prompts=_prompts(task),
        longest=_longest(task),
    )


def _longest(task: Task) -> int:
    items = task.load_train_items()
    texts = [items[index].get("prompt") for index in range(min(ITEMS, len(items)))]
    return max((len(text) for text in texts if isinstance(text, str)), default=0)


def _prompts(task: Task) -> tuple[str, ...]:
    try:
        item = (task.load_eval_items() or task.load_train_items())[0]
        formatters = resolve_formatters(task.formatters, task.num_agents)
        return tuple(_as_text(format_prompt(f, item, None, f"agent {i}")) for i, f in enumerate(formatters))
    except Exception as error:  # noqa: BLE001 - items and formatters are the user's code, which may raise anything
        return (sentence(error),)


def _as_text(prompt: Prompt) -> str:
    """Chat messages as `role: content`; the model sees them in its own template."""
    return prompt if isinstance(prompt, str) else "\n".join(f"{m['role']}: {m['content']}" for m in prompt)
