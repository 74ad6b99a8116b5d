"""What every command does with an error: one sentence on stderr and an exit code; `--debug` shows the traceback."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Annotated

import typer

INTERRUPTED = 130  # the shell's convention for Ctrl-C
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class _Console(logging.Handler):
    """Warnings of the package as one line on stderr; a failure's traceback is for the log file only."""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.exc_info:
            print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


@contextlib.contextmanager
def reporting(debug: bool, note: str = "") -> Iterator[None]:
    """Turn any error of the block into one sentence and an exit code; note: said after the sentence."""
    from workbench.runs.errors import sentence

    console = _Console(logging.WARNING)
    logger = logging.getLogger("workbench")
    logger.addHandler(console)
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (Exception, SystemExit) as error:
        if debug:
            traceback.print_exc()
        print(f"Error: {sentence(error)}{note}", file=sys.stderr)
        raise typer.Exit(1) from error
    finally:
        logger.removeHandler(console)
