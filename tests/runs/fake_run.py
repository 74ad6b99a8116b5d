"""A training process that only goes through the motions, started by the real supervisor: `python -m fake_run RUN MODE`.

The run's name says what it does. It imports no torch, so that a test of what surrounds training takes a second. Below
are the helpers of the tests that start it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import filelock
import psutil

from workbench.runs.endings import ERROR
from workbench.runs.errors import OUT_OF_MEMORY
from workbench.runs.launch import launch
from workbench.runs.monitor import StatusKeeper, StopSignals
from workbench.runs.processes import MARK, Identity
from workbench.runs.spec import RunSpec
from workbench.runs.supervision import read_supervision
from workbench.runs.workspace import FAILED, FINISHED, STOPPED, RunFolder, RunStatus, Workspace
from workbench.tracking.base import NullTracker, Tracker

TICK = 0.05
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def main(run: RunFolder, mode: str, *overrides: str) -> int:
    what = run.spec().name
    if what == "refused":  # before anything began, such as a preflight error
        print(f"{ERROR}There is no device 'cuda:9'.", file=sys.stderr)
        return 1
    if what == "slow start":
        time.sleep(600)
    with filelock.FileLock(run.lock_file, timeout=0), StopSignals(run.stop_file) as stop:
        keeper = StatusKeeper(run)
        keeper.begin()
        print(f"fake training, {mode} {' '.join(overrides)}", flush=True)
        trace = trace_of(run) if what == "forever" else NullTracker()
        keeper.update(total=3, phase="rollout")
        try:
            for item in BEHAVIOURS[what](run, keeper):
                trace.metrics(item, {"item": item})
                keeper.note(step=item)
                if stop.requested and what not in DEAF:
                    (run.checkpoint_folder / f"step-{item:08d}").mkdir(exist_ok=True)
                    (run.checkpoint_folder / f"step-{item:08d}" / "state.pt").write_text("weights")
                    return 130 if keeper.finish(STOPPED) else 1
        except KeyboardInterrupt:
            keeper.finish(STOPPED, "Interrupted before a checkpoint could be written.")
            return 130
        except MemoryError:
            print(f"torch.OutOfMemoryError: CUDA out of memory.\n{ERROR}{OUT_OF_MEMORY}", file=sys.stderr)
            keeper.finish(FAILED, OUT_OF_MEMORY)
            return 1
        keeper.finish(FINISHED)
        return 0


def trace_of(run: RunFolder) -> Tracker:
    from workbench.tracking.trace_writer import TraceWriter  # brings pandas, which takes a second to load

    return TraceWriter(run.trace_file)


def three(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
    yield from (1, 2, 3)


def forever(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
    item = 0
    while True:
        item += 1
        time.sleep(TICK)
        yield item


def ignoring(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield from forever(run, keeper)


def forgetful(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
    """Removes the wish to stop once it was told to leave, as a trainer does at its end, and stays."""
    signal.signal(signal.SIGTERM, lambda number, frame: run.stop_file.unlink(missing_ok=True))
    yield from forever(run, keeper)


def lingering(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
    """Says that it ended long ago, and stays."""
    yield 1
    run.write_status(replace(keeper.finish(FINISHED), ended=1.0))
    time.sleep(600)


def with_child(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
    """Also leaves a child in a session of its own that does not listen to SIGTERM."""
    subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
    yield from forever(run, keeper)


def out_of_memory(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
    yield 1
    raise MemoryError


def signals_itself(number: signal.Signals) -> Callable[[RunFolder, StatusKeeper], Iterator[int]]:
    def behaviour(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
        yield 1
        os.kill(os.getpid(), number)

    return behaviour


def leaves_quietly(run: RunFolder, keeper: StatusKeeper) -> Iterator[int]:
    yield 1
    os._exit(0)


BEHAVIOURS = {
    "three": three,
    "forever": forever,
    "hang": forever,
    "ignore": ignoring,
    "forget": forgetful,
    "linger": lingering,
    "child": with_child,
    "memory": out_of_memory,
    "segfault": signals_itself(signal.SIGSEGV),
    "killed": signals_itself(signal.SIGKILL),
    "quiet": leaves_quietly,
}
DEAF = ("hang", "ignore", "forget", "child")


# --- helpers of the tests -------------------------------------------------------------------------


def start(workspace: Workspace, what: str, **arguments: str) -> RunFolder:
    """Launch a fake run that does `what`."""
    spec = RunSpec(name=what, task="rendezvous", algorithm="magrpo", model="builtin:tiny")
    return launch(workspace, spec, trainer="fake_run", **arguments)


def until(condition: Callable[[], object], seconds: float = 300.0, say: Callable[[], object] = str) -> None:
    """Wait for something to become true; fails when it does not. say: what the failure shows besides."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {say()}"
        time.sleep(0.02)


def until_state(run: RunFolder, *states: str) -> RunStatus:
    """Wait for one of the states; fails when it does not come."""
    until(lambda: run.read_status().state in states, say=run.read_status)
    return run.read_status()


def until_training(run: RunFolder, step: int = 1) -> Identity:
    """Wait until the run has done `step` items, such as after a resume; returns its process."""
    until(lambda: (s := run.own_status()).state == "running" and s.step >= step, say=run.own_status)
    trainer = run.own_status().process()
    assert trainer is not None
    return trainer


def supervisor_of(run: RunFolder) -> Identity:
    found = read_supervision(run.supervision_file)
    assert found is not None
    return found.supervisor


def until_gone(run: RunFolder) -> None:
    """Wait until nothing of a run is left: no supervisor, no trainer, nothing they started."""
    until(lambda: not processes_of(run))
    assert read_supervision(run.supervision_file) is None


def processes_of(run: RunFolder) -> list[int]:
    """Pids of all living processes that name the run on their command line or carry its mark."""
    found = []
    for process in psutil.process_iter():
        try:
            named = str(run.path) in process.cmdline() or process.environ().get(MARK, "").startswith(f"{run.id}:")
            if named and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main(RunFolder(Path(sys.argv[1])), *sys.argv[2:]))
