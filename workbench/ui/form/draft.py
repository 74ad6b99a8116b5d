"""A draft: a run spec as it stands in the form, where any value may still be wrong.

A draft is plain data in the spec's own key names. Under `config` it holds only what differs from the defaults of the
task and the algorithm, as typed. This module knows no widgets.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.config import TrainingConfig
from workbench.fields import checked_value, did_you_mean
from workbench.runs.spec import RunSpec, SpecError
from workbench.runs.yamlfile import read_mapping
from workbench.trainers import algorithm

Draft = dict[str, Any]
PRESET_FOLDER = Path(__file__).parents[1] / "presets"
PRESETS = ("quickstart", "rendezvous", "quickstart_maac", "quickstart_iac", "smollm2_story")
"""In the order of the page; titles and notes are the texts `preset.<name>` and `preset.<name>.note`."""
NUMBER, SWITCH, CHOICE, DEVICES = "number", "switch", "choice", "devices"


def preset(name: str) -> Draft:
    """One of PRESETS as a draft."""
    return draft_of((PRESET_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), name, PRESET_FOLDER)


def draft_of(text: str, source: str, base_folder: Path) -> Draft:
    """A draft from the YAML text of a run spec; paths in it start at `base_folder`.

    Values of config may be out of range, the form shows that beside them. Raises ValueError with one sentence for
    everything else, unknown names included.
    """
    spec = RunSpec.parse(read_mapping(text, source), source, base_folder)
    return draft_of_spec(spec, source)


def draft_of_spec(spec: RunSpec, source: str) -> Draft:
    """A draft that says what a spec says.

    Raises ValueError for an unknown algorithm or config key, and for a switch or devices that no widget could show.
    """
    config = algorithm(spec.algorithm).config
    known = [field.name for field in dataclasses.fields(config)]
    for name, value in spec.config.items():
        if name not in known:
            raise SpecError(f"{source}: config has {name!r}, which {spec.algorithm} lacks{did_you_mean(name, known)}.")
        if kind_of(config, name) in (SWITCH, DEVICES):
            checked_value(config, name, value)
    return spec.data()


def kind_of(config: type[TrainingConfig], name: str) -> str:
    """NUMBER, SWITCH, CHOICE or DEVICES: which widget a field needs."""
    if "choices" in config.__dataclass_fields__[name].metadata:
        return CHOICE
    if name.endswith("_devices"):
        return DEVICES
    return SWITCH if typing.get_type_hints(config)[name] is bool else NUMBER


def optional(config: type[TrainingConfig], name: str) -> bool:
    """True for a number that may be left empty."""
    hint = typing.get_type_hints(config)[name]
    return isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)


def parsed(config: type[TrainingConfig], name: str, raw: Any) -> Any:
    """The value that a field's raw text, switch or choice means; ValueError with one sentence when it means none."""
    if isinstance(raw, str) and kind_of(config, name) == NUMBER:
        raw = raw.strip()
        if raw == "" and optional(config, name):
            return None
        if raw == "":
            raise ValueError(f"{name} must not be empty.")
    return checked_value(config, name, raw)


def shown(value: Any) -> str:
    """A number as the form shows it: nothing for None, no trailing zeros."""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def changes(config: type[TrainingConfig], raw: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The config values of a draft that differ from `base`, in the field's type; as typed where they are wrong.

    Fields that another algorithm has are left out: they come back when it is chosen again.
    """
    found = {}
    for name in config.__dataclass_fields__:
        if name not in raw:
            continue
        try:
            value = parsed(config, name, raw[name])
        except ValueError:
            value = raw[name]
        if value != base[name]:
            found[name] = value
    return found


def spec_data(draft: Draft, base: Mapping[str, Any]) -> dict[str, Any]:
    """The draft as the shortest run spec: what is left out has its default."""
    config = algorithm(draft["algorithm"]).config
    data = {
        "name": draft["name"],
        "task": draft["task"],
        "dataset": _short_dataset(draft.get("dataset")),
        "algorithm": draft["algorithm"],
        "model": draft.get("model"),
        "agents": draft.get("agents"),
        "critic": draft.get("critic") if has_critic(draft, base) else None,
        "config": _with_shown_group(draft, changes(config, draft.get("config") or {}, base), base),
        "model_config": draft.get("model_config"),
        "tracking": _short_tracking(draft.get("tracking") or {}),
    }
    return without_nothing(data)


def _with_shown_group(draft: Draft, changed: dict[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """A spec that leaves num_generations out may get another one than the form shows when num_turns is changed: an
    actor-critic over several turns has no use for the suggested one. What is shown must be what is meant."""
    if "num_turns" in changed and algorithm(draft["algorithm"]).family != "reinforce":
        return {"num_generations": base["num_generations"], **changed}
    return changed


def without_nothing(data: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys that hold nothing, which have their defaults."""
    return {key: value for key, value in data.items() if value is not None and value != {}}


def located(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same spec, valid from any folder: its local files absolute, from `folder`. As it is while it is not valid."""
    try:
        spec = RunSpec.parse(data, "spec", folder).data()
    except ValueError:
        return data
    found = dict(data)
    found.update((key, spec[key]) for key in ("task", "model", "agents", "critic") if key in data)
    if "dataset" in data:
        found["dataset"] = _short_dataset(spec["dataset"])
    return found


def has_critic(draft: Draft, base: Mapping[str, Any]) -> bool:
    """True when the algorithm, as it is set, trains critics that are models of their own."""
    if algorithm(draft["algorithm"]).family == "reinforce":
        return False
    return bool((draft.get("config") or {}).get("use_separate_critic", base.get("use_separate_critic", True)))


def _short_dataset(dataset: Any) -> Any:
    return without_nothing(dataset) if isinstance(dataset, Mapping) else dataset


def _short_tracking(tracking: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"experiment": "workbench", "mlflow": True, "wandb": None}
    return {key: value for key, value in tracking.items() if value != defaults.get(key, tracking)}
