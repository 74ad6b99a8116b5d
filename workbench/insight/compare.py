"""Several runs side by side: their list, what they differ in, and whether a comparison can say anything.

Reads specs, statuses and traces of a workspace and changes none. A run that cannot be read is listed with the reason.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from workbench.insight.metric_names import Words
from workbench.insight.reading import query
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder
from workbench.trainers import algorithm

Result = TypeVar("Result")
NO_FACTORS = ("name", "tracking", "config.seed")  # what two runs of one experiment may differ in
COLUMNS = ("id", "name", "state", "algorithm", "task", "model", "seed", "reward", "env_step", "started", "duration",
           "problem")  # fmt: skip
SEVERAL_FACTORS = {
    "en": "These runs differ in {count} things at once ({factors}), so a difference in results cannot be put down to "
    "any one of them. Compare runs that differ in one.",
    "zh": "这些运行同时有 {count} 处不同（{factors}），结果的差异无法归因于其中任何一处。请比较只有一处不同的运行。",
}

# --- the list ------------------------------------------------------------------------------------


def runs_table(runs: Sequence[RunFolder]) -> pd.DataFrame:
    """One row per run, COLUMNS. reward: the latest logged; started: UTC; duration: seconds so far; env_step: from the
    trace. problem: why spec or trace could not be read, "" if they could."""
    frame = pd.DataFrame([_row(run) for run in runs], columns=list(COLUMNS))
    frame["started"] = pd.to_datetime(frame["started"].astype("float64"), unit="s", utc=True)
    return frame.astype({"reward": "float64", "duration": "float64", "seed": "Int64", "env_step": "Int64"})


def filtered(
    table: pd.DataFrame, text: str = "", states: Sequence[str] = (), algorithms: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> pd.DataFrame:  # fmt: skip
    """The rows that agree with every filter; an empty one lets all pass. text: part of id, name, model or task."""
    keep = pd.Series(True, index=table.index)
    for column, wanted in (("state", states), ("algorithm", algorithms), ("task", tasks)):
        if wanted:
            keep &= table[column].isin(list(wanted))
    names = table[["name", "model", "task"]].fillna("").astype("str")
    words = table["id"].astype("str").str.cat(names, sep=" ").str.casefold()
    return table[keep & words.str.contains(text.casefold(), regex=False)]


def _row(run: RunFolder) -> dict[str, Any]:
    status = run.read_status()
    end = status.ended or status.heartbeat
    row = {
        "id": run.id,
        "state": status.state,
        "reward": status.reward,
        "started": status.started,
        "duration": end - status.started if end and status.started else None,
    }
    spec, problem = readable(lambda: spec_of(run))
    if spec is not None:
        row |= {"name": spec.name, "algorithm": spec.algorithm, "task": spec.task, "model": _model(spec)}
        row |= {"seed": spec.config.get("seed", 0)}
    step, damage = readable(lambda: env_step(run)) if run.trace_file.exists() else (None, "")
    return row | {"env_step": step, "problem": " ".join(filter(None, (problem, damage)))}


def readable(read: Callable[[], Result]) -> tuple[Result | None, str]:
    """What was read, or the reason why not: SpecError and TraceError are ValueErrors of one sentence."""
    try:
        return read(), ""
    except (ValueError, OSError) as error:
        return None, str(error)


def _model(spec: RunSpec) -> str:
    return spec.model or ", ".join(spec.agents or [])


def env_step(run: RunFolder) -> int:
    """How far a run has come by its nodes, 0 before the first. Raises TraceError."""
    return int(query(run.trace_file, "SELECT coalesce(max(step), 0) AS step FROM nodes")["step"].iloc[0])


def spec_of(run: RunFolder) -> RunSpec:
    """The run's spec; read again only when the file has changed. Raises SpecError, and OSError without a file."""
    found = run.spec_file.stat()
    return _cached_spec(run.path, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=1024)
def _cached_spec(folder: Path, changed: int, size: int) -> RunSpec:
    return RunFolder(folder).spec()


# --- what differs --------------------------------------------------------------------------------


def flat_spec(spec: RunSpec) -> dict[str, Any]:
    """Every value by its dotted key, what the spec leaves out as the algorithm's default; lists as tuples."""
    data = spec.data()
    data["config"] = _defaults(spec.algorithm) | data["config"]
    return _flat("", data)


def _flat(prefix: str, data: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(f"{prefix}{key}.", value)
        else:
            found[prefix + key] = tuple(value) if isinstance(value, list) else value
    return found


def _defaults(name: str) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(algorithm(name).config)}


def config_diff(specs: Mapping[str, RunSpec]) -> pd.DataFrame:
    """The keys that differ: index key, a column per run; None where a run's algorithm has no such key."""
    flat = {name: flat_spec(spec) for name, spec in specs.items()}
    rows = {key: [values.get(key) for values in flat.values()] for key in _keys(flat)}
    differing = {key: row for key, row in rows.items() if len(set(map(_comparable, row))) > 1}
    return pd.DataFrame.from_dict(differing, orient="index", columns=list(specs), dtype="object")


def _keys(flat: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for values in flat.values() for key in values))


def _comparable(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def factors(specs: Mapping[str, RunSpec]) -> list[str]:
    """The keys in which the runs differ, as far as they can explain a result: neither seed, name and tracking, nor
    what a different algorithm brings along (its own defaults, and a critic)."""
    different = [key for key in config_diff(specs).index if not in_groups(key, NO_FACTORS)]
    if "algorithm" not in different:
        return different
    return [key for key in different if not _comes_with_algorithm(key, specs)]


def in_groups(key: str, groups: Sequence[str]) -> bool:
    """True for a group's own key, such as "tracking", and for what stands in it, such as "tracking.mlflow"."""
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def _comes_with_algorithm(key: str, specs: Mapping[str, RunSpec]) -> bool:
    if key == "critic":  # an actor-critic has one, REINFORCE has none
        families = {algorithm(spec.algorithm).family for spec in specs.values()}
        critics = {_comparable(spec.critic) for spec in specs.values() if spec.critic is not None}
        return len(families) > 1 and len(critics) < 2
    name = key.removeprefix("config.")
    known = [(spec.config, _defaults(spec.algorithm)) for spec in specs.values()]
    own = [config.get(name, defaults[name]) == defaults[name] for config, defaults in known if name in defaults]
    return key.startswith("config.") and (all(own) or _same_where_known(name, known))


def _same_where_known(name: str, known: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> bool:
    """True if the algorithms that have this field at all agree on it, and some do not have it."""
    values = [_comparable(config.get(name, defaults[name])) for config, defaults in known if name in defaults]
    return len(set(values)) == 1 and len(values) < len(known)


def warning(specs: Mapping[str, RunSpec]) -> Words | None:
    """What to say before runs with several factors are compared; None when they differ in one at most."""
    found = factors(specs)
    if len(found) < 2:
        return None
    numbers = {"count": len(found), "factors": ", ".join(found)}
    return {language: text.format(**numbers) for language, text in SEVERAL_FACTORS.items()}
