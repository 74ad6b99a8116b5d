"""Real hostile programs in real processes: each is a failed test with a reason, and the next program still scores."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from workbench.tasks.sandbox import LAYERS, Limits, Program, Verdict, missing_layers, run_tests, split_tests
from workbench.tasks.sandbox.runner import SandboxError, warn_of_missing

QUICK = Limits(cpu_s=1, wall_s=10, memory_mb=256)
SQUARES = "assert f(2) == 4\nassert f(3) == 9"
needs_all_layers = pytest.mark.skipif(bool(missing_layers()), reason="this system lacks layers of the sandbox")

# name: (source, status of the first failing test, part of the reason); on a busy machine the wall clock may be the
# first of the two limits on time
ATTACKS = {
    "sleep": ("import time\ndef f(x): time.sleep(600)", "timeout", "longer than 10 s"),
    "infinite loop": ("def f(x):\n    while True: pass", "timeout", ""),
    "loop while loading": ("while True: pass", "timeout", ""),
    "deaf to the time limit": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\ndef f(x):\n    while True: pass",
        "timeout",
        "",
    ),
    "catches everything": (
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        "timeout",
        "",
    ),
    "memory bomb": ("def f(x): return len([0] * 10**9)", "memory", "raised MemoryError"),
    "memory bomb by growth": ("def f(x):\n    a = 'x'\n    while True: a += a", "memory", "raised MemoryError"),
    "fork bomb": ("import os\ndef f(x):\n    while True: os.fork()", "failed", "PermissionError"),
    "thread bomb": (
        "import threading\ndef f(x):\n    while True: threading.Thread(target=print).start()",
        "failed",
        "can't start new thread",
    ),
    "another program": ("import os\ndef f(x): os.execv('/bin/true', ['true'])", "failed", "PermissionError"),
    "subprocess": ("import subprocess\ndef f(x): subprocess.run(['true'])", "failed", "PermissionError"),
    "huge result": ("def f(x): return 'x' * 10**7", "crashed", "returned more than 1 MB"),
    "endless output": ("def f(x):\n    while True: print('x' * 10**6)", "timeout", ""),
    "sys.exit": ("import sys\ndef f(x): sys.exit(0)", "failed", "raised SystemExit: 0"),
    "exit while loading": ("raise SystemExit(0)", "failed", "raised SystemExit: 0"),
    "os._exit": ("import os\ndef f(x): os._exit(0)", "exited", "exit code 0"),
    "os._exit while loading": ("import os\nos._exit(7)", "exited", "exit code 7"),
    "keyboard interrupt": ("def f(x): raise KeyboardInterrupt", "failed", "raised KeyboardInterrupt"),
    "segmentation fault": ("import ctypes\ndef f(x): ctypes.string_at(0)", "crashed", "SIGSEGV"),
    "abort": ("import os\ndef f(x): os.abort()", "crashed", "crashed with SIG"),
    "recursion": ("def f(x): return f(x)", "failed", "raised RecursionError"),
    "kill the parent": ("import os\ndef f(x): os.kill(os.getppid(), 9)", "failed", "PermissionError"),
    "kill its group": ("import os\ndef f(x): os.killpg(0, 9)", "failed", "PermissionError"),
    "limit the parent": (
        "import os, resource\ndef f(x): resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
        "failed",
        "PermissionError",
    ),
    "raise a limit": (
        "import resource\ndef f(x): resource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
        "failed",
        "not allowed to raise maximum limit",
    ),
    "debugger": (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def f(x):\n    if libc.ptrace(16, os.getppid(), 0, 0): raise OSError(ctypes.get_errno(), 'no')\n"
        "    return x * x",
        "failed",
        "PermissionError",
    ),
    "write to the parent's memory": (
        "import os\ndef f(x): open(f'/proc/{os.getppid()}/mem', 'r+b')",
        "failed",
        "PermissionError",
    ),
    "read its environment": (
        "import os\ndef f(x): return open(f'/proc/{os.getppid()}/environ').read()",
        "failed",
        "PermissionError",
    ),
    "file too large": (
        "def f(x):\n    with open('a', 'wb') as out:\n        for _ in range(100): out.write(b'x' * 10**6)",
        "failed",
        "File too large",
    ),
    "too many open files": (
        "def f(x):\n    return len([open('/dev/null') for _ in range(100)])",
        "failed",
        "Too many open files",
    ),
    "fill the disk": (
        "def f(x):\n    for i in range(100):\n        with open(f'{i}', 'wb') as out: out.write(b'x' * 10**6)",
        "failed",
        "No space left",
    ),
    "unprintable message": (
        "def f(x): raise ValueError('\\ud800' * 3 + '\\nz' + 'y' * 10**7)",
        "failed",
        "raised ValueError: \\ud800\\ud800\\ud800 zyyy",
    ),
    # --- attempts at the verdict
    "print a verdict": ("def f(x):\n    print('passed', True, flush=True)\n    return 5", "failed", "wrong answer"),
    "write to all descriptors": (
        "import os\ndef f(x):\n    for d in range(256):\n        try: os.write(d, b'm1;s6;passedl2;tt' * 9)\n"
        "        except OSError: pass\n    return 4",
        "crashed",
        "more than 1 MB",
    ),
    "equal to everything": (
        "class A:\n    def __eq__(self, other): return True\ndef f(x): return A()",
        "failed",
        "raised TypeError: a value of type A",
    ),
    "a number equal to everything": (
        "class A(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef f(x): return A(5)",
        "failed",
        "wrong answer",
    ),
    "patched builtins": (
        "import builtins, sys\nclass Never(BaseException): pass\nbuiltins.AssertionError = Never\n"
        "builtins.compile = builtins.exec = builtins.eval = lambda *a: None\nbuiltins.repr = lambda v: '4'\n"
        "def f(x): return 5",
        "failed",
        "wrong answer",
    ),
    "patched harness": (
        "import sys\nfor module in list(sys.modules.values()):\n"
        "    for name in ('judge', '_run', 'split_tests'):\n"
        "        if hasattr(module, name): setattr(module, name, lambda *a: {'passed': [True, True]})\n"
        "def f(x): return 5",
        "failed",
        "wrong answer",
    ),
    "garbage on the channel": (
        "import os\ndef f(x): os.write(11, bytes([0, 0, 0, 3]) + b'zzz')",
        "crashed",
        "nonsense",
    ),
    "a nested bomb": (
        "import os\ndef f(x):\n    data = b'l1;' * 100000\n    os.write(11, len(data).to_bytes(4, 'big') + data)",
        "crashed",
        "nonsense",
    ),
    "a huge frame": ("import os\ndef f(x): os.write(11, b'\\xff' * 4)", "crashed", "more than 1 MB"),
    "no exception type": (
        "import os\ndef f(x):\n    data = b'u3;s6;raiseds13;GeneratorExits0;'\n"
        "    os.write(11, len(data).to_bytes(4, 'big') + data)",
        "failed",
        "raised GeneratorExit",
    ),
    "closes the channel": (
        "import os, time\ndef f(x):\n    os.close(11)\n    time.sleep(600)",
        "crashed",
        "closed its channel",
    ),
    "answers ahead": (  # one answer for two calls: what it said before it was asked is taken, and is wrong
        "import os\nn = 0\ndef f(x):\n    global n\n    n += 1\n    data = b'u2;s8;returnedi4;'\n"
        "    if n == 1: os.write(11, len(data).to_bytes(4, 'big') + data)\n    return 4",
        "failed",
        "wrong answer",
    ),
}  # fmt: skip


def program(source: str, tests: str = SQUARES) -> Program:
    return Program(source, "f", split_tests(tests, "f"))


def honest(number: int) -> Program:
    return program(f"def f(x): return x * x  # {number}")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All working folders of this file's programs are made in here."""
    path = tmp_path_factory.mktemp("sandboxes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(path))
        yield path


def left_behind(folder: Path) -> list[str]:
    """Processes that came from here and are still alive, and working folders that are still there."""
    found = [str(process) for process in psutil.Process().children(recursive=True)]
    for pid in psutil.pids():
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)):
                found.append(f"process {pid}")
        except OSError:  # ended since it was listed
            pass
    return found + [str(path) for path in folder.iterdir()]


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[str, tuple[Verdict, Verdict]]:
    """The verdict on each attack, and on an honest program that waited its turn behind it."""
    programs = [each for n, (source, *_) in enumerate(ATTACKS.values()) for each in (program(source), honest(n))]
    verdicts = run_tests(programs, QUICK, workers=3)
    return dict(zip(ATTACKS, zip(verdicts[::2], verdicts[1::2])))


