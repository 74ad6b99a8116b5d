"""Finding worker processes, and waiting for things with a deadline."""

import time

import psutil

MINUTES = 60.0
PROGRAM = "workbench.parallel.worker"


def workers(pid=None):
    """The worker processes below a process (this one by default)."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in below if _is_worker(process)]


def _is_worker(process):
    try:
        return any(PROGRAM in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def until(condition, what, seconds=5 * MINUTES):
    """The first true value of `condition()`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} seconds"
        time.sleep(0.05)
    return value


def gone(processes, seconds=20.0):
    """Wait until these have ended."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    assert not alive
