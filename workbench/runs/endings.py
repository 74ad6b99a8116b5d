"""How a training process ended, in words."""

from __future__ import annotations

import signal
from pathlib import Path

from workbench.runs.supervision import KILL, SAVE, TERMINATE, StopRequest

TAIL_BYTES, TAIL_LINES, LINE_LENGTH = 16_384, 20, 500
OOM_COUNTER = Path("/proc/vmstat")
ERROR = "Error: "
"""How a training process begins the sentence that says what went wrong."""
STOPPED_BY = {
    TERMINATE: "It was told to leave at once",
    KILL: "It was killed on request, since it did not leave otherwise or was not to be waited for",
}
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)


def log_tail(file: Path) -> tuple[str, ...]:
    """The last lines of a log; () when there is none."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(line[:LINE_LENGTH] for line in text.splitlines()[-TAIL_LINES:])


def oom_kills() -> int | None:
    """How many processes the kernel has killed for want of memory since it started; None where it does not say."""
    try:
        lines = OOM_COUNTER.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    counts = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
    return counts[0] if counts else None


def stopped(level: str, run_id: str) -> str:
    """A stop that somebody asked for."""
    return f"{STOPPED_BY[level]}; what came after the last checkpoint is lost. Continue with: workbench resume {run_id}"


def stop_level(request: StopRequest, now: float, began: bool) -> str:
    """What to do by now. Before training has begun there is nothing to save, and nobody there to read the wish."""
    level = request.due(now)
    return TERMINATE if level == SAVE and not began else level


def unexpected(code: int | None, number: int | None, peak: int | None, oom: bool, tail: tuple[str, ...]) -> str:
    """Why a process is gone that nobody asked to leave, and that left no final state.

    code, number: exit code or signal, None where unknown. peak: bytes. oom: the kernel ended some process for want of
    memory meanwhile.
    """
    used = f" It had used {peak / 2**30:.1f} GiB at most." if peak else ""
    if number == signal.SIGKILL:
        who = "by the kernel, which was out of memory" if oom else (
            "by the kernel because memory ran out, or by someone's kill -9"
        )  # fmt: skip
        return f"The training process was killed (signal 9, {who}).{used}"
    if number in CRASHES:
        return f"The training process crashed in native code ({_name(number)}); the log's last lines may say where."
    if number is not None:
        return f"The training process was ended by signal {number} ({_name(number)}).{used}"
    said = next((line.removeprefix(ERROR) for line in reversed(tail) if line.startswith(ERROR)), None)
    if code and said:
        return said
    how = "without an exit code that could be read" if code is None else f"with exit code {code}"
    return f"The training process ended {how} and without a word; see the last lines of log.txt."


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
