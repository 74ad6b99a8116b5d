"""From a run to its trainer: for training, or with trained weights for evaluation and play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.runs.spec import ResolvedRun
from workbench.runs.workspace import FINISHED, RunFolder, WorkspaceError
from workbench.tasks.base import mean_per_key

SAVED_MODEL_KEYS = ("dtype", "torch_dtype", "attn_implementation", "trust_remote_code")
"""Of model_config, what also holds for a saved model; the rest (revision, new adapter ...) made that model."""


def build_trainer(resolved: ResolvedRun, **changes: Any) -> Any:
    """The algorithm's trainer with the spec's models loaded; imports torch. It tracks nothing.

    changes: trainer arguments that replace or extend the spec's, such as `agents` or `mlflow_config`.
    """
    spec, task = resolved.spec, resolved.task
    arguments: dict[str, Any] = {
        "agent_model": spec.model,
        "agents": spec.agents,
        "num_agents": task.num_agents,
        "reward_func": task.reward,
        "formatters": task.formatters,
        "external_transition": task.transition,
        "args": resolved.config,
        "train_dataset": task.load_train_items(),
        "eval_dataset": task.load_eval_items(),
        "model_config": spec.model_options or None,
    }
    if spec.critic is not None:
        arguments["critics" if isinstance(spec.critic, list) else "critic_model"] = spec.critic
    if resolved.algorithm.family == "reinforce" and task.metrics is not None:
        arguments |= {"eval_logger": task.checked_metrics, "eval_aggregator": mean_per_key}
    return resolved.algorithm.load_trainer()(**arguments | changes)


def build_trained(run: RunFolder, resolved: ResolvedRun, checkpoint: int | None, untrained: bool = False) -> Any:
    """A trainer that tracks nothing, with the weights of one checkpoint, or the newest weights there are:
    the final model of a finished run, else the newest checkpoint. untrained: the initial weights.
    """
    if untrained:
        return build_trainer(resolved)
    steps = run.checkpoints()
    newest_is_model = run.read_status().state == FINISHED or not steps  # a resumed run's checkpoints are newer
    if checkpoint is None and newest_is_model and run.model_folder.is_dir():
        folders = [str(run.model_folder / f"agent_{i}") for i in range(resolved.task.num_agents)]
        options = {k: v for k, v in resolved.spec.model_options.items() if k in SAVED_MODEL_KEYS}
        return build_trainer(resolved, agent_model=None, agents=folders, model_config=options)
    if checkpoint is None and not steps:
        raise WorkspaceError(f"Run {run.id} has no saved model or checkpoint yet; --untrained plays the initial model.")
    trainer = build_trainer(resolved)
    trainer.load_checkpoint(checkpoint_folder(run, checkpoint) if checkpoint is not None else steps[max(steps)])
    return trainer


def checkpoint_folder(run: RunFolder, step: int) -> Path:
    """The folder of one checkpoint; WorkspaceError that lists the steps there are."""
    steps = run.checkpoints()
    if step not in steps:
        known = f"there are {', '.join(map(str, steps))}" if steps else "it has none"
        raise WorkspaceError(f"Run {run.id} has no checkpoint of step {step}; {known}.")
    return steps[step]


def mlflow_config(run: RunFolder, resolved: ResolvedRun) -> dict[str, Any] | None:
    """Settings of the run's MLflow tracker, None when the spec turns it off."""
    tracking = resolved.spec.tracking
    if tracking.mlflow is False:
        return None
    return {
        "tracking_uri": tracking.mlflow if isinstance(tracking.mlflow, str) else None,
        "workspace": str(run.path.parents[1]),
        "experiment": tracking.experiment,
        "run_name": run.id,
        "tags": {"run": run.id, "task": resolved.task.name, "algorithm": resolved.algorithm.name},
        "spec": str(run.spec_file),
    }
