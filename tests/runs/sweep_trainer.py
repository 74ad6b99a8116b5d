"""A training process that only goes through the motions, for sweeps: `python -m sweep_trainer RUN MODE`.

`behaviour.json` in the workspace says by seed what a run does: wait (until it is told to stop) or fail; else it does
three items. Every start appends a line to the workspace's `starts.txt`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import filelock

from workbench.runs.endings import ERROR
from workbench.runs.monitor import StatusKeeper, StopSignals
from workbench.runs.workspace import FAILED, FINISHED, STOPPED, RunFolder


def main(run: RunFolder, mode: str) -> int:
    root, spec = run.path.parents[1], run.spec()
    with (root / "starts.txt").open("a") as file:
        file.write(f"{mode} {spec.algorithm} {spec.config['seed']}\n")
    behaviours = root / "behaviour.json"
    known = json.loads(behaviours.read_text()) if behaviours.exists() else {}
    what = known.get(str(spec.config["seed"]))
    with filelock.FileLock(run.lock_file, timeout=0), StopSignals(run.stop_file) as stop:
        keeper = StatusKeeper(run)
        keeper.begin()
        keeper.update(total=3, phase="rollout")
        if what == "fail":
            keeper.finish(FAILED, "The reward broke.")
            print(f"{ERROR}The reward broke.", file=sys.stderr)
            return 1
        keeper.note(step=1)
        while what == "wait" and not stop.requested:
            time.sleep(0.05)
        keeper.note(step=2 if what == "wait" else 3)
        keeper.finish(STOPPED if what == "wait" else FINISHED)
    return 130 if what == "wait" else 0


if __name__ == "__main__":
    sys.exit(main(RunFolder(Path(sys.argv[1])), sys.argv[2]))
