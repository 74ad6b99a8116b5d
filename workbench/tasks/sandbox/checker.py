"""The checker's process: starts the candidate as a child, runs the tests here, and reports the verdict.

The order matters. The child is forked before this process has read its job, so neither tests nor expected values
are in the memory that it inherits; the candidate's program goes to it by pipe, the rest of the job never does.
This module is read by a bare interpreter: standard library only. It trusts the tests, and nothing of the candidate.
"""

from __future__ import annotations

import builtins
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False  # see codec
if TYPE_CHECKING:
    from typing import Any

    from workbench.tasks.sandbox import candidate, codec, confine
else:  # run by file, next to its siblings and without the package
    import candidate
    import codec
    import confine

SIGKILL, SIGXCPU = 9, 24  # the same on Linux and macOS
SHOWN = 300  # characters of a value or message in a verdict
SEED = 0  # of `random` in the tests: the same program gets the same verdict every time
CHECKER_CPU_S = 2  # more than the candidate's, for the tests' own work


class Stop(BaseException):
    """The candidate's process is of no more use. Not an Exception, so that no test can catch it."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Child:
    """The candidate's process and the two pipes to it; every wait ends at the deadline."""

    def __init__(self) -> None:
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become_candidate(requests, answers)
        os.close(requests)
        os.close(answers)
        os.set_blocking(self.requests, False)
        self.deadline = 0.0
        self.limits: dict[str, int] = {}
        self.alive = True
        self.returned = ""  # what the last call returned, as shown to people

    def start(self, job: dict[str, Any]) -> list[str]:
        """Send the program; returns the layers of confinement that hold. The answer about loading comes next.

        RuntimeError when the process could not be prepared: nothing hostile has run until here.
        """
        self.limits = job["limits"]
        self.deadline = time.monotonic() + self.limits["wall_s"]
        sent = {key: job[key] for key in ("source", "entry_point", "folder", "limits", "layers")}
        self._send(codec.encode(sent))
        try:
            holds: list[str] = self._receive()
        except Stop as stop:
            if stop.status == "timeout":
                raise
            raise RuntimeError(f"the candidate's process could not be prepared: it {stop}") from stop
        return holds

    def answer(self) -> Any:
        """What the last request returned or raised."""
        reply = self._receive()
        if isinstance(reply, tuple) and len(reply) == 2 and reply[0] == "returned":
            return reply[1]
        if isinstance(reply, tuple) and len(reply) == 3 and reply[0] == "raised" and _are_texts(reply):
            raise _exception(reply[1], reply[2])
        raise self._lost("it wrote nonsense to its channel")

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The candidate's function, as the tests see it. Raises what it raised, or Stop."""
        self.returned = ""
        self._send(codec.encode((args, kwargs)))
        value = self.answer()
        self.returned = _short(value)
        return value

    def _send(self, payload: bytes) -> None:
        rest = memoryview(len(payload).to_bytes(codec.HEADER, "big") + payload)
        while rest:
            self._wait(self.requests, select.POLLOUT)
            try:
                rest = rest[os.write(self.requests, rest) :]
            except BrokenPipeError:
                raise self._lost("it closed its channel") from None

    def _receive(self) -> Any:
        length = int.from_bytes(self._read(codec.HEADER), "big")
        if length > self.limits["reply_mb"] * confine.MEGABYTE:
            raise self._lost(f"it returned more than {self.limits['reply_mb']} MB")
        try:
            return codec.decode(self._read(length))
        except ValueError:
            raise self._lost("it wrote nonsense to its channel") from None

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            self._wait(self.answers, select.POLLIN)
            part = os.read(self.answers, min(count, confine.MEGABYTE))
            if not part:
                raise self._lost("it closed its channel")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, event: int) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left = self.deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            self.end()
            raise Stop("timeout", f"took longer than {self.limits['wall_s']} s")

    def _lost(self, reason: str) -> Stop:
        """Why the child is of no more use: how it died, or `reason` if it was still alive."""
        status, cpu_s = self.end()
        if os.WIFEXITED(status):
            return Stop("exited", f"ended its own process with exit code {os.WEXITSTATUS(status)}")
        number = os.WTERMSIG(status)
        if number == SIGXCPU or (number == SIGKILL and cpu_s >= self.limits["cpu_s"]):
            return Stop("timeout", f"used more than {self.limits['cpu_s']} s of CPU time")
        if number == SIGKILL:  # ours, most likely: it did not die by itself
            return Stop("crashed", reason)
        import signal  # slow to import, and seldom needed

        return Stop("crashed", f"crashed with {signal.Signals(number).name}")

    def end(self) -> tuple[int, float]:
        """Kill the child and all it may have started; its wait status and seconds of CPU time.

        A process that has died by itself keeps its own status: the signal finds nothing to do.
        """
        self.alive = False
        os.kill(self.pid, SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        _kill_orphans()
        return status, usage.ru_utime + usage.ru_stime


def _become_candidate(requests: int, answers: int) -> None:
    """In the child: keep only the two channels, and never come back."""
    try:
        os.setsid()  # signals to its own group stay there
        nothing = os.open(os.devnull, os.O_RDWR)
        for source, target in ((nothing, 0), (nothing, 1), (nothing, 2), (requests, 10), (answers, 11)):
            os.dup2(source, target)
        os.closerange(3, 10)
        os.closerange(12, 256)  # this process was started with three and has opened a handful
        candidate.serve(10, 11)
    except EOFError:  # the checker is gone
        pass
    finally:
        os._exit(0)


def _kill_orphans() -> None:
    """Kill what the candidate left behind, which has become ours (see PR_SET_CHILD_SUBREAPER).

    Needed only where the filter of system calls does not hold: elsewhere it cannot start a process at all.
    """
    try:
        while True:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                for pid in file.read().split():
                    os.kill(int(pid), SIGKILL)
            os.waitpid(-1, 0)
    except (ChildProcessError, FileNotFoundError):  # none is left, or this system does not list them
        pass


def _are_texts(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, str) for value in values)


