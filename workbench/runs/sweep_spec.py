"""The sweep file: a grid of runs that differ in one named factor, and what the file's YAML may say.

Reading one resolves the spec of every run in it, so that a mistake in the last of them is known before the first one
starts. This module starts nothing, and judges no result.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field

from workbench.fields import did_you_mean
from workbench.runs.spec import ResolvedRun, RunSpec, SpecError
from workbench.runs.yamlfile import read_mapping

CASE = "case"
"""What the factor is called when the file lists labelled cases."""
LABEL = "label"
OWN = {"name": "the runs are named after the sweep", "tracking": "all runs of a sweep are tracked alike",
       "config.seed": "the seeds stand under seeds"}  # fmt: skip
"""Keys that neither grid nor cases may set, and why."""
KINDS = {
    "base": "a group of keys (a run spec without its name)",
    "factor": "one key of the grid, or a list of cases, such as {label: small, config.num_generations: 4}",
    "grid": "a group of keys, each with a list of values",
    "seeds": "a list of different whole numbers of at least 0, such as [0, 1, 2]",
}
"""What a key holds, for error messages; every other key holds a text."""
Text = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1)]
Values = Annotated[list[Any], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, strict=True)]
Setting = dict[str, Any]


class SweepFile(BaseModel):
    """The keys of a sweep file. Exactly one of `base` (inline) and `spec` (another YAML file) is given.

    factor: what is compared; it may be left out when the grid has one key. grid: key path -> values. metric: what the
    runs are judged by, None = see workbench.insight.sweep.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Text
    base: dict[str, Any] | None = None
    spec: Text | None = None
    factor: Text | Annotated[list[Setting], Field(min_length=1)] | None = None
    grid: dict[str, Values] = {}
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0]
    metric: Text | None = None


@dataclass(frozen=True)
class Member:
    """One run of a sweep. labels: what the grid chose, key -> value as a text; the same for every seed of a cell."""

    labels: Mapping[str, str]
    seed: int
    resolved: ResolvedRun

    @property
    def cell(self) -> str:
        return _joined(self.labels)

    @property
    def key(self) -> str:
        """Unique in the sweep: "algorithm=magrpo, seed=0"."""
        return _joined({**self.labels, "seed": str(self.seed)})


@dataclass(frozen=True)
class Sweep:
    """A sweep whose every run was resolved. factor: the label that is compared; named: the spec keys it sets."""

    name: str
    file: Path
    text: str
    factor: str
    named: tuple[str, ...]
    metric: str | None
    members: tuple[Member, ...]

    @property
    def id(self) -> str:
        """The sweep's name as a folder's name; two names never share one."""
        plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in self.name.lower()).strip("-")[:40]
        return f"{plain or 'sweep'}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"


def load_sweep(path: str | Path) -> Sweep:
    """Read a sweep file and resolve all its runs; paths in it start at its folder.

    Raises ValueError (SpecError, TaskError) with one sentence that names the file and the key, line or run.
    """
    path = Path(path)
    if path.is_dir():
        raise SpecError(f"{path} is a folder; name the YAML file of a sweep.")
    if not path.is_file():
        raise SpecError(f"The sweep file {path} does not exist; check the path.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not a text file in UTF-8; a sweep file is a YAML text.") from error
    file = _validated(read_mapping(text, str(path), "name:, base: and grid:"), str(path))
    factor, named, axes = _axes(file, str(path))
    base = _base(file, path)
    members = tuple(_members(file, base, axes, path))
    _refuse_twins(members, str(path))
    return Sweep(file.name, path.resolve(), text, factor, named, file.metric, members)


# --- the file ------------------------------------------------------------------------------------


def _validated(data: Mapping[str, Any], source: str) -> SweepFile:
    try:
        file = SweepFile.model_validate(data)
    except pydantic.ValidationError as error:
        raise SpecError(f"{source}: {_reason(error)}.") from None
    if (file.base is None) == (file.spec is None):
        given = "neither" if file.base is None else "both"
        raise SpecError(f"{source}: give either base (a run spec without its name) or spec (its file), not {given}.")
    if len(set(file.seeds)) < len(file.seeds):
        raise SpecError(f"{source}: seeds must be {KINDS['seeds']}, got {file.seeds}.")
    return file


def _reason(error: pydantic.ValidationError) -> str:
    """The first problem as half a sentence; a misspelt key is both unknown and missing, and the unknown one counts."""
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        known = list(SweepFile.model_fields)
        return f"unknown key {name!r}{did_you_mean(name, known)}; known keys are {', '.join(known)}"
    if first["type"] == "missing":
        return f"the key {name!r} is missing"
    where = f"grid.{first['loc'][1]}" if name == "grid" and len(first["loc"]) > 1 else name
    kind = "a list of at least one value" if where != name else KINDS.get(name, "a text")
    return f"{where} must be {kind}, got {first['input']!r}"


