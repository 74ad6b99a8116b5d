"""The draft in the reader's session, and the bond between it and the widgets.

Streamlit forgets a widget's value when another page is opened; the draft is kept, and fills the widgets again.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from workbench.runs.hardware import Hardware, probe
from workbench.tasks.files import is_file_reference
from workbench.ui.form.draft import Draft, preset
from workbench.ui.form.examine import Examination
from workbench.ui.form.task_process import examined
from workbench.ui.text import language, plain, t

PREFIX = "launch-field-"
DRAFT, TOKEN, UUIDS = "launch-draft", "launch-token", "launch-uuids"


def draft() -> Draft:
    """The draft of this reader, at first the quickstart."""
    if DRAFT not in st.session_state:
        st.session_state[DRAFT] = preset("quickstart")
    found: Draft = st.session_state[DRAFT]
    return found


def replace(new: Draft) -> None:
    """Another draft; every widget shows it."""
    st.session_state[DRAFT] = new
    st.session_state.pop(UUIDS, None)
    forget()


def forget() -> None:
    """Let all widgets show the draft again."""
    for key in [key for key in st.session_state if str(key).startswith(PREFIX)]:
        del st.session_state[key]


def seeded(name: str, value: Any) -> str:
    """The key of the widget `name`, which shows `value` unless the reader has changed it on this page.

    Each language has keys of its own: a browser names a selected option by its label, and one in the other language
    would be taken for a text that was typed.
    """
    key = f"{PREFIX}{name}" if language() == "en" else f"{PREFIX}{name}-{language()}"
    if key not in st.session_state:
        st.session_state[key] = value
    return key


def token() -> str:
    """Names the next launch: the same one for every click until it has started something."""
    if TOKEN not in st.session_state:
        st.session_state[TOKEN] = secrets.token_hex(16)
    found: str = st.session_state[TOKEN]
    return found


def new_token() -> None:
    """The next launch is another one."""
    st.session_state.pop(TOKEN, None)


@dataclass
class Slots:
    """A place for an error beside each field, filled when all fields are read. said: the errors so far, by field."""

    places: dict[str, DeltaGenerator] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def open(self, name: str) -> None:
        self.places[name] = st.empty()

    def say(self, name: str, text: str) -> None:
        """Beside the field, if it is on the page and has none yet; the list beside the launch button has it anyway."""
        if name in self.said:
            return
        self.said[name] = text
        if name in self.places:
            self.places[name].error(plain(text), icon=":material/error:")


def look(data: dict[str, Any], workspace: Path) -> Examination:
    """What is known of a run spec, remembered while neither it nor the task's file changes."""
    text = json.dumps(data, sort_keys=True, default=str)
    with st.spinner(t("launch.loading_task"), show_time=False):
        return _look(text, _stamp(str(data["task"]), workspace), str(workspace), data)


@st.cache_data(max_entries=64, ttl=600, show_spinner=False)
def _look(text: str, stamp: tuple[int, int], workspace: str, _data: dict[str, Any]) -> Examination:
    return examined(_data, Path(workspace))


def _stamp(task: str, workspace: Path) -> tuple[int, int]:
    """(size, time of change) of a task's file, zeros without one."""
    if not is_file_reference(task):
        return 0, 0
    try:
        found = (workspace / Path(task.rpartition(":")[0]).expanduser()).stat()
    except (OSError, ValueError, RuntimeError):
        return 0, 0
    return found.st_size, found.st_mtime_ns


@st.cache_data(max_entries=1, ttl=5, show_spinner=False)
def machine() -> Hardware:
    """This machine's devices, at most five seconds old."""
    return probe()
