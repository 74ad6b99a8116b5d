"""Everything about a problem in one object: items, what agents are shown, reward, transition, metrics.

This module knows neither models nor trainers; loading a task is cheap and torch-free.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol, runtime_checkable

from workbench.callbacks import Formatter
from workbench.types import Item


class TaskError(ValueError):
    """A task that cannot be found, loaded or used; the message is one sentence with the remedy."""


@runtime_checkable
class Items(Protocol):
    """A sized, indexable collection of rows: a list of dicts or a `datasets.Dataset`."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Item: ...


ItemSource = Items | Callable[[], Items]
MetricsFunction = Callable[..., Sequence[Mapping[str, float]]]
METRICS_ARGUMENTS = ("agent_completions_turns", "batch_items", "prompts")
ExplainFunction = Callable[..., Mapping[str, float | str]]
EXPLAIN_ARGUMENTS = ("texts", "item")
SHOWN = 80  # characters of a value in an error message


@dataclass(frozen=True, kw_only=True)
class Task:
    """A cooperative problem for `num_agents` language models. Raises TaskError on a bad field.

    train_items, eval_items: rows, or a function without arguments that returns them.
    formatters: one callable per agent, or one for all; None shows every agent `item["prompt"]`.
    reward, transition: the callbacks `reward_func` and `external_transition` of a trainer.
    metrics: extra evaluation numbers, called as `metrics(agent_completions_turns=, batch_items=,
        prompts=)`, where `agent_completions_turns[agent][item][turn]` is a text; returns one dict
        per item, whose keys start with `turn_1/`, `turn_2/`, ...; each key is averaged over the
        items that have it and logged under `eval/`.
    suggested_config: configuration values that suit the task; a run's own values win.
    cooperation: one sentence saying what cooperation means here.
    explain: why a first-turn reward is what it is, for people: called as `explain(texts=, item=)` with one text per
        agent, it returns named parts in the order to show them, numbers or words.
    columns: what every item must have; a dataset that replaces the items is checked for them.
    """

    name: str
    train_items: ItemSource
    reward: Callable[..., Any]
    num_agents: int = 2
    description: str = ""
    cooperation: str = ""
    eval_items: ItemSource | None = None
    formatters: Formatter | Sequence[Formatter] | None = None
    transition: Callable[..., Any] | None = None
    metrics: MetricsFunction | None = None
    explain: ExplainFunction | None = None
    columns: Sequence[str] = ()
    suggested_config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise TaskError(f"A task's name must be a text that is not empty, got {self.name!r}.")
        if self.name.splitlines() != [self.name]:
            raise TaskError(f"A task's name must be one line, got {self.name!r}.")
        if type(self.num_agents) is not int or self.num_agents < 1:
            raise TaskError(
                f"Task {self.name!r}: num_agents must be a whole number of at least 1, got {self.num_agents!r}."
            )
        for name in ("reward", "transition", "metrics", "explain"):
            value = getattr(self, name)
            if not callable(value) and (value is not None or name == "reward"):
                raise TaskError(f"Task {self.name!r}: {name} must be a function, got {value!r}.")
        if not isinstance(self.suggested_config, Mapping):
            raise TaskError(f"Task {self.name!r}: suggested_config must be a dict, got {self.suggested_config!r}.")
        if self.metrics is not None:
            self._check_call("metrics", self.metrics, dict.fromkeys(METRICS_ARGUMENTS))
        if self.explain is not None:
            self._check_call("explain", self.explain, dict.fromkeys(EXPLAIN_ARGUMENTS))
        if isinstance(self.columns, str) or not all(isinstance(name, str) for name in self.columns):
            raise TaskError(f"Task {self.name!r}: columns must be a list of column names, got {self.columns!r}.")
        self._check_formatters()
        for name in ("train_items", "eval_items"):
            self._check_source(name)

    def _check_formatters(self) -> None:
        if self.formatters is None or callable(self.formatters):
            return
        listed = self.formatters if isinstance(self.formatters, Sequence) else ()
        if len(listed) != self.num_agents or not all(map(callable, listed)):
            raise TaskError(
                f"Task {self.name!r}: formatters must be one function or a list of {self.num_agents} functions "
                f"(one per agent), got {self.formatters!r}."
            )

    def _check_source(self, name: str) -> None:
        source = getattr(self, name)
        if source is None and name == "eval_items":
            return
        if callable(source):
            self._check_call(name, source, {})
        else:
            checked_items(source, f"{name} of task {self.name!r}")

    def _check_call(self, name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        """TaskError when the function cannot be called with these; nothing is called."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some builtins have none
            return
        try:
            signature.bind(**arguments)
        except TypeError as error:
            called = f"as {name}({', '.join(f'{key}=' for key in arguments)})" if arguments else "without arguments"
            raise TaskError(
                f"Task {self.name!r}: {name} is called {called}, but its signature says: {error}."
            ) from None

    def load_train_items(self) -> Items:
        """The training rows; calls the function if `train_items` is one."""
        return self._load("train_items", self.train_items)

    def load_eval_items(self) -> Items | None:
        """The evaluation rows, None when the task has none."""
        return None if self.eval_items is None else self._load("eval_items", self.eval_items)

    def checked_metrics(self, **arguments: Any) -> list[dict[str, float]]:
        """What `metrics` returns for these arguments; TaskError when it is not one dict of numbers per item."""
        assert self.metrics is not None
        rows, count = self.metrics(**arguments), len(arguments["batch_items"])
        who = f"metrics of task {self.name!r}"
        if isinstance(rows, (str, Mapping)) or not isinstance(rows, Sequence) or len(rows) != count:
            raise TaskError(f"{who} returned {_short(rows)}; return a list of one dict per item ({count} here).")
        for index, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise TaskError(f"{who} returned {_short(row)} for item {index}; return a dict of numbers.")
            for key, value in row.items():
                if not isinstance(key, str):
                    raise TaskError(f"{who} returned the key {_short(key)} for item {index}; keys are texts.")
                if not isinstance(value, Real) and not hasattr(value, "__float__"):
                    raise TaskError(f"{who} returned {_short(value)} as {key!r} of item {index}; return a number.")
        return [{key: float(value) for key, value in row.items()} for row in rows]

    def _load(self, name: str, source: ItemSource) -> Items:
        return checked_items(source() if callable(source) else source, f"{name} of task {self.name!r}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


def checked_items(items: Any, what: str) -> Items:
    """`items` if it is a non-empty collection of dict rows; TaskError naming `what` otherwise."""
    if isinstance(items, Mapping):
        raise TaskError(f"{what} is a {type(items).__name__} with the keys {list(items)}; pick one of its splits.")
    if isinstance(items, (str, bytes)) or not isinstance(items, Items):
        raise TaskError(
            f"{what} must be a list of dicts, a datasets.Dataset or a function returning one, got {items!r}."
        )
    if len(items) == 0:
        raise TaskError(f"{what} is empty; give at least one item.")
    rows = enumerate(items) if isinstance(items, Sequence) else [(0, items[0])]
    for index, row in rows:
        if not isinstance(row, Mapping):
            raise TaskError(f"{what}: item {index} must be a dict, got {row!r}.")
    return items


def mean_per_key(metrics: Sequence[Mapping[str, float]], num_turns: int) -> dict[str, float]:
    """The `eval_aggregator` that goes with `Task.metrics`: the mean of each key over the items that have it.

    num_turns is part of the aggregator's contract; a key already says its turn.
    """
    values: dict[str, list[float]] = {}
    for row in metrics:
        for key, value in row.items():
            values.setdefault(key, []).append(float(value))
    return {key: sum(known) / len(known) for key, known in values.items()}
