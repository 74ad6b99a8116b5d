"""What the trace tabs read, kept until the trace changes, and the numbers of the address bar they follow.

A reader is a function of workbench.insight whose first argument is the trace file. This module draws nothing.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import streamlit as st

from workbench.config import TrainingConfig
from workbench.insight import advantages, td, tree, why
from workbench.runs.workspace import RunFolder
from workbench.trainers import algorithm

P = ParamSpec("P")
R = TypeVar("R")
Stamp = tuple[tuple[int, int], ...]
KEPT = 24  # results of one reader, for all readers of this server


def stamp(file: Path) -> Stamp:
    """Size and modification time of a trace and of its write-ahead log: what changes when somebody writes."""
    found = [path.stat() for path in (file, Path(f"{file}-wal")) if path.exists()]
    return tuple((info.st_size, info.st_mtime_ns) for info in found)


def by_trace(read: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[RunFolder, P], R]:
    """`read(path, ...)` as a function of the run, read anew only when the trace has changed."""

    @functools.wraps(read)
    def fresh(path: str, written: Stamp, *args: P.args, **kwargs: P.kwargs) -> R:
        return read(path, *args, **kwargs)

    cached = st.cache_data(max_entries=KEPT, show_spinner=False)(fresh)

    def of_run(run: RunFolder, *args: P.args, **kwargs: P.kwargs) -> R:
        path = run.trace_file
        return cached(str(path), stamp(path), *args, **kwargs)

    return of_run


list_episodes = by_trace(tree.list_episodes)
rollout = by_trace(tree.rollout)
root_of = by_trace(tree.root_of)
root_at_step = by_trace(tree.root_at_step)
node_detail = by_trace(advantages.node_detail)
histogram = by_trace(advantages.histogram)
signal_over_time = by_trace(advantages.signal_over_time)
sign_flips = by_trace(advantages.sign_flips)
explain = by_trace(why.explain)
read_td = by_trace(td.read_td)


def config_of(run: RunFolder) -> TrainingConfig:
    """The configuration the run was trained with, without loading its task. ValueError for a damaged spec."""
    spec = run.spec()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were said when the run was started
        return algorithm(spec.algorithm).config.from_dict(spec.config)


def address(name: str) -> int | None:
    """A number in the address bar, None when there is none or something else stands there."""
    text = st.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def set_address(**values: int) -> None:
    """Put numbers into the address bar, so that a refresh or a second tab shows the same."""
    for name, value in values.items():
        if address(name) != value:
            st.query_params[name] = str(value)
