"""YAML text to plain data, with errors of one sentence, and `key.path=value` overrides of that data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import yaml


class SpecError(ValueError):
    """A run spec that cannot be read or used; the message is one sentence with the remedy."""


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key written twice, where YAML would silently keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is written twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, source: str) -> Any:
    """The data of a YAML text. SpecError names `source`, the line and the problem."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SpecError(f"{source}{line}: this is not valid YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise SpecError(f"{source}: this is not valid YAML: {' '.join(str(error).split())}.") from error
    except RecursionError as error:
        raise SpecError(f"{source}: this is not valid YAML: it is nested too deeply.") from error
    except (ValueError, LookupError, AttributeError) as error:  # what PyYAML lets through of a value such as 2026-13-45
        raise SpecError(
            f"{source}: this is not valid YAML: a value cannot be read ({' '.join(str(error).split())}); quote it."
        ) from error


def read_mapping(text: str, source: str, keys: str = "name:, task: and algorithm:") -> dict[str, Any]:
    """The mapping at the top of a YAML text; SpecError, which names some `keys`, when there is something else."""
    data = parse_yaml(text, source)
    if not isinstance(data, dict):
        found = "empty" if data is None else f"a {type(data).__name__}"
        raise SpecError(f"{source} must hold keys such as {keys}, but it is {found}.")
    return data


def with_overrides(data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of `data` in which every `key.path=value` is set; values are read as YAML."""
    result = dict(data)
    for override in overrides:
        path, equals, value = override.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise SpecError(f"--set takes KEY=VALUE, such as config.num_turns=2, got {override!r}.")
        _assign(result, keys, parse_yaml(value, f"--set {override}"), override)
    return result


def _assign(data: dict[str, Any], keys: list[str], value: Any, override: str) -> None:
    """Set one path, copying the inner dicts on the way so that the caller's data stays as it is."""
    for index, key in enumerate(keys[:-1]):
        inner = data.get(key)
        if inner is not None and not isinstance(inner, dict):
            name = ".".join(keys[: index + 1])
            raise SpecError(f"--set {override}: {name} is {inner!r}, not a group of keys; set {name} itself.")
        data[key] = dict(inner or {})
        data = data[key]
    data[keys[-1]] = value
