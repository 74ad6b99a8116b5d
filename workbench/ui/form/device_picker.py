"""Where the models of a run live: this machine's devices, a choice per field, and what is wrong with a choice.

A choice is never changed by the app: a device that is gone stays chosen, is named, and blocks the launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from workbench.config import TrainingConfig
from workbench.runs.hardware import Gpu, Hardware, canonical
from workbench.trainers import algorithm
from workbench.ui.form import config_form, session
from workbench.ui.form.draft import DEVICES, Draft, has_critic, kind_of
from workbench.ui.text import t

GIB = 2**30
AUTOMATIC = ""
"""The option that names no device."""
Trouble = tuple[str, dict[str, Any]]
"""Key of a text and its values."""


# --- what is wrong with a choice ------------------------------------------------------------------


def troubles(
    chosen: Mapping[str, Any], counts: Mapping[str, int], machine: Hardware, known: Mapping[str, str]
) -> dict[str, Trouble]:
    """field -> what is wrong. chosen: the device fields' values; counts: models each one places; known: the UUID that
    a device's name meant when it was chosen here."""
    found = {}
    for field, value in chosen.items():
        trouble = _trouble(named(value), counts.get(field, 1), machine, known)
        if trouble is not None:
            found[field] = trouble
    return found


def _trouble(names: Sequence[str], count: int, machine: Hardware, known: Mapping[str, str]) -> Trouble | None:
    present = {gpu.device: gpu.uuid for gpu in machine.gpus} | {machine.cpu.device: ""}
    for name in map(canonical, names):
        if name not in present:
            return "device.gone", {"device": name, "present": ", ".join(present)}
        if known.get(name, present[name]) != present[name]:
            return "device.other", {"device": name, "before": known[name], "now": present[name]}
    if len(names) > 1 and len(names) != count:
        return "device.count", {"named": len(names), "count": count}
    return None


def named(value: Any) -> list[str]:
    """The devices that a field's value names, [] for None."""
    return [value] if isinstance(value, str) else list(value or [])


def fields_in_use(draft: Draft, base: Mapping[str, Any]) -> list[str]:
    """The device fields that matter for this draft, and those that are set although they do not."""
    config, values = algorithm(draft["algorithm"]).config, draft["config"]
    separate = values.get("parallel_training", base["parallel_training"]) == "mp"
    matters = {
        "agent_devices": True,
        "critic_devices": separate and has_critic(draft, base),
        "reference_devices": separate and bool(values.get("reference_kl_enabled", base["reference_kl_enabled"])),
    }
    fields = [name for name in config.__dataclass_fields__ if kind_of(config, name) == DEVICES]
    return [name for name in fields if matters[name] or values.get(name) is not None]


# --- widgets --------------------------------------------------------------------------------------


def devices(draft: Draft, base: Mapping[str, Any], counts: Mapping[str, int], slots: session.Slots) -> None:
    """Choose; errors of a choice stand beside it when `troubles` are said."""
    config = algorithm(draft["algorithm"]).config
    config_form.setting(config, "parallel_training", draft, base, slots)
    separate = draft["config"].get("parallel_training", base["parallel_training"]) == "mp"
    for field in fields_in_use(draft, base):
        _field(config, field, draft, base, counts.get(field, 1) if separate else 1)
        slots.open(field)
    if not separate and not any(draft["config"].get(field) for field in fields_in_use(draft, base)):
        st.caption(t("device.now", device=session.machine().default_device()))
    with st.expander(t("launch.machine"), icon=":material/memory:"):
        machine_table(session.machine())


def _field(config: type[TrainingConfig], field: str, draft: Draft, base: Mapping[str, Any], count: int) -> None:
    value = draft["config"].get(field)
    label, help_text = t(f"field.{field}"), config_form.help_of(config, field, base)
    several = count > 1 and st.toggle(
        t("launch.device_each", field=label), key=session.seeded(f"{field}-each", isinstance(value, list))
    )
    present = named(value)
    if not several:
        chosen = _select(field, label, help_text, present[0] if present else AUTOMATIC)
        result: Any = chosen or None
        if len(present) > 1 and chosen == canonical(present[0]) and count == 1:
            result = value  # a list that a file brought; it is said to be wrong, not cut short
    else:
        before = [present[i % len(present)] if present else session.machine().default_device() for i in range(count)]
        result = [_select(f"{field}-{i}", f"{label} · {i}", help_text, before[i]) or before[i] for i in range(count)]
    draft["config"] = {**draft["config"], field: result}
    if result is None:
        del draft["config"][field]


def _select(name: str, label: str, help_text: str, value: str) -> str:
    hardware = session.machine()
    options = [] if "-" in name else [AUTOMATIC]
    options += [hardware.cpu.device, *(gpu.device for gpu in hardware.gpus)]
    value = canonical(value)
    key = session.seeded(name, value)
    for chosen in (value, st.session_state[key]):
        if chosen not in options:
            options.append(chosen)
    device = st.selectbox(
        label,
        options,
        key=key,
        help=help_text,
        format_func=lambda device: _option(device, name),
        on_change=_remember,
        args=(key,),
    )
    if hardware.free_memory(device) is not None:
        st.caption(t("device.free", free=_gib(hardware.free_memory(device))))
    return str(device)


def _remember(key: str) -> None:
    """Note which GPU a name means at the moment of choosing."""
    known = st.session_state.setdefault(session.UUIDS, {})
    device = st.session_state[key]
    known.pop(device, None)
    known |= {gpu.device: gpu.uuid for gpu in session.machine().gpus if gpu.device == device}


def _option(device: str, field: str) -> str:
    """A label that says the same at every look: the browser names the choice by it."""
    hardware = session.machine()
    if device == AUTOMATIC:
        return t(f"device.automatic.{field}")
    if device == hardware.cpu.device:
        return t("device.cpu", cores=hardware.cpu.cores)
    gpu = next((gpu for gpu in hardware.gpus if gpu.device == device), None)
    return device if gpu is None else f"{device} · {gpu.name} ({gpu.uuid[:12]})"


def machine_table(hardware: Hardware) -> None:
    """Every device with its memory and who uses it."""
    cpu = hardware.cpu
    rows = [(cpu.device, cpu.name, "", _gib(cpu.memory_free), _gib(cpu.memory_total), "", "")]
    rows += [
        (g.device, g.name, g.uuid, _gib(g.memory_free), _gib(g.memory_total), _load(g), users(g)) for g in hardware.gpus
    ]
    titles = ("device", "name", "uuid", "free", "total", "load", "users")
    table = pd.DataFrame(rows, columns=[t(f"launch.machine.{title}") for title in titles])
    st.dataframe(table, hide_index=True, key="launch-machine")
    if hardware.note:
        st.caption(session.plain(hardware.note))
    if st.button(t("launch.machine.again"), key="launch-machine-again", icon=":material/refresh:"):
        session.machine.clear()
        st.rerun()


def users(gpu: Gpu) -> str:
    """The processes on a GPU: user, pid, memory."""
    return "; ".join(f"{p.user or '?'}: {p.name} ({p.pid}, {_gib(p.memory)} GiB)" for p in gpu.processes)


def _load(gpu: Gpu) -> str:
    return "" if gpu.utilization is None else f"{gpu.utilization:.0f} %"


def _gib(size: int | None) -> str:
    return "?" if size is None else f"{size / GIB:.1f}"
