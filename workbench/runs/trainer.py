"""The training process that a supervisor starts: `python -m workbench.runs.trainer RUN train|resume [KEY=VALUE ...]`.

What goes wrong is the last line of its output, as a sentence; the output is the run's log.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.runs.endings import ERROR
from workbench.runs.errors import sentence
from workbench.runs.execute import resume_run, train_run
from workbench.runs.preflight import preflight
from workbench.runs.supervision import RESUME
from workbench.runs.workspace import FINISHED, RunFolder

INTERRUPTED = 130  # the shell's convention for Ctrl-C


def train(run: RunFolder, mode: str, overrides: Sequence[str]) -> int:
    """Returns the process's exit code; the run's status says more."""
    try:
        if mode == RESUME:
            state = resume_run(run, overrides).state
        else:
            resolved = run.spec().resolve()
            preflight(resolved)
            state = train_run(run, resolved).state
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Exception, SystemExit) as error:  # noqa: BLE001 - said, and recorded by whoever raised it
        print(f"{ERROR}{sentence(error)}", file=sys.stderr)
        return 1
    return 0 if state == FINISHED else INTERRUPTED


if __name__ == "__main__":
    sys.exit(train(RunFolder(Path(sys.argv[1])), sys.argv[2], sys.argv[3:]))
