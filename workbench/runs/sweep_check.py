"""What `workbench.runs.preflight` finds in any run of a sweep, in a process of its own: it needs torch, which the
process that directs a sweep for hours should not hold.

    python -m workbench.runs.sweep_check SWEEP.yaml
"""

from __future__ import annotations

import os
import subprocess
import sys

from workbench.runs.endings import ERROR
from workbench.runs.environment import GPU_ORDER, QUIET
from workbench.runs.errors import sentence
from workbench.runs.preflight import preflight
from workbench.runs.spec import SpecError
from workbench.runs.sweep_spec import Sweep, load_sweep


def check(sweep: Sweep) -> None:
    """Raises SpecError with one sentence that names the run."""
    command = [sys.executable, "-m", "workbench.runs.sweep_check", str(sweep.file)]
    environment = {**QUIET, **GPU_ORDER, **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith(ERROR)]
        reason = said[-1].removeprefix(ERROR) if said else f"its check ended with exit code {done.returncode}."
        raise SpecError(f"The sweep cannot be started: {reason}")


def main(file: str) -> int:
    """The process's exit code; the last line on stderr says what is wrong."""
    for member in load_sweep(file).members:
        try:
            preflight(member.resolved)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - said to whoever started this process
            print(f"{ERROR}run {member.key}: {sentence(error)}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
