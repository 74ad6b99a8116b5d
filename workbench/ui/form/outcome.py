"""What the form amounts to: what is wrong, what to mind, the memory it needs, and the same run in other words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from workbench.runs.spec import RunSpec
from workbench.ui import state
from workbench.ui.form import cautions, memory_view, model_picker, preview, session
from workbench.ui.form.examine import Examination, plan
from workbench.ui.text import t
from workbench.ui.widgets import download


def outcome(data: dict[str, Any], known: Examination, slots: session.Slots) -> bool:
    """Say what is wrong, here and beside the fields, and what to mind. True when the run may start."""
    found = session.look(data, state.workspace().root)
    if found.error is not None:
        slots.say(found.blamed, found.error)
    for field, text in _model_troubles(data).items():
        slots.say(field, text)
    st.subheader(t("launch.summary"))
    _summary(data, known)
    for name, text in slots.said.items():
        st.error(session.plain(text if name in text or not name else f"{name}: {text}"), icon=":material/error:")
    _mind(found)
    return not slots.said


def _model_troubles(data: Mapping[str, Any]) -> dict[str, str]:
    try:
        spec = RunSpec.parse(data, "spec", state.workspace().root)
    except ValueError:  # said already, since the examination begins with it
        return {}
    return model_picker.troubles(spec)


def _summary(data: Mapping[str, Any], known: Examination) -> None:
    models = [data["model"]] if "model" in data else data.get("agents", [])
    lines = {
        t("launch.name"): data["name"],
        t("launch.task"): data["task"],
        t("launch.algorithm"): data["algorithm"],
        t("launch.models"): ", ".join(dict.fromkeys(map(str, models))),
    }
    if known.card is not None:
        lines[t("launch.agents")] = str(known.card.num_agents)
    st.markdown("  \n".join(f"{title}: **{session.plain(str(value))}**" for title, value in lines.items()))


def _mind(found: Examination) -> None:
    if not found.config:
        return
    for caution in cautions.cautions(found.config):
        show = st.warning if caution.serious else st.info
        show(t(caution.key, **caution.values), icon=":material/lightbulb:")
    for text in cautions.unsaid(found.warnings):
        st.warning(session.plain(text), icon=":material/lightbulb:")


def details(data: dict[str, Any], ready: bool) -> None:
    """Memory and the run in other words; nothing while something is wrong."""
    if not ready:
        return
    root = state.workspace().root
    found = session.look(data, root)
    st.subheader(t("launch.memory"))
    with st.spinner(t("launch.memory.looking")):
        memory_view.memory(plan(data, found, root, session.machine()))
    st.subheader(t("launch.same"))
    _in_other_words(data, root, found.config)


def _in_other_words(data: Mapping[str, Any], root: Path, config: Mapping[str, Any]) -> None:
    as_yaml, shell, python = st.tabs(["YAML", t("launch.shell"), "Python"])
    with as_yaml:
        text = preview.as_yaml(data)
        st.code(text, language="yaml", wrap_lines=True)
        download(t("launch.download_yaml"), text.encode, preview.file_name(data), "launch-download")
    with shell:
        st.code(preview.as_shell(data, root), language="bash", wrap_lines=True)
    with python:
        st.caption(t("launch.python_note"))
        st.code(preview.as_python(data, config), language="python", wrap_lines=True)