@needs_all_layers
@pytest.mark.parametrize("name", list(ATTACKS))
def test_an_attack_is_a_failed_test_and_the_next_program_scores(
    name: str, outcomes: dict[str, tuple[Verdict, Verdict]]
) -> None:
    _, status, reason = ATTACKS[name]
    verdict, following = outcomes[name]
    assert verdict.failure is not None
    assert (verdict.status, reason in verdict.failure.reason) == (status, True), verdict
    assert len(verdict.passed) == 2 and not all(verdict.passed)
    assert following == Verdict((True, True), None, tuple(LAYERS))


@needs_all_layers
def test_nothing_is_left_of_the_attacks(outcomes: dict[str, tuple[Verdict, Verdict]], folder: Path) -> None:
    assert left_behind(folder) == []


@needs_all_layers
def test_files_outside_stay_as_they_are(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("secret")
    kept.chmod(0o640)
    actions = [
        f"open({str(kept)!r}).read()",
        f"open({str(kept)!r}, 'w')",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"__import__('os').remove({str(kept)!r})",
        f"__import__('os').truncate({str(kept)!r}, 0)",
        f"__import__('os').chmod({str(kept)!r}, 0)",
        f"__import__('os').rename({str(kept)!r}, 'here')",
        f"__import__('os').link({str(kept)!r}, 'here')",
        f"__import__('os').mkdir({str(tmp_path / 'folder')!r})",
        f"__import__('os').symlink('x', {str(tmp_path / 'link')!r})",
        f"__import__('os').utime({str(kept)!r}, (0, 0))",
        "__import__('os').listdir('/home')",
    ]
    before = (kept.stat().st_mode, kept.stat().st_mtime_ns, kept.stat().st_nlink)
    for verdict in run_tests([program(f"def f(x):\n    {action}\n    return x * x") for action in actions], QUICK):
        assert verdict.failure is not None
        assert any(word in verdict.failure.reason for word in ("PermissionError", "OSError")), verdict
    assert (kept.stat().st_mode, kept.stat().st_mtime_ns, kept.stat().st_nlink) == before
    assert kept.read_text() == "secret"
    assert list(tmp_path.iterdir()) == [kept]


@needs_all_layers
def test_the_working_folder_can_be_used_and_the_library_read() -> None:
    source = (
        "import collections, decimal, hashlib, json, random, re, sqlite3, zoneinfo\nfrom pathlib import Path\n"
        "def f(x):\n    Path('a').write_text('12')\n    return x * x if Path('a').read_text() == '12' else None"
    )
    assert run_tests([program(source)])[0].status == "ok"


@pytest.mark.parametrize("layer", ["network", "calls"])
def test_each_of_two_layers_keeps_the_network_out(layer: str) -> None:
    if layer in missing_layers():
        pytest.skip(f"this system has no layer {layer}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # it can be reached from here
            server.accept()[0].close()
        source = f"import socket\ndef f(x):\n    socket.create_connection(('127.0.0.1', {port}), 3)\n    return x * x"
        [verdict] = run_tests([program(source)], QUICK, layers=("limits", layer))
        assert verdict.failure is not None and "raised" in verdict.failure.reason
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


# The program looks everywhere in its process for the expected value, whose pattern it knows.
SEARCH = r"""
import gc, os, re, sys
PATTERN = re.compile(rb"never-in-the-candidate-\d{4}")
def found():
    for thing in [*gc.get_objects(), *sys.modules.values(), sys._getframe(), *sys._current_frames().values()]:
        for held in [thing, *gc.get_referents(thing)]:
            if isinstance(held, (str, bytes)):
                yield held if isinstance(held, bytes) else held.encode("utf-8", "replace")
    for pid in ("self", os.getppid()):
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
                for line in maps:
                    low, high = (int(end, 16) for end in line.split()[0].split("-"))
                    try:
                        memory.seek(low)
                        yield memory.read(high - low)
                    except (OSError, OverflowError, ValueError):
                        pass
        except OSError:
            pass
def f(x):
    for data in found():
        match = PATTERN.search(data)
        if match:
            return match[0].decode()
    return "searched"
"""


@pytest.mark.parametrize("layers", [(), ("limits",), tuple(LAYERS)])
def test_expected_values_never_enter_the_process(layers: tuple[str, ...]) -> None:
    """Also without any confinement: it is not the layers that keep the secret."""
    tests = "assert f(0) == 'never-in-the-candidate-' + '7391'\nassert f(0) == 'never-in-the-candidate-7391'"
    [verdict] = run_tests([program(SEARCH, tests)], Limits(memory_mb=2048, cpu_s=20, wall_s=60), layers=layers)
    assert verdict.passed == (False, False)
    assert verdict.failure is not None and verdict.failure.got == "'searched'"


def test_the_search_would_find_a_value_that_is_there() -> None:
    source = SEARCH + "\nHELD = bytearray(b'never-in-the-candidate-' + str(7000 + 391).encode())\n"
    [verdict] = run_tests([program(source, "assert f(0) == 'never-in-the-candidate-7391'")], layers=("limits",))
    assert verdict.status == "ok"


def test_without_the_filter_the_checker_can_be_killed_and_the_next_program_scores(folder: Path) -> None:
    attack = program("import os, time\ndef f(x):\n    os.kill(os.getppid(), 9)\n    time.sleep(600)")
    verdicts = run_tests([attack, honest(0)], QUICK, workers=1, layers=("limits",))
    assert [verdict.status for verdict in verdicts] == ["crashed", "ok"]
    assert verdicts[0].passed == (False, False)
    wait_until_nothing_is_left(folder)


def test_without_the_filter_a_process_in_a_session_of_its_own_is_killed(folder: Path) -> None:
    source = (
        "import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            time.sleep(600)\n        os._exit(0)\n    return x * x"
    )
    [verdict] = run_tests([program(source)], QUICK, layers=())
    assert verdict.status == "ok"  # it could start one, so this test tests something
    wait_until_nothing_is_left(folder)


def wait_until_nothing_is_left(folder: Path) -> None:
    deadline = time.monotonic() + 20
    while left_behind(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left_behind(folder) == []


def test_the_limit_on_cpu_time_is_named() -> None:
    [verdict] = run_tests([program("def f(x):\n    while True: pass")], Limits(cpu_s=1, wall_s=120))
    assert verdict.failure is not None
    assert (verdict.status, verdict.failure.reason) == ("timeout", "used more than 1 s of CPU time")


def test_a_result_that_keeps_the_tests_busy_is_a_timeout() -> None:
    busy = program("def f(x): return 10**15", "assert sum(1 for _ in range(f(2))) == 4")
    verdicts = run_tests([busy, honest(5)], QUICK)
    assert [verdict.status for verdict in verdicts] == ["timeout", "ok"]


def test_tests_that_hang_are_killed_with_the_candidate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("workbench.tasks.sandbox.runner.GRACE_S", 1.0)
    hanging = program("def f(x): return x", "import time\nassert f(2) == 2\nassert time.sleep(600) == f(3)")
    [verdict] = run_tests([hanging], Limits(wall_s=1))
    assert (verdict.status, verdict.passed) == ("timeout", (False, False))
    wait_until_nothing_is_left(folder)


def test_what_a_program_did_right_before_it_broke_counts() -> None:
    source = "import os\ndef f(x):\n    if x == 3: os._exit(0)\n    return x * x"
    [verdict] = run_tests([program(source, SQUARES + "\nassert f(4) == 16")])
    assert verdict.passed == (True, False, False)  # the last is not run: the process is gone
    assert verdict.fraction == pytest.approx(1 / 3)
    assert verdict.failure is not None
    assert (verdict.failure.index, verdict.failure.test) == (1, "assert f(3) == 9")


def test_the_first_failure_says_what_was_expected_and_what_came() -> None:
    [verdict] = run_tests([program("def f(x): return [x]", "assert f(1) == [1]\nassert (2, 'a') == f((2,))")])
    assert verdict.failure is not None
    assert (verdict.failure.expected, verdict.failure.got) == ("(2, 'a')", "[(2,)]")


def test_a_call_that_raises_is_one_failed_test() -> None:
    [verdict] = run_tests(
        [program("def f(x): return 4 // (x - 1) if x != 3 else [][0]", "assert f(2) == 4\n" + SQUARES)]
    )
    assert verdict.passed == (True, True, False)
    assert verdict.failure is not None and verdict.failure.reason == "raised IndexError: list index out of range"


def test_a_test_may_expect_an_exception() -> None:
    tests = (
        "def check(candidate):\n    try:\n        candidate(-1)\n        assert False\n"
        "    except ValueError:\n        pass"
    )
    right, silent = "def f(x): raise ValueError('no')", "def f(x): return 1"
    verdicts = run_tests([program(right, tests), program(silent, tests)])
    assert [verdict.passed for verdict in verdicts] == [(True,), (False,)]


def test_equal_programs_run_once_and_verdicts_keep_their_order() -> None:
    loop = program("def f(x):\n    while True: pass")
    begin = time.monotonic()
    verdicts = run_tests([loop, honest(1)] * 10, Limits(cpu_s=2, wall_s=20), workers=1)
    assert [verdict.status for verdict in verdicts] == ["timeout", "ok"] * 10
    assert time.monotonic() - begin < 18  # ten runs of 2 s of CPU time would take longer


def test_it_works_from_a_thread() -> None:
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.extend(run_tests([honest(2), honest(3)])))
    thread.start()
    thread.join(timeout=60)
    assert [verdict.status for verdict in verdicts] == ["ok", "ok"]


def test_a_verdict_repeats() -> None:
    source = "def f(x): return list({'a', 'b', 'c', 'd', 'e', 'f', 'g'})"  # in an order that depends on hashes
    tests = "import random\nassert f(random.random()) == [random.random()]"
    first, second = (run_tests([program(source + " " * number, tests)])[0] for number in (0, 1))
    assert first == second


def test_nothing_is_inherited(tmp_path: Path) -> None:
    os.environ["WORKBENCH_TEST_SECRET"] = "x"
    held = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        source = (
            "import os\ndef alive(d):\n    try: os.fstat(d)\n    except OSError: return False\n    return True\n"
            "def f(x): return [d for d in range(64) if alive(d)], dict(os.environ)"
        )
        [verdict] = run_tests([program(source, "assert f(0) == 1")])
    finally:
        os.close(held)
        del os.environ["WORKBENCH_TEST_SECRET"]
    assert verdict.failure is not None
    assert verdict.failure.got == "([0, 1, 2, 10, 11], {})"  # 0-2 are /dev/null, 10 and 11 the channel


def test_a_program_that_is_no_text_fails() -> None:
    assert run_tests([program("def f(x): return '\ud800'")])[0].status == "failed"


def test_no_programs() -> None:
    assert run_tests([]) == []


def test_bad_limits_are_named() -> None:
    with pytest.raises(ValueError, match="cpu_s must be a whole number of at least 1, got 0"):
        Limits(cpu_s=0)


def test_a_sandbox_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(SandboxError, match="cannot start '/no/such/python'"):
        run_tests([honest(4)])


def test_missing_layers_are_reported() -> None:
    with pytest.warns(UserWarning, match="run here without a filter that refuses processes"):
        warn_of_missing({"calls": LAYERS["calls"]})
