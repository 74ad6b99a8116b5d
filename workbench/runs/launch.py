"""Starting, stopping, resuming and finding again: what the app and the command line do with runs from outside.

Every run gets a supervisor process (see workbench.runs.supervisor), which outlives whoever started it. Nothing here
waits for a run, imports torch or mlflow, or keeps a process in memory that the disk does not know of.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.config import TrainingConfig
from workbench.runs import endings, mlflow_state
from workbench.runs.execute import check_overrides
from workbench.runs.hardware import Hardware, canonical, probe
from workbench.runs.locks import Need, exclusive, lock_folder
from workbench.runs.order import TRAINER, Order
from workbench.runs.processes import MARK, Identity, end_all, marked
from workbench.runs.spec import RunSpec
from workbench.runs.supervision import (
    ADOPT,
    LEVELS,
    RESUME,
    SAVE,
    TRAIN,
    Exit,
    Patience,
    StopRequest,
    Supervision,
    read_stop,
    read_supervision,
)
from workbench.runs.workspace import (
    ACTIVE,
    CREATED,
    FAILED,
    FINISHED,
    RunFolder,
    Workspace,
    WorkspaceError,
    replace_text,
)

CPU_SLOTS_VARIABLE = "WORKBENCH_CPU_SLOTS"
"""Environment variable: how many runs may train on the CPU at once. 1 by default, because one run already uses all
cores, and two that fight for them are each slower than half as fast; the cores are shared out when there are more."""
DEVICE_FIELDS = ("agent_devices", "critic_devices", "reference_devices")
TOKEN_SECONDS = 86_400.0  # how long a token is remembered; a double click takes less


def launch(workspace: Workspace, spec: RunSpec, token: str | None = None, trainer: str = TRAINER) -> RunFolder:
    """Queue a new run and return its folder; its state is queued until its devices are free.

    token: two launches with one token are one run, such as the two halves of a double click. trainer: the module that
    trains. Raises ValueError with one sentence for a bad spec, before anything exists, and OSError when the disk
    refuses. What needs torch to be checked is checked by the training process, and is the run's error then.
    """
    resolved = spec.resolve()
    needs = device_needs(resolved.config)
    workspace.runs_folder.mkdir(parents=True, exist_ok=True)
    locks = lock_folder(workspace.root)
    locks.mkdir(parents=True, exist_ok=True)
    with exclusive(locks / "launch.lock"):
        known = None if token is None else _remembered(workspace, token)
        if known is not None:
            return known
        run = workspace.create_run(resolved.spec)
        if token is not None:
            _token_file(workspace, token).write_text(run.id, encoding="utf-8")
    with exclusive(run.supervisor_lock):
        _give(Order(run, TRAIN, _mark(run, None), time.time(), needs, trainer=trainer))
    return run


def resume(run: RunFolder, overrides: Sequence[str] = (), token: str | None = None, trainer: str = TRAINER) -> None:
    """Queue a stopped, failed, lost or finished run to go on from its newest checkpoint, or from the beginning when it
    has none. overrides, token, trainer: see `execute.resume_run` and `launch`. Raises ValueError with one sentence.
    """
    check_overrides(overrides)
    resolved = run.spec().with_overrides(overrides).resolve()
    needs = device_needs(resolved.config)
    mark = _mark(run, token)
    with exclusive(run.supervisor_lock):
        found, state = read_supervision(run.supervision_file), run.read_status().state
        if state in ACTIVE:
            if token is not None and found is not None and found.mark == mark:
                return
            raise WorkspaceError(f"Run {run.id} is {state} already; stop it first, or wait for its end.")
        if state == FINISHED and not overrides:
            raise WorkspaceError(f"Run {run.id} is finished; to train longer, raise config.num_train_epochs.")
        if found is not None and not found.supervisor.alive():
            end_all(marked(found.mark), 0.0)
        run.stop_file.unlink(missing_ok=True)
        _give(Order(run, RESUME, mark, time.time(), needs, tuple(overrides), trainer))


def clone(run: RunFolder) -> dict[str, Any]:
    """The run's spec as plain data to edit and launch as another run; SpecError when it is damaged."""
    return run.spec().data()


