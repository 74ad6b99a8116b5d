"""The memory a run will need on each device, next to what is free there now."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from workbench.runs.memory_plan import DevicePlan, MemoryPlan
from workbench.ui.form.session import plain
from workbench.ui.text import has, t

GIB, MIB = 2**30, 2**20


def memory(plan: MemoryPlan) -> None:
    """A bar per device, a warning where it does not fit, and what it is made of."""
    for device in plan.devices:
        _device(device)
    for reason in plan.unknown:
        st.info(plain(reason), icon=":material/help:")
    with st.expander(t("launch.memory.parts")):
        st.caption(t("launch.memory.note", tokens=plan.prompt_tokens))
        st.dataframe(parts(plan), hide_index=True, key="launch-memory-parts")


def parts(plan: MemoryPlan) -> pd.DataFrame:
    """One row per device, owner and kind, in MiB."""
    rows = [
        (device.device, part.owner, _kind(part.kind), round(part.bytes / MIB, 1))
        for device in plan.devices
        for part in device.parts
    ]
    return pd.DataFrame(rows, columns=[t(f"launch.memory.{name}") for name in ("device", "owner", "kind", "mib")])


def _kind(kind: str) -> str:
    key = f"memory.{kind.replace(' ', '_')}"
    return t(key) if has(key) else kind


def _device(device: DevicePlan) -> None:
    needed = f"{device.needed / GIB:.2f}"
    if device.free is None:
        st.markdown(t("launch.memory.unknown", device=device.device, needed=needed))
        return
    free = f"{device.free / GIB:.2f}"
    share = device.needed / device.free if device.free else 1.0
    st.progress(min(share, 1.0), t("launch.memory.of", device=device.device, needed=needed, free=free))
    if not device.fits:
        st.warning(t("launch.memory.too_much", device=device.device, needed=needed, free=free))
