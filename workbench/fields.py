"""Dataclass fields that carry their help, range and choices, and how a value is checked against them."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import annotated_types
import pydantic


def setting(default: Any, help: str, *, level: str = "advanced", **rules: Any) -> Any:
    """A dataclass field with its metadata; rules are ge, gt, le (numbers) and choices (tuple)."""
    return dataclasses.field(default=default, metadata={"help": help, "level": level, **rules})


def redefault(config: type[Any], name: str, default: Any) -> Any:
    """The parent's field with another default and the same metadata."""
    parent = config.__dataclass_fields__[name]
    return dataclasses.field(default=default, metadata=parent.metadata)


def checked_value(config: type[Any], name: str, value: Any) -> Any:
    """The value in the field's type, or ValueError with one sentence that names the field."""
    rules = config.__dataclass_fields__[name].metadata
    try:
        value = _adapters(config)[name].validate_python(value)
    except pydantic.ValidationError as error:
        raise ValueError(f"{name}: {_reason(error)}, got {value!r}.") from None
    if "choices" in rules and value not in rules["choices"]:
        options = ", ".join(map(repr, rules["choices"]))
        raise ValueError(f"{name} must be one of {options}, got {value!r}{did_you_mean(value, rules['choices'])}.")
    return value


_ADAPTERS: dict[type, dict[str, pydantic.TypeAdapter[Any]]] = {}


def _adapters(config: type[Any]) -> dict[str, pydantic.TypeAdapter[Any]]:
    """One validator per field, built once per class."""
    if config not in _ADAPTERS:
        hints = typing.get_type_hints(config)
        _ADAPTERS[config] = {f.name: _adapter(hints[f.name], f.metadata) for f in dataclasses.fields(config)}
    return _ADAPTERS[config]


def _adapter(hint: Any, rules: Mapping[str, Any]) -> pydantic.TypeAdapter[Any]:
    bounds = [getattr(annotated_types, rule.capitalize())(rules[rule]) for rule in ("ge", "gt", "le") if rule in rules]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    parts = [_number(kind, bounds) if kind in (int, float) else kind for kind in kinds]
    return pydantic.TypeAdapter(functools.reduce(lambda a, b: a | b, parts))


def _number(kind: type, bounds: Sequence[Any]) -> Any:
    checks = [pydantic.BeforeValidator(_not_a_bool), *bounds]
    if kind is float:
        checks.append(pydantic.AllowInfNan(False))
    return typing.Annotated[kind, *checks]


def _not_a_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _reason(error: pydantic.ValidationError) -> str:
    message = error.errors()[0]["msg"]
    return message.removeprefix("Value error, ").replace("Input should", "must", 1)


def did_you_mean(name: Any, known: Sequence[Any]) -> str:
    """ "" or a suffix that names the closest known name."""
    close = difflib.get_close_matches(str(name), [str(k) for k in known], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