class Raised(Exception):
    """An exception of the candidate that is no builtin one."""


def _exception(name: str, text: str) -> Exception:
    """The builtin exception of that name, so that a test may expect it; never one that ends this process."""
    name, text = _line(name), _line(text)
    kind = vars(builtins).get(name)
    error: Exception
    try:
        error = kind(text) if isinstance(kind, type) and issubclass(kind, Exception) else Raised(text)
    except TypeError:  # one that is built from more than a text
        error = Raised(text)
    error.add_note(f"{name}: {text}" if text else name)
    return error


def judge(child: Child, job: dict[str, Any]) -> dict[str, Any]:
    """Run all tests of a job; the verdict as plain data."""
    verdict: dict[str, Any] = {"passed": [], "failure": None, "layers": []}
    helpers: dict[str, Any] = {}
    stopped = None
    try:
        verdict["layers"] = child.start(job)
        child.answer()
        exec(compile(job["setup"], "<setup>", "exec"), helpers)
    except (Exception, Stop) as error:  # noqa: BLE001 - whatever loading raises is part of the verdict
        stopped = _reason(error, {})
    helpers[job["entry_point"]] = child.call
    tests = {**helpers, "candidate": child.call}  # a copy: a test's variable must not shadow what a helper reads
    for index, case in enumerate(job["tests"]):
        failure = stopped or _run(case, tests, child)
        verdict["passed"].append(failure is None)
        if failure is not None and verdict["failure"] is None:
            verdict["failure"] = {"expected": "", "got": "", **failure, "index": index, "test": case["text"]}
        if failure is not None and failure["last"]:
            stopped = failure
    return verdict


def _run(case: dict[str, Any], tests: dict[str, Any], child: Child) -> dict[str, Any] | None:
    """None if the test passes, else what went wrong; "last" if nothing can be run after it."""
    step = "setup"
    shown: dict[str, Any] = {}
    try:
        exec(compile(case["setup"], "<test>", "exec"), tests)
        step = "test"
        if not case["right"]:
            exec(compile(case["left"], "<test>", "exec"), tests)
            return None
        left = eval(compile(case["left"], "<test>", "eval"), tests)
        shown = {"got" if case["left_is_got"] else "expected": _short(left)}
        right = eval(compile(case["right"], "<test>", "eval"), tests)
        shown["expected" if case["left_is_got"] else "got"] = _short(right)
        return None if left == right else {"status": "failed", "reason": "wrong answer", "last": False, **shown}
    except (Exception, Stop) as error:  # noqa: BLE001 - whatever a test raises is part of the verdict
        failure = _reason(error, {"got": child.returned})
        return {**failure, "last": failure["last"] or step == "setup"}


def _reason(error: BaseException, shown: dict[str, Any]) -> dict[str, Any]:
    if isinstance(error, Stop):
        return {"status": error.status, "reason": str(error), "last": True}
    if hasattr(error, "__notes__"):  # see _exception
        status = "memory" if isinstance(error, MemoryError) else "failed"
        return {"status": status, "reason": f"raised {error.__notes__[0]}", "last": False}
    if isinstance(error, AssertionError):
        return {"status": "failed", "reason": "the assertion does not hold", "last": False, **shown}
    reason = f"the test raised {type(error).__name__}: {_line(str(error))}"
    return {"status": "failed", "reason": reason, "last": False, **shown}


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        text = "a number of very many digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


def _line(text: str) -> str:
    """Text of the candidate's that will stand in prompts and databases: short, one line, valid Unicode."""
    return " ".join(text[:SHOWN].encode("utf-8", "backslashreplace").decode().split())


def main() -> None:
    """Read the job from standard input, write the verdict to standard output."""
    del sys.path[0]  # the folder of these files, which no program has any business in
    if confine.LINUX:
        confine.prctl(confine.PR_SET_SUBREAPER, 1)
    child = Child()
    if confine.LINUX:
        confine.prctl(confine.PR_SET_DUMPABLE, 0)  # closes /proc/PID/mem to the candidate where it shares our user
    verdict_to = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # tests may print
    with open(0, "rb") as file:
        job = codec.decode(file.read())
    seconds = job["limits"]["cpu_s"] + CHECKER_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # SIGXCPU, which tells time from an attack
    if "random" in job["setup"] or any("random" in case["setup"] + case["left"] for case in job["tests"]):
        import random

        random.seed(SEED)
    codec.write_frame(verdict_to, codec.encode(judge(child, job)))
    if child.alive:
        child.end()
