"""The launch page: a preset, an earlier run or a file fills the form; the form becomes a checked spec; one click
starts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from workbench.runs.errors import sentence
from workbench.runs.launch import clone
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import WorkspaceError
from workbench.ui import state
from workbench.ui.form import fields, outcome, session
from workbench.ui.form.draft import PRESETS, draft_of, draft_of_spec, preset, without_nothing
from workbench.ui.form.task_process import launched
from workbench.ui.navigation import go
from workbench.ui.text import t

PENDING, REFUSED, CLONED, COPIED = "launch-pending", "launch-refused", "launch-cloned", "launch-copied"
PER_ROW = 3


def page() -> None:
    """Draw it."""
    st.title(t("page.launch"))
    st.caption(t("launch.intro"))
    _from_address()
    _presets()
    _other_sources()
    st.divider()
    form, result = st.columns([3, 2], gap="large")
    slots = session.Slots()
    with form:
        data, known = fields.form(session.draft(), slots)
    with result:
        ready = outcome.outcome(data, known, slots)
        _launch_button(ready)
        outcome.details(data, ready)
    _start(data, ready)


# --- what fills the form --------------------------------------------------------------------------


def _from_address() -> None:
    """?clone=<run id> fills the form once with that run's spec."""
    wanted = st.query_params.get("clone")
    if wanted is None:
        st.session_state.pop(CLONED, None)
    elif st.session_state.get(CLONED) != wanted:
        st.session_state[CLONED] = wanted
        _copy(wanted)
    if wanted is not None and st.session_state.get(COPIED):
        st.info(t("launch.copied", run=session.plain(wanted)), icon=":material/content_copy:")
    elif wanted is not None:
        st.error(session.plain(st.session_state[REFUSED]), icon=":material/error:")


def _copy(run_id: str) -> None:
    try:
        if "/" in run_id:
            raise WorkspaceError(f"There is no run {run_id!r} in {state.workspace().root}.")
        data = clone(state.workspace().run(run_id))
        session.replace(draft_of_spec(RunSpec.parse(data, "spec", state.workspace().root), run_id))
        st.session_state[COPIED] = True
    except (ValueError, OSError) as error:
        st.session_state[COPIED] = False
        st.session_state[REFUSED] = sentence(error)


def _presets() -> None:
    st.subheader(t("launch.presets"))
    for start in range(0, len(PRESETS), PER_ROW):
        for column, name in zip(st.columns(PER_ROW), PRESETS[start : start + PER_ROW]):
            with column, st.container(border=True, key=f"preset-{name}"):
                _card(name)


def _card(name: str) -> None:
    st.markdown(f"**{t(f'preset.{name}')}**")
    st.caption(t(f"preset.{name}.note"))
    with st.container(horizontal=True):
        st.button(
            t("launch.start_now"),
            key=f"preset-start-{name}",
            type="primary" if name == PRESETS[0] else "secondary",
            icon=":material/play_arrow:",
            on_click=_press,
            args=(session.token(), name),
            disabled=PENDING in st.session_state,
        )
        st.button(t("launch.fill"), key=f"preset-fill-{name}", on_click=_fill, args=(name,), type="tertiary")


def _fill(name: str) -> None:
    session.replace(preset(name))


def _other_sources() -> None:
    with st.expander(t("launch.sources"), icon=":material/upload_file:"):
        earlier, text = st.columns(2)
        with earlier:
            _earlier_run()
        with text:
            _yaml_text()


def _earlier_run() -> None:
    ids = [run.id for run in state.workspace().runs()]
    if not ids:
        st.caption(t("launch.no_earlier"))
        return
    chosen = st.selectbox(t("launch.earlier"), ids, key="launch-earlier")
    if st.button(t("launch.copy"), key="launch-copy", icon=":material/content_copy:"):
        st.session_state.pop(CLONED, None)
        st.query_params["clone"] = chosen
        st.rerun()


def _yaml_text() -> None:
    file = st.file_uploader(t("launch.upload"), type=["yaml", "yml"], key="launch-upload", max_upload_size=1)
    typed = st.text_area(t("launch.paste"), key="launch-paste", placeholder="name: ...\ntask: ...")
    if not st.button(t("launch.use_yaml"), key="launch-use-yaml", icon=":material/edit_note:"):
        return
    try:
        if file is not None and not typed.strip():
            text, source = file.getvalue().decode("utf-8"), file.name
        else:
            text, source = typed, "YAML"
        session.replace(draft_of(text, source, state.workspace().root))
    except UnicodeDecodeError:
        st.error(t("launch.not_utf8"), icon=":material/error:")
    except (ValueError, OSError) as error:
        st.error(session.plain(sentence(error)), icon=":material/error:")
    else:
        st.success(t("launch.filled"))


# --- the launch -----------------------------------------------------------------------------------


def _press(token: str, preset_name: str | None) -> None:
    """A click only notes what is wanted: the page then shows the button disabled, and launches what it shows. The
    token belongs to the button that was drawn, so the second half of a double click means the same run."""
    st.session_state[PENDING] = (token, preset_name)


def _launch_button(ready: bool) -> None:
    pending = PENDING in st.session_state
    st.button(
        t("launch.starting") if pending else t("launch.start"),
        key="launch-start",
        type="primary",
        icon=":material/rocket_launch:",
        disabled=pending or not ready,
        on_click=_press,
        args=(session.token(), None),
        width="stretch",
    )
    if not ready:
        st.caption(t("launch.blocked"))
    refused = st.session_state.pop("launch-error", None)
    if refused:
        st.error(session.plain(refused), icon=":material/error:")


def _start(data: Mapping[str, Any], ready: bool) -> None:
    """Launch what was asked for, and go to its page. What cannot start is said beside the button."""
    if PENDING not in st.session_state:
        return
    token, name = st.session_state[PENDING]
    if name is None and not ready:
        del st.session_state[PENDING]
        st.rerun()
    try:
        run = launched(data if name is None else preset_data(name), state.workspace(), f"{token}-{name or 'form'}")
    except (ValueError, OSError) as error:
        st.session_state["launch-error"] = sentence(error)
        del st.session_state[PENDING]
        session.new_token()
        st.rerun()
    else:
        del st.session_state[PENDING]
        session.new_token()
        go("run", run=run.id)


def preset_data(name: str) -> dict[str, Any]:
    """A preset as it is launched by one click."""
    return without_nothing(preset(name))
