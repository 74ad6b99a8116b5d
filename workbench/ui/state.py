"""What a page knows besides the disk: the workspace, and which run the address bar names.

Disk is the truth; the session keeps only choices of the reader.
"""

from __future__ import annotations

import os
from pathlib import Path

import streamlit as st

from workbench.runs.launch import reconcile
from workbench.runs.workspace import RunFolder, Workspace, WorkspaceError

WORKSPACE_VARIABLE = "WORKBENCH_WORKSPACE"
"""Environment variable with the workspace's folder; the current folder without it."""


def workspace() -> Workspace:
    """The workspace this app shows."""
    return Workspace(Path(os.environ.get(WORKSPACE_VARIABLE, ".")))


@st.cache_resource(show_spinner=False)
def reconciled(root: str) -> bool:
    """Once per server process and workspace: find again what an earlier app had started."""
    reconcile(Workspace(root))
    return True


def named_run() -> RunFolder | None:
    """The run that the address names (?run=...), None when it names none or one that is gone."""
    name = st.query_params.get("run", "")
    try:
        return workspace().run(name) if name and "/" not in name else None
    except WorkspaceError:
        return None


def name_run(run: RunFolder) -> None:
    """Put the run into the address, so that a refresh or a second tab finds it."""
    if st.query_params.get("run") != run.id:
        st.query_params["run"] = run.id
