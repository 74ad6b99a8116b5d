"""How long do the app's pages take on runs of 100,000 nodes, and a tick of what is live on them?

Opens every page and every tab of a REINFORCE run and of an actor-critic run without a browser, each in the wall time of
its first drawing in this process; then draws it again and times each live fragment alone, which is what a tick costs.
    OMP_NUM_THREADS=1 PYTHONPATH=tests/insight:tests/ui python experiments/benchmarks/app_pages.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st
from big_trace import critic_trace, reinforce_trace
from opened import opened

from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, Workspace
from workbench.ui.pages.run import TABS

PAGES = ("launch", "runs", "compare", "lab", "play")
WRITERS = {"magrpo": reinforce_trace, "maac": critic_trace}


class Ticks:
    """Seconds of each fragment, by its function, in the order they were drawn."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.fragment = st.fragment
        st.fragment = self  # type: ignore[assignment]

    def __call__(self, function: Callable[..., Any], run_every: float | None = None) -> Callable[..., Any]:
        def timed(*args: Any) -> None:
            begin = time.perf_counter()
            function(*args)
            name = f"{function.__module__.removeprefix('workbench.ui.')}.{function.__name__}"
            self.seconds[name].append(time.perf_counter() - begin)

        return self.fragment(timed)


def long_run(workspace: Workspace, algorithm: str, nodes: int) -> RunFolder:
    critic = {"critic": "builtin:tiny"} if algorithm == "maac" else {}
    config = {"num_turns": 2, "num_generations": 1 if critic else 4}
    data = {"name": algorithm, "task": "rendezvous", "algorithm": algorithm, "model": "builtin:tiny", "config": config,
            **critic}  # fmt: skip
    run = workspace.create_run(RunSpec.parse(data, "benchmark", workspace.root))
    WRITERS[algorithm](run.trace_file, nodes)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--ticks", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WORKBENCH_WORKSPACE"] = folder
        runs = {name: long_run(Workspace(Path(folder)), name, options.nodes) for name in WRITERS}
        chosen = ",".join(run.id for run in runs.values())
        places: list[tuple[str, dict[str, str]]] = [
            (page, {"runs": chosen} if page == "compare" else {}) for page in PAGES
        ]
        places += [("run", {"run": run.id, "tab": tab}) for run in runs.values() for tab in TABS]
        ticks = Ticks()
        for page, address in places:
            show(page, address, ticks, options.ticks)


def show(page: str, address: dict[str, str], ticks: Ticks, count: int) -> None:
    ticks.seconds.clear()
    begin = time.perf_counter()
    at = opened(page, **address)
    first = time.perf_counter() - begin
    for _ in range(count):
        at.run()
    live = [f"{name} {statistics.median(s):.3f} (most {max(s):.3f})" for name, s in ticks.seconds.items()]
    where = " ".join((page, address.get("tab", ""), address.get("run", "").split("-")[0]))
    print(f"{where}: {first:.2f} s; ticks: {', '.join(live) or 'none'}")


if __name__ == "__main__":
    main()
