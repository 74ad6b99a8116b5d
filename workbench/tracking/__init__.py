"""Where a run's numbers go: the trace, MLflow, Weights & Biases, behind one write-only protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.tracking.base import Tracker, TrackerGroup
from workbench.tracking.mlflow import MLflowTracker
from workbench.tracking.wandb import WandbTracker


def build_trackers(
    mlflow_config: Mapping[str, Any] | None = None, wandb_config: Mapping[str, Any] | None = None
) -> TrackerGroup:
    """The trackers that were asked for as one; None leaves that one out, {} takes its defaults."""
    trackers: list[Tracker] = []
    if mlflow_config is not None:
        trackers.append(MLflowTracker(mlflow_config))
    if wandb_config is not None:
        trackers.append(WandbTracker(wandb_config))
    return TrackerGroup(trackers)
