"""What is allowed and yet rarely meant: settings that quietly take an effect away. Knows no widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SAID_HERE = "advantage_normalization is on"
"""The beginning of the configuration's own warning about what `same_baselines` says in both languages."""


@dataclass(frozen=True)
class Caution:
    """key: of its text, filled from values. field: the setting to look at. serious: almost surely a mistake."""

    key: str
    field: str
    values: Mapping[str, Any]
    serious: bool = True


def cautions(config: Mapping[str, Any]) -> list[Caution]:
    """For a run's full configuration values."""
    found = [same_baselines(config), early_end(config), truncated_support(config), converged_q(config)]
    return [caution for caution in found if caution is not None]


def unsaid(warnings: Sequence[str]) -> list[str]:
    """The configuration's own warnings that no caution repeats."""
    return [text for text in warnings if not text.startswith(SAID_HERE)]


def same_baselines(config: Mapping[str, Any]) -> Caution | None:
    mode = config.get("advantage_mode")
    if mode is None or not config["advantage_normalization"]:
        return None
    return Caution("caution.normalised", "advantage_normalization", {"mode": mode}, serious=mode != "mean")


def early_end(config: Mapping[str, Any]) -> Caution | None:
    """A threshold that no reward of 0 or more stays below ends every episode after turn 1."""
    threshold = config["early_termination_threshold"]
    if config["num_turns"] == 1 or threshold is None:
        return None
    field = "early_termination_threshold"
    return Caution("caution.threshold", field, {"threshold": f"{threshold:g}"}, serious=threshold < 0)


def truncated_support(config: Mapping[str, Any]) -> Caution | None:
    """Scores are of the full distribution, whatever part of it is sampled from."""
    if config["top_p"] == 1.0 and not config["top_k"]:
        return None
    name = "top_k" if config["top_k"] else "top_p"
    return Caution("caution.truncated", name, {"name": name, "value": f"{config[name]:g}"})


def converged_q(config: Mapping[str, Any]) -> Caution | None:
    return Caution("caution.q", "critic_type", {}, serious=False) if config.get("critic_type") == "q" else None
