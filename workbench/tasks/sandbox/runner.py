"""Candidate programs against their tests: several at once, each in processes of its own.

For every program a checker process is started (a bare interpreter: no site packages, no environment, no descriptors
but its three pipes), which forks the candidate's process; see `checker.py`, `candidate.py`, `confine.py`.

Why two processes: code that shares an interpreter with its judge can find every secret there (frames, gc, patched
builtins), so no token hides a verdict. Here the tests and the expected values never enter the candidate's process.
It is asked for one call at a time and answers with plain data, decoded without trust, so the only thing that it can
forge is its own answer, which is what is judged. The verdict leaves by a descriptor that only the checker has.

What that costs: arguments and results must be plain data (see `codec.py`); a test that passes a function or an
object of a class of its own fails with that reason, a change of an argument in place is not seen, and results that
are subclasses of plain types arrive as these.

A program that ends, hangs or crashes fails the test at hand and all later ones. Hashes and `random` in the tests are
seeded, so a verdict repeats unless it is a matter of time. Nothing here uses signals of this process: threads and
notebooks may call it. The interpreter gets `-s -S -P` and an environment of one line instead of `-I`, which would
ignore that line and leave the order of sets to chance. Not restricted: reading the standard library's folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench.tasks.sandbox import codec
from workbench.tasks.sandbox.cases import Case

LAYERS = {
    "limits": "limits on CPU time, memory, file size, open files and processes",
    "network": "a private network namespace without any route",
    "disk": "a working folder in memory, of limited size",
    "files": "Landlock: reads only the standard library, writes only in the working folder",
    "calls": "a filter that refuses processes, threads, signals, tracing and sockets",
}
"""The layers of confinement; which of them hold depends on the system, see `missing_layers`."""

FOLDER = Path(__file__).parent
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); import checker; checker.main()"
ENVIRONMENT = {"PYTHONHASHSEED": "0"}
GRACE_S = 20.0  # beyond the candidate's wall clock, for a busy machine to start the checker


class SandboxError(RuntimeError):
    """The sandbox itself does not work here; never the fault of a candidate."""


@dataclass(frozen=True)
class Limits:
    """What one program may use over all of its tests together. ValueError unless all are positive."""

    cpu_s: int = 3
    wall_s: int = 10
    memory_mb: int = 512
    file_mb: int = 4
    open_files: int = 32
    reply_mb: int = 1  # of one returned value

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) is not int or value < 1:
                raise ValueError(f"Limits: {name} must be a whole number of at least 1, got {value!r}.")


@dataclass(frozen=True)
class Program:
    """A candidate's source, the function that the tests call, the tests, and trusted code that the tests use."""

    source: str
    entry_point: str
    tests: tuple[Case, ...]
    setup: str = ""


@dataclass(frozen=True)
class Failure:
    """The first test that a program failed. expected and got are as Python writes them, "" where unknown."""

    index: int
    test: str
    expected: str
    got: str
    status: str  # failed | timeout | memory | crashed | exited
    reason: str


@dataclass(frozen=True)
class Verdict:
    """passed: one truth value per test. layers: the confinement that held, names of LAYERS."""

    passed: tuple[bool, ...]
    failure: Failure | None = None
    layers: tuple[str, ...] = ()

    @property
    def fraction(self) -> float:
        """Share of the tests passed, 0 without tests."""
        return sum(self.passed) / len(self.passed) if self.passed else 0.0

    @property
    def status(self) -> str:
        """ "ok", or what became of the first failed test."""
        return self.failure.status if self.failure else "ok"


def run_tests(
    programs: Sequence[Program],
    limits: Limits = Limits(),
    workers: int | None = None,
    layers: Sequence[str] = tuple(LAYERS),
) -> list[Verdict]:
    """One verdict per program, in order; equal programs run once. `workers` at a time, by default one per CPU core.

    layers: the layers to ask for; leave some out only to see what the others do.
    Raises SandboxError when a checker cannot be started or breaks.
    """
    distinct = list(dict.fromkeys(programs))
    if not distinct:
        return []
    with ThreadPoolExecutor(min(len(distinct), workers or os.cpu_count() or 1)) as pool:
        try:
            verdicts = dict(zip(distinct, pool.map(lambda program: _run(program, limits, layers), distinct)))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [verdicts[program] for program in programs]


def missing_layers() -> dict[str, str]:
    """The layers of confinement that this system cannot give, with what each would do. Runs one program."""
    probe = Program("def f(): return 1", "f", (Case("f() == 1", "f()", "1"),))
    held = run_tests([probe])[0].layers
    return {name: text for name, text in LAYERS.items() if name not in held}


def warn_of_missing(missing: Mapping[str, str]) -> None:
    """Say what confinement this system lacks, if anything; see `missing_layers`."""
    if missing:
        warnings.warn(
            f"Programs that models write run here without {'; '.join(missing.values())}: "
            "use a Linux kernel of 5.13 or later for all layers of the sandbox, or a machine that may be lost.",
            stacklevel=2,
        )


def _run(program: Program, limits: Limits, layers: Sequence[str]) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="workbench-sandbox-", ignore_cleanup_errors=True) as folder:
        job = asdict(program) | {"limits": asdict(limits), "layers": list(layers), "folder": folder}
        try:
            payload = codec.encode(job)
        except UnicodeEncodeError:
            return _all_failed(program, "failed", "the source is no valid text")
        return _verdict(program, *_check(payload, limits, folder))


def _check(payload: bytes, limits: Limits, folder: str) -> tuple[int | None, bytes, bytes]:
    """Exit code (None: killed on time), output and errors of one checker process, which is gone afterwards."""
    command = [sys.executable, "-s", "-S", "-P", "-c", BOOT, str(FOLDER)]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=ENVIRONMENT, start_new_session=True
        )
    except OSError as error:
        raise SandboxError(f"The sandbox cannot start {sys.executable!r}: {error}.") from error
    with process:
        try:
            output, errors = process.communicate(payload, timeout=limits.wall_s + GRACE_S)
            return process.returncode, output, errors
        except subprocess.TimeoutExpired:
            return None, b"", b""
        finally:
            if process.returncode is None:  # not waited for yet, so the number is still its own
                os.killpg(process.pid, signal.SIGKILL)  # the candidate dies with it, see confine


def _verdict(program: Program, code: int | None, output: bytes, errors: bytes) -> Verdict:
    if code is None or code == -signal.SIGXCPU:
        return _all_failed(program, "timeout", "the tests did not come to an end with what it returned")
    if code < 0:
        return _all_failed(program, "crashed", f"its checker ended with {signal.Signals(-code).name}")
    if code > 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise SandboxError(f"The sandbox's checker failed with exit code {code}: {lines[-1]}")
    report = codec.decode(output[codec.HEADER :])
    failure = report["failure"]
    if failure is not None:
        failure = Failure(**{name: failure[name] for name in Failure.__dataclass_fields__})
    return Verdict(tuple(report["passed"]), failure, tuple(report["layers"]))


def _all_failed(program: Program, status: str, reason: str) -> Verdict:
    text = program.tests[0].text if program.tests else ""
    return Verdict((False,) * len(program.tests), Failure(0, text, "", "", status, reason))
