"""The candidate's process: run a program, then answer calls of its entry function, plain data in and out.

Everything from `load` on shares its interpreter with hostile code and is worth nothing as a witness: it may be
patched, read and lied through. All that the other side takes from here is bytes that say what the function returned.
This module is read by a bare interpreter: standard library only.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # see codec
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from workbench.tasks.sandbox import codec, confine
else:  # run by file, next to its siblings and without the package
    import codec
    import confine

MESSAGE_LENGTH = 200  # characters of an exception's text
MODULE = "program"


def serve(requests: int, answers: int) -> None:
    """Answer every frame of `requests` with one frame on `answers`, until the checker ends this process.

    The first request is the job: source, entry_point, folder, limits, layers; its first answer lists the layers that
    hold, the second says how loading went. Every later request is (args, kwargs). Answers are ("returned", value) or
    ("raised", class name, text).
    """
    job = codec.decode(codec.read_frame(requests))
    codec.write_frame(answers, codec.encode(confine.confine(job["folder"], job["limits"], job["layers"])))
    os.environ.clear()
    program: list[Callable[..., Any]] = []
    _reply(answers, lambda: program.append(load(job["source"], job["entry_point"])))
    while True:
        args, kwargs = codec.decode(codec.read_frame(requests))
        _reply(answers, lambda: program[0](*args, **kwargs))  # noqa: B023 - called before the next round


def load(source: str, entry_point: str) -> Callable[..., Any]:
    """The function `entry_point` of a program that is run as a module of its own."""
    module = type(sys)(MODULE)
    sys.modules[MODULE] = module  # dataclasses and pickle look their module up
    exec(compile(source, f"<{MODULE}>", "exec"), vars(module))
    if entry_point not in vars(module):
        raise NameError(f"the program defines no {entry_point!r}")
    function: Callable[..., Any] = vars(module)[entry_point]
    return function


def _reply(answers: int, action: Callable[[], Any]) -> None:
    try:
        answer = codec.encode(("returned", action()))
    except BaseException as error:  # noqa: BLE001 - also SystemExit: whatever it raises is its answer
        answer = codec.encode(("raised", type(error).__name__, str(error)[:MESSAGE_LENGTH]))
    codec.write_frame(answers, answer)