def stop(run: RunFolder, level: str = SAVE, patience: Patience = Patience()) -> None:  # noqa: B008 - it is frozen
    """Ask for a run to be stopped and return at once; the run's status says when it has.

    level: save (finish the present item, write a checkpoint and leave), terminate (leave now), kill. Each turns into
    the next one when its patience is over. A wish can be made stronger, never weaker. Raises WorkspaceError when
    nobody is working on the run.
    """
    if level not in LEVELS:
        raise WorkspaceError(f"The level of a stop is one of {', '.join(LEVELS)}, got {level!r}.")
    state = run.read_status().state
    if state not in ACTIVE:
        raise WorkspaceError(f"Run {run.id} is {state}; there is nothing to stop.")
    asked = read_stop(run.stop_file)
    if asked is None or LEVELS.index(asked.level) < LEVELS.index(level):
        replace_text(run.stop_file, StopRequest(level, time.time(), patience).dump())
    adopt(run)


def adopt(run: RunFolder) -> bool:
    """Give a training process that has no supervisor, or lost it, a new one. False when there is nothing to adopt."""
    with exclusive(run.supervisor_lock):
        found = read_supervision(run.supervision_file)
        trainer = _orphan(run, found)
        if trainer is None:
            return False
        mark = found.mark if found is not None else _mark(run, None)
        ours = found is not None and found.leads_group and found.trainer == trainer
        _give(Order(run, ADOPT, mark, time.time()), trainer, ours)
        return True


def _orphan(run: RunFolder, found: Supervision | None) -> Identity | None:
    """The living training process of a run whose supervisor is not alive."""
    if found is not None and found.supervisor.alive():
        return None
    known = [found.trainer if found is not None else None, run.own_status().process()]
    return next((trainer for trainer in known if trainer is not None and trainer.alive()), None)


@dataclass(frozen=True)
class Reconciled:
    """What `reconcile` found: runs whose training it gave a new supervisor, and runs whose last processes are gone."""

    adopted: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def reconcile(workspace: Workspace) -> Reconciled:
    """Bring the records into line with what is really there; the app does this when it starts.

    Training without a supervisor gets one; what a dead run left running is ended; the rest of the work is the readers',
    who see runs whose processes are gone as lost. MLflow is told by a process of its own.
    """
    adopted, lost = [], []
    for run in workspace.runs():
        found = read_supervision(run.supervision_file)
        if found is None or found.supervisor.alive():
            continue
        with contextlib.suppress(OSError):  # one that cannot be written, or is gone by now, must not hide the others
            if adopt(run):
                adopted.append(run.id)
            elif _clear(run):
                lost.append(run.id)
    if mlflow_state.unsettled(workspace):
        _reap(_spawn([sys.executable, "-m", "workbench.runs.mlflow_state", str(workspace.root)], subprocess.DEVNULL))
    return Reconciled(tuple(adopted), tuple(lost))


def _clear(run: RunFolder) -> bool:
    """End what a run left whose supervisor and trainer are both gone; False when it turns out to be in hand."""
    with exclusive(run.supervisor_lock):
        found = read_supervision(run.supervision_file)
        if found is None or found.supervisor.alive() or (found.trainer is not None and found.trainer.alive()):
            return False
        end_all(marked(found.mark), 0.0)
        run.stop_file.unlink(missing_ok=True)
        if run.own_status().state == CREATED:
            run.write_supervision(replace(found, trainer=None))  # from it readers know that the run is lost
        else:
            run.supervision_file.unlink(missing_ok=True)
        return True


def device_needs(config: TrainingConfig, machine: Hardware | None = None) -> tuple[Need, ...]:
    """The devices a run must have for itself, from its configuration; what it leaves open is the first GPU, else the
    CPU. machine: this one, looked at now, unless given."""
    machine = machine or probe()
    given = [dataclasses.asdict(config).get(field) for field in DEVICE_FIELDS]
    names = [name for value in given for name in ([value] if isinstance(value, str) else value or [])]
    names = names or [machine.default_device()]
    return tuple(_need(name, machine) for name in dict.fromkeys(map(canonical, names)))


def _need(device: str, machine: Hardware) -> Need:
    if device == machine.cpu.device:
        return Need(device, "cpu", cpu_slots())
    # By its UUID, since a number means another GPU under another CUDA_VISIBLE_DEVICES.
    name = next((gpu.uuid for gpu in machine.gpus if gpu.device == device), device)
    return Need(device, re.sub(r"[^\w-]", "-", name))


def cpu_slots() -> int:
    """How many runs may use the CPU at once; WorkspaceError for a setting that is not a number."""
    text = os.environ.get(CPU_SLOTS_VARIABLE, "1")
    if not text.isdigit() or int(text) < 1:
        raise WorkspaceError(f"{CPU_SLOTS_VARIABLE} must be a whole number of at least 1, got {text!r}.")
    return int(text)


def _give(order: Order, trainer: Identity | None = None, leads_group: bool = False) -> None:
    """Start the supervisor. For the holder of the run's supervisor_lock, for which the new process waits."""
    run = order.run
    record = Supervision(Identity.own(), order.mode, order.since, trainer, order.mark, leads_group=leads_group)
    run.write_supervision(record)
    try:
        with run.log_file.open("ab") as log:
            process = _spawn(order.command(), log.fileno())
    except BaseException:
        run.supervision_file.unlink(missing_ok=True)
        raise
    # In its own name at once, so that nothing depends on how long this process lives.
    supervisor = Identity.of(process.pid)
    if order.needs:
        order.place(supervisor).join()
    run.write_supervision(replace(record, supervisor=supervisor))
    _reap(process, lambda code: _stillborn(order, supervisor, code))


def _spawn(command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
    """Start a process that survives this one and all that happens to its terminal."""
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    return subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment
    )


def _reap(process: subprocess.Popen[bytes], ended: Callable[[int], None] = lambda code: None) -> None:
    """Let a thread wait for the process, so that it never stays a zombie, and call `ended` with its exit code."""
    threading.Thread(target=lambda: ended(process.wait()), name=f"reaper of {process.pid}", daemon=True).start()


def _stillborn(order: Order, supervisor: Identity, code: int) -> None:
    """Say what happened when a supervisor ended before it took its run over."""
    run = order.run
    with contextlib.suppress(OSError), exclusive(run.supervisor_lock):
        found = read_supervision(run.supervision_file)
        if found is None or found.supervisor != supervisor or found.ready:
            return
        reason = f"The run's supervisor could not start (exit code {code}); see the last lines of log.txt."
        ended = Exit(order.mode, time.time(), code, reason=reason, log_tail=endings.log_tail(run.log_file))
        replace_text(run.exit_file, ended.dump())
        status = run.own_status()
        if status.state == CREATED:
            run.write_status(replace(status, state=FAILED, error=reason, ended=time.time()))
        order.place(supervisor).leave()
        run.supervision_file.unlink(missing_ok=True)


def _mark(run: RunFolder, token: str | None) -> str:
    """Names one start of a run: a new one each time, the same one for the same token."""
    return f"{run.id}:{_digest(token) if token is not None else secrets.token_hex(16)}"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def _token_file(workspace: Workspace, token: str) -> Path:
    folder = lock_folder(workspace.root) / "tokens"
    folder.mkdir(exist_ok=True)
    return folder / _digest(f"{workspace.root}:{token}")


def _remembered(workspace: Workspace, token: str) -> RunFolder | None:
    """The run that this token started; forgets the tokens of yesterday."""
    file = _token_file(workspace, token)
    for old in file.parent.iterdir():
        if time.time() - old.stat().st_mtime > TOKEN_SECONDS:
            old.unlink(missing_ok=True)
    try:
        return workspace.run(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, WorkspaceError):
        return None
