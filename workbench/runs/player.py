"""The process of a play, see workbench.runs.play_process: the trained team, then the team before training.

Both start from the same seed, so that equal models would write equal texts. One team is in memory at a time.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from workbench.runs.errors import OUT_OF_MEMORY, sentence
from workbench.runs.execute import play_run
from workbench.runs.memory_plan import memory_plan
from workbench.runs.play_process import (
    END,
    TRAINED,
    UNTRAINED,
    Episode,
    PlayedText,
    PlayedTurn,
    PlayRecord,
    PlayRequest,
    read_order,
    shortage,
    write_record,
)
from workbench.runs.processes import Identity, descendants
from workbench.runs.workspace import FINISHED, RUNNING, RunFolder, Workspace, WorkspaceError
from workbench.types import Node, RolloutTree

WATCH_SECONDS = 0.5  # how long a play may outlive its app
TOO_LARGE = "Memory ran out while playing; play fewer samples, or wait until no training runs on this device."


class Recorder:
    """Writes record.json, from the thread that plays and from the one that watches the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._record = PlayRecord(started=time.time())

    def stage(self, name: str) -> None:
        self._save(replace(self._record, stage=name))

    def trained(self, episodes: tuple[Episode, ...]) -> None:
        self._save(replace(self._record, trained=episodes))

    def untrained(self, episodes: tuple[Episode, ...]) -> None:
        self._save(replace(self._record, untrained=episodes))

    def end(self, error: str | None = None) -> None:
        """The last word; what comes after it is not recorded."""
        self._save(replace(self._record, stage=END, ended=time.time(), error=error))

    def _save(self, record: PlayRecord) -> None:
        with self._lock:
            if self._record.stage != END:
                write_record(self.folder, record)
                self._record = record


def main(folder: Path) -> int:
    """Play the folder's request to its end; the exit code of the process."""
    order = read_order(folder)
    if order is None:
        return 1
    recorder = Recorder(folder)
    threading.Thread(target=_watch, args=(recorder, order.parent, order.request.seconds), daemon=True).start()
    try:
        _play(RunFolder(folder.parents[1]), order.request, recorder)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's task may raise anything; the reader is told
        traceback.print_exc()
        said = sentence(error)
        recorder.end(TOO_LARGE if said == OUT_OF_MEMORY else said)
        return 1
    recorder.end()
    return 0


def _play(run: RunFolder, request: PlayRequest, recorder: Recorder) -> None:
    _check_memory(run, request)
    resolved = run.spec().resolve()
    threshold = resolved.config.early_termination_threshold
    if request.trained:
        recorder.stage(TRAINED)
        trees = play_run(run, request.item, request.prompt, request.samples, request.checkpoint)
        recorder.trained(episodes(trees, threshold))
        del trees
        gc.collect()  # the first team must be gone before the second one loads
    recorder.stage(UNTRAINED)
    trees = play_run(run, request.item, request.prompt, request.samples, untrained=True)
    recorder.untrained(episodes(trees, threshold))


def _check_memory(run: RunFolder, request: PlayRequest) -> None:
    restored = request.trained and (request.checkpoint is not None or run.read_status().state != FINISHED)
    others = [other for other in Workspace(run.path.parents[1]).runs() if other.read_status().state == RUNNING]
    problem = shortage(memory_plan(run.spec().resolve()), restored, [other.id for other in others])
    if problem is not None:
        raise WorkspaceError(problem)


def episodes(trees: Sequence[RolloutTree], threshold: float | None = None) -> tuple[Episode, ...]:
    """One episode per tree; threshold: above which training would have ended it."""
    return tuple(tuple(_turn(node, threshold) for node in tree.nodes) for tree in trees)


def _turn(node: Node, threshold: float | None) -> PlayedTurn:
    texts = tuple(PlayedText(c.prompt, c.text, len(c.token_ids), c.finished) for (c, *_) in node.completions)
    reward = node.rewards[0]
    enough = threshold is not None and reward is not None and reward > threshold
    return PlayedTurn(node.turn, texts, reward, tuple(row[0] for row in node.agent_rewards), enough)


def _watch(recorder: Recorder, parent: Identity, seconds: float) -> None:
    """End the process when its app is gone or its time is over: a model that generates hears no signal in time."""
    deadline = time.monotonic() + seconds
    while parent.alive() and time.monotonic() < deadline:
        time.sleep(WATCH_SECONDS)
    if parent.alive():
        recorder.end(f"Playing took longer than {seconds:.0f} seconds and was ended; play fewer samples.")
    for child in descendants(Identity.own()):
        child.send(signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