def _axes(file: SweepFile, source: str) -> tuple[str, tuple[str, ...], dict[str, dict[str, Setting]]]:
    """(factor, the keys it sets, axis -> label -> what to set)."""
    axes = {_short(key): _choices(key, values, source) for key, values in file.grid.items()}
    keys = [*file.grid]
    if isinstance(file.factor, list):
        cases = _cases(file.factor, source)
        named = tuple(dict.fromkeys(key for setting in cases.values() for key in setting))
        keys += named
        axes = {CASE: cases, **axes}
        factor = CASE
    else:
        named = (_factor(file, source),)
        factor = _short(named[0])
    for key in keys:
        _refuse(key, source)
    twice = next((key for key in named if isinstance(file.factor, list) and key in file.grid), None)
    if twice is not None:
        raise SpecError(f"{source}: {twice} is set by both factor and grid; remove one of them.")
    return factor, named, axes


def _factor(file: SweepFile, source: str) -> str:
    if not file.grid:
        raise SpecError(f"{source}: there is nothing to compare; give a grid, or factor as a list of cases.")
    if file.factor is None and len(file.grid) == 1:
        return next(iter(file.grid))
    if file.factor is None:
        raise SpecError(f"{source}: name what is compared: factor must be one of {', '.join(file.grid)}.")
    assert isinstance(file.factor, str)
    if file.factor not in file.grid:
        hint = did_you_mean(file.factor, list(file.grid))
        raise SpecError(f"{source}: factor {file.factor!r} is not in the grid{hint}; it has {', '.join(file.grid)}.")
    return file.factor


def _cases(cases: Sequence[Setting], source: str) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for case in cases:
        setting = dict(case)
        label = str(setting.pop(LABEL, ""))
        if not label.strip():
            raise SpecError(f"{source}: factor: every case needs a {LABEL}, got {case!r}.")
        if label in found:
            raise SpecError(f"{source}: factor: the label {label!r} is given to two cases.")
        found[label] = setting
    return found


def _choices(key: str, values: Sequence[Any], source: str) -> dict[str, Setting]:
    found = {_text(value): {key: value} for value in values}
    if len(found) < len(values):
        raise SpecError(f"{source}: grid.{key} lists a value twice: {', '.join(map(_text, values))}.")
    return found


def _refuse(key: str, source: str) -> None:
    reason = next((why for own, why in OWN.items() if key == own or key.startswith(f"{own}.")), None)
    if reason is not None:
        raise SpecError(f"{source}: {key} cannot be varied, since {reason}.")
    top = key.split(".")[0]
    known = [field.alias or name for name, field in RunSpec.model_fields.items()]
    if top not in known:
        hint = did_you_mean(top, known)
        raise SpecError(f"{source}: a run spec has no key {key!r}{hint}; known keys are {', '.join(known)}.")


# --- the runs ------------------------------------------------------------------------------------


def _base(file: SweepFile, path: Path) -> dict[str, Any]:
    """The spec that all runs start from, as plain data."""
    if file.spec is not None:
        return RunSpec.load(path.parent / Path(file.spec).expanduser()).data()
    assert file.base is not None
    if "name" in file.base:
        raise SpecError(f"{path}: base.name is not needed, since {OWN['name']}; remove it.")
    return dict(file.base)


def _members(
    file: SweepFile, base: Mapping[str, Any], axes: Mapping[str, Mapping[str, Setting]], path: Path
) -> Iterator[Member]:
    for chosen in itertools.product(*(choices.items() for choices in axes.values())):
        labels = {axis: label for axis, (label, _) in zip(axes, chosen)}
        settings = {key: value for _, setting in chosen for key, value in setting.items()}
        for seed in file.seeds:
            where = f"{path}, run {_joined({**labels, 'seed': str(seed)})}"
            data = dict(base) | {"name": f"{file.name} {_joined({**labels, 'seed': str(seed)})}"}
            for key, value in {**settings, "config.seed": seed}.items():
                _assign(data, key, value, where)
            yield Member(labels, seed, _resolved(data, where, path.resolve().parent))


def _resolved(data: Mapping[str, Any], where: str, folder: Path) -> ResolvedRun:
    spec = RunSpec.parse(data, where, folder)
    try:
        return spec.resolve()
    except ValueError as error:
        raise SpecError(f"{where}: {error}") from error


def _assign(data: dict[str, Any], path: str, value: Any, where: str) -> None:
    """Set one key path; the inner groups are copied, since all runs share those of the base."""
    *groups, last = path.split(".")
    for group in groups:
        inner = data.get(group)
        if inner is not None and not isinstance(inner, dict):
            raise SpecError(f"{where}: {path} cannot be set, since {group} is {inner!r} and not a group of keys.")
        data[group] = dict(inner or {})
        data = data[group]
    data[last] = value


def _refuse_twins(members: Sequence[Member], source: str) -> None:
    """Two cells that come out as the same run would compare a thing with itself."""
    seen: dict[str, str] = {}
    for member in members:
        content = repr(member.resolved.spec.model_copy(update={"name": ""}).data())
        if content in seen:
            raise SpecError(f"{source}: the runs {seen[content]} and {member.key} come out the same; remove one.")
        seen[content] = member.key


def _short(key: str) -> str:
    return key.removeprefix("config.")


def _text(value: Any) -> str:
    """A value as its label, in YAML's spelling."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return value if isinstance(value, str) else text.removesuffix("\n").removesuffix("\n...").strip()


def _joined(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={label}" for key, label in labels.items())
