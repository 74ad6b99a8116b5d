"""The small process between the app and a training process: it waits in the queue, starts, watches, stops and buries.

    python -m workbench.runs.supervisor RUN train|resume|adopt --mark MARK [--need ...] [--set ...]

It lives in a session of its own, so that nothing that happens to the app reaches it. If it is killed itself, the
training goes on and keeps its devices' locks; whoever looks next starts a supervisor that adopts the training process
(mode adopt), so that it can be stopped again. It loads no torch, and mlflow only at the very end, if it must close a
killed run there.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import filelock

from workbench.runs import endings
from workbench.runs.environment import trainer_environment
from workbench.runs.locks import Claim, exclusive
from workbench.runs.mlflow_state import settle
from workbench.runs.monitor import RSS_UNIT
from workbench.runs.order import Order
from workbench.runs.processes import Identity, descendants, end_all, marked, signal_group, wait_for
from workbench.runs.supervision import (
    ADOPT,
    KILL,
    TERMINATE,
    Exit,
    StopRequest,
    Supervision,
    read_stop,
    read_supervision,
)
from workbench.runs.workspace import CREATED, FAILED, LOST, STOPPED, RunStatus, replace_text

POLL_SECONDS, QUEUE_SECONDS, LOOK_SECONDS = 0.2, 0.5, 2.0
EXIT_SECONDS = 120.0  # from a trainer's last word to its end; one that hangs there keeps its devices from everyone
LINGER_SECONDS = 3.0  # for what a trainer leaves behind to end by itself
SWEEPS = 2  # the second finds what was started during the first
LOCK_SECONDS = 60.0  # for whoever closes the run's earlier life in MLflow
FORCED = (TERMINATE, KILL)
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


class Supervisor:
    """One run's supervisor, from the queue to the last word."""

    def __init__(self, order: Order) -> None:
        self.order, self.run = order, order.run
        devices = tuple(need.device for need in order.needs)
        self.record = Supervision(Identity.own(), order.mode, order.since, mark=order.mark, devices=devices)
        self.trainer: Identity | None = None
        self.claim = Claim(())
        self.told = False  # by a signal
        self.done: str | None = None  # the strongest stop level carried out
        self.kin: list[Identity] = []  # an adopted trainer's descendants, which are not our own
        self.look_at = 0.0
        self.asked: StopRequest | None = None
        self.overdue = False
        self.oom_kills = endings.oom_kills()

    def supervise(self) -> None:
        """Everything; returns when nothing of the run is left running."""
        if not self._take_over():
            return
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # A handler and not SIG_IGN, which the trainer would inherit. It gets its own signals.
            signal.signal(number, self._receive)
        if self.order.mode == ADOPT:
            self._watch()
        elif self._queue():
            self._start()
            self._watch()
        self._bury()

    def _receive(self, number: int, frame: object) -> None:
        self.told = True

    def _take_over(self) -> bool:
        """Become the run's supervisor; False when it was given to another one since."""
        with exclusive(self.run.supervisor_lock):
            found = read_supervision(self.run.supervision_file)
            if found is None or found.mark != self.order.mark:
                return False
            self.trainer = found.trainer
            self._note(trainer=found.trainer, leads_group=found.leads_group, ready=True)
        return True

    def _note(self, **changes: object) -> None:
        self.record = dataclasses.replace(self.record, **changes)  # type: ignore[arg-type]
        self.run.write_supervision(self.record)

    # --- queue and start ----------------------------------------------------------------------

    def _queue(self) -> bool:
        """Wait for the devices; False when the run is to be stopped instead."""
        with self.order.place(self.record.supervisor) as queue:
            while not (self.told or self._stop_request() or not self.run.path.is_dir()):
                claim = queue.try_take()
                if claim is not None:
                    self.claim = claim
                    return True
                if queue.waits_for != self.record.waits_for:
                    print(f"Waiting for {', '.join(queue.waits_for)}.")
                    self._note(waits_for=queue.waits_for)
                time.sleep(QUEUE_SECONDS)
        return False

    def _start(self) -> None:
        with contextlib.suppress(filelock.Timeout), filelock.FileLock(self.run.lock_file, timeout=LOCK_SECONDS):
            pass
        _adopt_orphans()
        order = self.order
        slots = max((need.slots for need in order.needs if need.device == "cpu"), default=1)
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", order.trainer, str(self.run.path), order.mode, *order.overrides],
            stdin=subprocess.DEVNULL,
            process_group=0,
            pass_fds=self.claim.files,
            env=trainer_environment(order.mark, slots),
        )
        process.returncode = 0  # reaped here, not by subprocess
        self.trainer = Identity.of(process.pid)
        self._note(trainer=self.trainer, leads_group=True, waits_for=())

    # --- watching and stopping ----------------------------------------------------------------

    def _watch(self) -> None:
        while not self._trainer_ended():
            request = self._stop_request()
            if request is not None:
                self._stop(request)
            if time.monotonic() > self.look_at:
                self._look()
                self.look_at = time.monotonic() + LOOK_SECONDS
            time.sleep(POLL_SECONDS)

    def _look(self) -> None:
        """What need not be looked at every time."""
        assert self.trainer is not None
        if self.order.mode == ADOPT:
            self.kin = descendants(self.trainer)
        status = self.run.own_status()
        ended = status.ended if status.written_by(self.trainer) and status.state != LOST else None
        self.overdue = ended is not None and time.time() - ended > EXIT_SECONDS

    def _stop_request(self) -> StopRequest | None:
        if self.overdue or not self.run.path.is_dir():  # nobody else could ever stop it again
            return StopRequest(KILL)
        # The trainer removes the file when it leaves; one that then hangs is still to be stopped.
        self.asked = read_stop(self.run.stop_file) or self.asked
        return self.asked

    def _stop(self, request: StopRequest) -> None:
        """Do what is due by now, each level once."""
        assert self.trainer is not None
        began = self.run.own_status().written_by(self.trainer)
        level = endings.stop_level(request, time.time(), began)
        if level == self.done:
            return
        self.done = level
        if level == TERMINATE:
            self._signal(self.trainer, signal.SIGTERM)
        elif level == KILL:
            members = self._members()
            self._signal(self.trainer, signal.SIGKILL)
            for member in members:
                member.send(signal.SIGKILL)

    def _signal(self, trainer: Identity, number: signal.Signals) -> None:
        """To the whole group where it is the trainer's own; a run from a terminal shares its group with others."""
        if self.record.leads_group:
            signal_group(trainer, number)
        else:
            trainer.send(number)

    def _members(self) -> list[Identity]:
        """All that belongs to the trainer, itself included; also what its dead parents left."""
        own = descendants(Identity.own()) if self.order.mode != ADOPT else []
        adopted = [self.trainer, *descendants(self.trainer)] if self.trainer is not None else []
        found = [*own, *adopted, *self.kin, *marked(self.order.mark)]
        return [member for member in dict.fromkeys(found) if member is not None and member.alive()]

    def _trainer_ended(self) -> bool:
        """True once it is dead, while its zombie still keeps its numbers from being used again."""
        assert self.trainer is not None
        if self.order.mode == ADOPT:
            return not self.trainer.alive()
        while True:  # orphans of the trainer end as our children
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid == self.trainer.pid:
                return ended is not None
            os.waitpid(ended.si_pid, 0)

    # --- the end ------------------------------------------------------------------------------

    def _bury(self) -> None:
        """Leave nothing running, and the last word on disk."""
        ended = self._collect()
        if self.run.path.is_dir():
            with exclusive(self.run.supervisor_lock):
                self._write(ended)
        self.claim.release()
        with contextlib.suppress(OSError, filelock.Timeout):
            if self.run.own_status().mlflow_open:
                with filelock.FileLock(self.run.lock_file, timeout=0):
                    settle(self.run)

    def _collect(self) -> Exit:
        """Clear away what the trainer left, then reap it."""
        mode, now = self.order.mode, time.time()
        if self.trainer is None:
            return Exit(mode, now, reason=f"Stopped in the queue; start it with: workbench resume {self.run.id}")
        killed = 0
        for _ in range(SWEEPS):
            members = self._members()
            if wait_for(members, 0.0 if self.done == KILL or killed else LINGER_SECONDS):
                self._signal(self.trainer, signal.SIGKILL)
                killed += len(end_all(members, 0.0))
        code, number, peak = self._reap()
        tail = endings.log_tail(self.run.log_file)
        return Exit(mode, now, code, number, self._reason(code, number, peak, tail), peak, tail, killed)

    def _reap(self) -> tuple[int | None, int | None, int | None]:
        """(exit code, signal, bytes of the largest process), None where unknown."""
        if self.order.mode == ADOPT:
            return None, None, None
        assert self.trainer is not None
        _, status, usage = os.wait4(self.trainer.pid, 0)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if number is None else None
        return code, number, usage.ru_maxrss * RSS_UNIT

    def _reason(self, code: int | None, number: int | None, peak: int | None, tail: tuple[str, ...]) -> str | None:
        assert self.trainer is not None
        status = self.run.own_status()
        if status.written_by(self.trainer) and status.state != LOST:
            return status.error
        if self.done in FORCED:
            return endings.stopped(self.done, self.run.id)
        kills = endings.oom_kills()
        oom = kills is not None and self.oom_kills is not None and kills > self.oom_kills
        return endings.unexpected(code, number, peak, oom, tail)

    def _write(self, ended: Exit) -> None:
        found = read_supervision(self.run.supervision_file)
        if found is not None and found.mark != self.order.mark:
            return  # the run was resumed as soon as the trainer had had the last word
        replace_text(self.run.exit_file, ended.dump())
        status = self.run.own_status()
        if self._owes_a_word(status):
            state = STOPPED if self.done in FORCED or self.trainer is None else FAILED
            unsettled = status.mlflow_run is not None and not status.mlflow_settled
            last = replace(status, state=state, phase="", error=ended.reason, ended=ended.ended, mlflow_open=unsettled)
            self.run.write_status(last)
        self.run.stop_file.unlink(missing_ok=True)
        self.run.supervision_file.unlink(missing_ok=True)

    def _owes_a_word(self, status: RunStatus) -> bool:
        """True when the trainer died before it wrote a final state. A resume that never began changes nothing."""
        if self.trainer is not None and status.written_by(self.trainer):
            return status.state == LOST
        return status.state == CREATED


def _adopt_orphans() -> None:
    """Processes whose parent dies become ours, so that none escapes; only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    Supervisor(Order.parse(sys.argv[1:])).supervise()
