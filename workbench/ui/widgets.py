"""Small parts that several pages share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from workbench.runs.errors import sentence
from workbench.runs.workspace import RunFolder, RunStatus
from workbench.ui import state
from workbench.ui.text import plain, t

SHOWN = 80  # characters of a run's name that does not exist
COLOURS = {
    "queued": "orange",
    "running": "blue",
    "finished": "green",
    "stopped": "gray",
    "failed": "red",
    "lost": "red",
    "damaged": "red",
}
"""Badge colour of a run's state; gray for the others."""
MIME = {".csv": "text/csv", ".jsonl": "application/jsonl", ".json": "application/json", ".yaml": "application/yaml"}
"""What the browser is told about a download, by the end of its name."""


def badge(status: RunStatus) -> None:
    """The run's state as a coloured label."""
    st.badge(t(f"state.{status.state}"), color=COLOURS.get(status.state, "gray"))  # type: ignore[arg-type]


def chart(figure: go.Figure, key: str, data: pd.DataFrame | None = None, alt: str | None = None) -> None:
    """A plotly chart with a fixed key and, below it, its data as a download."""
    st.plotly_chart(figure, key=key, alt=alt, config={"displaylogo": False})
    if data is not None:
        download(t("common.download"), partial(csv, data), f"{key}.csv", f"{key}-csv")


def download(label: str, make: Callable[[], bytes], name: str, key: str, icon: str | None = None) -> None:
    """A button that makes a file when it is clicked.

    Not before: a page that redraws itself would make the file each time, and the server forgets the last one while
    the browser still asks for it.
    """
    st.download_button(label, make, name, MIME[Path(name).suffix], key=key, on_click="ignore", icon=icon)


def csv(data: pd.DataFrame) -> bytes:
    """Excel takes a CSV for UTF-8 only with a byte order mark."""
    return data.to_csv(index=False).encode("utf-8-sig")


@contextlib.contextmanager
def tolerant() -> Iterator[None]:
    """What cannot be read is said in one sentence in its place; the rest of the page stands."""
    try:
        yield
    except (ValueError, OSError) as error:  # unreadable files, traces, specs: all of ours are ValueErrors
        st.error(t("common.unreadable", reason=plain(sentence(error))), icon=":material/error:")


def choose_run(key: str) -> RunFolder | None:
    """A selectbox over the runs, newest first, that follows and sets the address; None when there are none."""
    runs = state.workspace().runs()
    if not runs:
        st.info(t("common.no_runs"))
        return None
    ids = [run.id for run in runs]
    named = state.named_run()
    if named is None and (asked := st.query_params.get("run")):
        st.warning(t("common.no_such_run", run=plain(asked[:SHOWN])))
    index = ids.index(named.id) if named is not None and named.id in ids else 0
    chosen = st.selectbox(t("common.choose_run"), ids, index=index, key=key)
    run = runs[ids.index(chosen)]
    state.name_run(run)
    return run
