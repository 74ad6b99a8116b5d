"""Weights & Biases: a run's configuration and metrics, for users who bring their `wandb_config`.

Whatever goes wrong here is logged once and never stops training: wandb missing, no login, no network. The tracker
never asks anything on the terminal. Saved models are not uploaded. This module knows neither trainers nor MLflow.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.fields import did_you_mean
from workbench.tracking.base import FAILED, FINISHED, KILLED, NullTracker

log = logging.getLogger(__name__)
KEYS = ("project", "entity", "name", "run_name", "dir", "tags", "id", "resume", "mode", "config_sections")
EXIT_CODES = {FINISHED: 0, FAILED: 1, KILLED: 130}  # 130 is what a shell reports after an interrupt
LIMITS = {"init_timeout": 30.0, "finish_timeout": 60.0}  # seconds; wandb's own are 90 and for ever


class WandbTracker(NullTracker):
    """One Weights & Biases run; x is env_step, and a point behind the last one is dropped by wandb.

    `config` takes the keys of KEYS, all optional and meant as in `wandb.init`; `run_name` is another word for `name`,
    every entry of `config_sections` is added to the run's configuration. An unknown key is a ValueError. After the
    first failure the tracker stays silent.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        for key in config:
            if key not in KEYS:
                raise ValueError(f"wandb_config has no key {key!r}{did_you_mean(key, KEYS)}.")
        if not isinstance(config.get("tags") or [], list | tuple):
            raise ValueError(f"wandb_config: tags must be a list of strings, got {config['tags']!r}.")
        self.config = dict(config)
        self._run: Any = None
        self._id: str | None = config.get("id")

    def begin(self, params: Mapping[str, Any]) -> None:
        self._attempt(lambda: self._init(params, {}))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if self._run is not None:
            self._attempt(lambda: self._run.log(dict(values), step=step))

    def mark(self) -> dict[str, Any]:
        return {"id": self._id}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Continue the marked run. wandb cannot delete points: those after the mark stay and are not repeated."""
        again = {"id": mark["id"], "resume": "allow"} if mark.get("id") else {}
        self._attempt(lambda: self._init({}, again))

    def end(self, state: str) -> None:
        if self._run is not None:
            self._attempt(lambda: self._run.finish(exit_code=EXIT_CODES[state]))
            self._run = None

    def _init(self, params: Mapping[str, Any], again: dict[str, Any]) -> None:
        import wandb

        mode = self.config.get("mode") or os.environ.get("WANDB_MODE") or "online"
        if mode not in ("offline", "disabled", "dryrun") and not wandb.login(prompt=False, verify=False):
            raise RuntimeError("nobody is logged in; run `wandb login`, set WANDB_API_KEY or use mode: offline")
        self._run = wandb.init(**self._arguments(params) | again, settings=self._settings(wandb))
        self._id = self._run.id

    def _arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What goes to wandb.init for a new run; the caller replaces id and resume when it continues one."""
        sections = self.config.get("config_sections") or {}
        names = ("project", "entity", "mode", "id", "resume")
        given: dict[str, Any] = {key: self.config[key] for key in names if key in self.config}
        if self.config.get("dir") is not None:
            Path(self.config["dir"]).mkdir(parents=True, exist_ok=True)
            given["dir"] = str(self.config["dir"])
        name = self.config.get("name") or self.config.get("run_name")
        return {**given, "name": name, "tags": self.config.get("tags"), "config": {**params, **sections}}

    def _settings(self, wandb: Any) -> Any:
        limits = {key: value for key, value in LIMITS.items() if f"WANDB_{key.upper()}" not in os.environ}
        # The run's log belongs to the run folder: wandb leaves stdout and stderr alone.
        return wandb.Settings(console="off", silent=True, **limits)

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - tracking must never stop training
            self._run = None
            reason = "wandb cannot be imported" if isinstance(error, ImportError) else " ".join(str(error).split())
            log.warning("Weights & Biases is off for the rest of this run: %s", reason or repr(error))
