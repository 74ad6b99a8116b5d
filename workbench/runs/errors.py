"""Any error as one sentence that names the thing and the remedy."""

from __future__ import annotations

import errno
import os
import sysconfig
import traceback
from pathlib import Path

PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
LIBRARY = tuple({f"{path}{os.sep}" for path in (sysconfig.get_path("stdlib"), os.path.dirname(os.__file__))})
"""Where Python's own modules are."""
DELIBERATE = (ValueError, OSError, RuntimeError, ArithmeticError)
"""What this package raises on purpose; any other type that starts here is a mistake of ours and keeps its name."""

OUT_OF_MEMORY = (
    "Out of memory: lower config.micro_batch_size or set config.gradient_checkpointing=true (same result, less "
    "memory), or lower config.generation_batch_size (other texts are sampled, just as good), config.num_generations "
    "or config.max_new_tokens."
)


def sentence(error: BaseException) -> str:
    """One line for people; the traceback is for the log.

    Errors that this package raises on purpose are sentences already. Errors of other code, such as a user's reward, get
    their type and the line of the file they come from.
    """
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # the latter is torch's
        return OUT_OF_MEMORY
    if "No space left on device" in text:  # also from writers that do not raise OSError
        return _disk_full(error)
    if isinstance(error, OSError) and error.errno is not None:
        return _os_sentence(error)
    if text and isinstance(error, DELIBERATE) and _raised_here(error):
        return text
    described = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{described.rstrip('.')}{_place(error)}."


def _disk_full(error: BaseException) -> str:
    file = getattr(error, "filename", None)
    target = f" while writing {file}" if file else ""
    return f"The disk is full{target}; free some space, then try again (workbench resume continues a run)."


def _os_sentence(error: OSError) -> str:
    target = error.filename2 or error.filename or "a file"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"No permission for {target} ({error.strerror}); make it writable, or choose another --workspace folder."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{target} is in the way or is not a folder ({error.strerror}); choose another --workspace folder."
    return f"Cannot use {target}: {error.strerror}."


def _raised_here(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return not frames or frames[-1].filename.startswith(PACKAGE)


def _place(error: BaseException) -> str:
    """Where it happened: the last line of the user's own code, else the last outside Python's library, if any."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _in_library(f.filename)]
    own = [f for f in frames if not f.filename.startswith(PACKAGE) and not _installed(f.filename)]
    chosen = own[-1:] or frames[-1:]
    return f" ({chosen[0].filename}, line {chosen[0].lineno}, in {chosen[0].name})" if chosen else ""


def _installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file


def _in_library(file: str) -> bool:
    """Python's own modules, of which concurrent.futures raises again what a thread of ours raised."""
    return file.startswith("<") or (file.startswith(LIBRARY) and not _installed(file))
