"""Which device each model goes to, checked before any model loads."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def resolve_device(devices: str | Sequence[str] | None, field: str) -> torch.device:
    """The one device of serial mode: the configured one, else the first GPU, else the CPU."""
    if devices is None:
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    names = [devices] if isinstance(devices, str) else list(devices)
    if not names:
        raise ValueError(f"{field} is an empty list; name a device, or leave it out.")
    if len(set(names)) != 1:
        raise ValueError(
            f"{field} names several devices ({', '.join(names)}), but parallel_training='none' keeps all models on one."
        )
    return checked_device(names[0], field)


def checked_device(name: str, field: str) -> torch.device:
    """The device, or ValueError when this machine does not have it; never another one instead."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"{field}: {name!r} is not a device name; use 'cpu' or 'cuda:0'.") from None
    if device.type == "cpu":
        return torch.device("cpu")
    available = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    kind = torch.accelerator.current_accelerator().type if available else "none"  # type: ignore[union-attr]
    if device.type != kind or (device.index or 0) >= available:
        there = ", ".join(f"{kind}:{i}" for i in range(available)) or "no accelerator"
        raise ValueError(f"{field}: there is no device {name!r} on this machine (it has cpu and {there}).")
    return torch.device(device.type, device.index or 0)
