"""Log, spec, files and devices of a run."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from workbench.runs.endings import log_tail
from workbench.runs.memory_plan import actual_memory, memory_plan
from workbench.runs.supervision import read_exit
from workbench.runs.workspace import RunFolder
from workbench.tasks.files import is_file_reference
from workbench.ui.live import interval
from workbench.ui.text import plain, t
from workbench.ui.widgets import download, tolerant

GIB = 2**30
MOST_FILES = 200


def log(run: RunFolder) -> None:
    """The last lines of log.txt, live, and how the last process ended."""
    st.caption(t("files.log_about"))
    st.fragment(_log, run_every=interval(run.read_status()))(run)
    ended = read_exit(run.exit_file)
    if ended is not None and ended.reason:
        st.warning(plain(ended.reason))


def _log(run: RunFolder) -> None:
    st.code("\n".join(log_tail(run.log_file)) or t("files.log_empty"), language=None, wrap_lines=True)


def spec(run: RunFolder) -> None:
    """The resolved spec, to read, download and start again."""
    st.caption(t("files.spec_about"))
    with tolerant():
        text = run.spec_file.read_text(encoding="utf-8")
        st.code(text, language="yaml")
        download(t("files.spec_download"), text.encode, f"{run.id}.yaml", "spec-download")
    st.code(f"workbench train {run.spec_file.name}", language="bash")


def files(run: RunFolder) -> None:
    """What lies in the run's folder, and the memory it took."""
    st.caption(t("files.about", folder=run.path))
    with tolerant():
        _memory(run)
        found = sorted(path for path in run.path.rglob("*") if path.is_file())
        table = pd.DataFrame(
            [(str(path.relative_to(run.path)), path.stat().st_size / 2**20) for path in found[:MOST_FILES]],
            columns=[t("files.name"), t("files.size")],
        )
        st.dataframe(table, hide_index=True, key="run-files")
        if len(found) > MOST_FILES:
            st.caption(t("common.showing", shown=MOST_FILES, total=len(found)))


def _memory(run: RunFolder) -> None:
    """Predicted beside measured."""
    used = actual_memory(run)
    predicted = _predicted(run)
    rows = [(d, _gib(predicted.get(d)), _gib(used.get(d))) for d in dict.fromkeys([*predicted, *used])]
    columns = [t("files.device"), t("files.predicted"), t("files.measured")]
    st.dataframe(pd.DataFrame(rows, columns=columns), hide_index=True, key="run-memory")


def _predicted(run: RunFolder) -> dict[str, int]:
    """Bytes per device by the memory plan; {} for a task of the user's own, whose file this process must not run."""
    spec = run.spec()
    if is_file_reference(spec.task):
        return {}
    return {plan.device: plan.needed for plan in memory_plan(spec.resolve()).devices}


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB
