"""Where models live: in this process, or each in its own. A trainer sees handles and never a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.models.workers import WorkerPlan, build_worker
from workbench.parallel.handles import Handle, LocalHandle
from workbench.parallel.processes import start_processes

PLACES: dict[str, Callable[[Sequence[WorkerPlan]], Sequence[Handle]]] = {
    "none": lambda plans: [LocalHandle(build_worker(plan)) for plan in plans],
    "mp": start_processes,
}
"""config.parallel_training -> how workers are started."""


def start(plans: Sequence[WorkerPlan], parallel_training: str) -> list[Handle]:
    """A handle per plan; a plan listed twice is one worker with one handle."""
    distinct = list({id(plan): plan for plan in plans}.values())
    handles = PLACES[parallel_training](distinct)
    by_plan = {id(plan): handle for plan, handle in zip(distinct, handles)}
    return [by_plan[id(plan)] for plan in plans]
