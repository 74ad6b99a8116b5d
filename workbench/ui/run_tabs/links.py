"""The way from a finding to its node in the tab Advantages. Knows nothing of what was found."""

from __future__ import annotations

from functools import partial

import streamlit as st

from workbench.runs.workspace import RunFolder
from workbench.ui.run_tabs import readers

PLACE = ("step", "joint", "agent", "k")
"""What the address says of a rollout besides its node; it belongs to the node shown before."""


def node_button(
    run: RunFolder, label: str, node: int, key: str, agent: int | None = None, k: int | None = None,
    icon: str | None = ":material/account_tree:",
) -> None:  # fmt: skip
    """A button that opens this node, and one of its completions, in the tab Advantages."""
    go = partial(_open, run.id, node, agent, k)
    if st.button(label, key=key, on_click=go, icon=icon, type="tertiary"):
        st.rerun()  # the whole page: a click inside a live area draws only that area again


def _open(run_id: str, node: int, agent: int | None, k: int | None) -> None:
    point_at(node, agent, k)
    st.session_state["run-tab"] = "advantages"  # the switch keeps its own choice, whatever the address says
    st.session_state["episodes-run"] = run_id  # else that tab takes the node for one of the run it showed last
    st.query_params["tab"] = "advantages"


def point_at(node: int, agent: int | None = None, k: int | None = None) -> None:
    """Put a node, and one of its completions, into the address."""
    for name in PLACE:
        st.query_params.pop(name, None)
    known = {"node": node, "agent": agent, "k": k}
    readers.set_address(**{name: value for name, value in known.items() if value is not None})
