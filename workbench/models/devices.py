"""Which device each model goes to, checked before any model loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Placement:
    """The device of every model of a run."""

    agents: tuple[torch.device, ...]  # [n]
    references: tuple[torch.device, ...]  # [n]
    critics: tuple[torch.device, ...]  # one per separate critic, in order; () without


def place(args: Any, num_agents: int, num_critics: int) -> Placement:
    """Where the models of a configuration live; ValueError names the field to change.

    args: a TrainingConfig. parallel_training "none": all on one device, the configured one, else the
    first GPU, else the CPU. "mp": each on its own; one value, or a list with one, serves all.
    """
    given = {name: _names(getattr(args, name, None), name) for name in _FIELDS}
    if given["critic_devices"] and not num_critics:
        raise ValueError("critic_devices is set, but there is no separate critic to place; remove it.")
    agents = _spread(given["agent_devices"], num_agents, "agent_devices")
    references = _spread(given["reference_devices"], num_agents, "reference_devices")
    critics = _spread(given["critic_devices"], num_critics, "critic_devices")
    if args.parallel_training == "none":
        device = _only({"agent_devices": agents, "reference_devices": references, "critic_devices": critics})
        return Placement((device,) * num_agents, (device,) * num_agents, (device,) * num_critics)
    return Placement(agents, references or agents, critics)


_FIELDS = ("agent_devices", "reference_devices", "critic_devices")


def _names(devices: str | Sequence[str] | None, field: str) -> list[str]:
    names = [devices] if isinstance(devices, str) else list(devices or [])
    if devices is not None and not names:
        raise ValueError(f"{field} is an empty list; name a device, or leave it out.")
    return names


def _only(given: dict[str, tuple[torch.device, ...]]) -> torch.device:
    """The one device of all models."""
    devices = list(dict.fromkeys(device for named in given.values() for device in named))
    if len(devices) > 1:
        fields = " and ".join(field for field, named in given.items() if named)
        raise ValueError(
            f"{fields} name several devices ({', '.join(map(str, devices))}), but parallel_training='none' keeps all "
            "models on one; use parallel_training='mp'."
        )
    return devices[0] if devices else torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def _spread(names: list[str], count: int, field: str) -> tuple[torch.device, ...]:
    if len(names) > 1 and len(names) != count:
        models = "1 model; name one" if count == 1 else f"{count} models; list {count}, or one for all"
        raise ValueError(f"{field} lists {len(names)} devices for {models}.")
    devices = tuple(checked_device(name, field) for name in names)
    return devices * count if len(devices) == 1 else devices


def checked_device(name: str, field: str) -> torch.device:
    """The device, or ValueError when this machine does not have it; never another one instead."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"{field}: {name!r} is not a device name; use 'cpu' or 'cuda:0'.") from None
    if device.type == "cpu" and not device.index:
        return torch.device("cpu")
    available = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    kind = torch.accelerator.current_accelerator().type if available else "none"  # type: ignore[union-attr]
    if device.type != kind or (device.index or 0) >= available:
        there = ", ".join(f"{kind}:{i}" for i in range(available)) or "no accelerator"
        raise ValueError(f"{field}: there is no device {name!r} on this machine (it has cpu and {there}).")
    return torch.device(device.type, device.index or 0)
