"""The same run in other words: as YAML, as a shell command, as a Python script. Knows the launch form's plain data.

In the command every value is quoted for the shell, and in the script every value is a Python literal, so that nothing
that was typed can be read as code.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from workbench.config import TrainingConfig
from workbench.trainers import algorithm

SAFE = re.compile(r"[^\w-]+", re.ASCII)


def as_yaml(data: Mapping[str, Any]) -> str:
    """The spec file."""
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True)


def file_name(data: Mapping[str, Any]) -> str:
    """Of the spec file: the run's name, made of letters, digits and dashes."""
    return f"{SAFE.sub('-', str(data['name'])).strip('-').lower() or 'run'}.yaml"


def as_shell(data: Mapping[str, Any], workspace: Path) -> str:
    """Commands for a POSIX shell that write the spec file into the current folder and train it."""
    file = file_name(data)
    return (
        f"printf %s {shlex.quote(as_yaml(data))} > {file}\n"
        f"workbench train {file} --workspace {shlex.quote(str(workspace))}"
    )


def as_python(data: Mapping[str, Any], config_values: Mapping[str, Any]) -> str:
    """A script that builds the same trainer and trains it. config_values: all of the run's, suggested ones included.

    The script keeps no run folder, no trace and no checkpoints of its own; the app and the command line do.
    """
    chosen = algorithm(data["algorithm"])
    trainer, config = chosen.trainer.rpartition(":")[2], chosen.config.__name__
    family = _REINFORCE if chosen.family == "reinforce" else ""
    dataset = data.get("dataset")
    return SCRIPT.format(
        config=config,
        trainer=trainer,
        imports="from workbench.tasks.base import mean_per_key\n" if family else "",
        dataset_import="from workbench.tasks.dataset import DatasetSpec, with_dataset\n" if dataset else "",
        task=repr(data["task"]),
        dataset=f"    dataset = DatasetSpec.model_validate({dataset!r}).located(Path.cwd())\n"
        f"    task = with_dataset(task, dataset)\n"
        if dataset
        else "",
        models=_models(data),
        values="".join(
            f"            {name}={value!r},\n" for name, value in _values(chosen.config, config_values).items()
        ),
        family=family,
        folder=repr(f"{file_name(data).removesuffix('.yaml')}-model"),
    )


def _values(config: type[TrainingConfig], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the configuration would not have by itself."""
    return {name: value for name, value in values.items() if value != config.__dataclass_fields__[name].default}


def _models(data: Mapping[str, Any]) -> str:
    names = {"model": "agent_model", "agents": "agents", "model_config": "model_config"}
    given = {argument: data[key] for key, argument in names.items() if data.get(key)}
    if data.get("critic"):
        given["critics" if isinstance(data["critic"], list) else "critic_model"] = data["critic"]
    return "".join(f"        {argument}={value!r},\n" for argument, value in given.items())


_REINFORCE = """\
        eval_logger=task.checked_metrics if task.metrics else None,
        eval_aggregator=mean_per_key if task.metrics else None,
"""
SCRIPT = """\
from pathlib import Path

from workbench import {config}, {trainer}
from workbench.tasks import load_task
{imports}{dataset_import}

def main() -> None:
    task = load_task({task}, Path.cwd())
{dataset}    trainer = {trainer}(
{models}        num_agents=task.num_agents,
        reward_func=task.reward,
        formatters=task.formatters,
        external_transition=task.transition,
        train_dataset=task.load_train_items(),
        eval_dataset=task.load_eval_items(),
{family}        args={config}(
{values}        ),
    )
    trainer.train()
    trainer.save_model({folder})


if __name__ == "__main__":  # worker processes import this file
    main()
"""
