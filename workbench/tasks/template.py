"""The file that `workbench tasks new` writes: a small task of one's own that runs as it is."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from workbench.tasks.base import TaskError

NAME = re.compile(r"[\w-]+")
TEMPLATE = '''"""Two agents answer alike questions; the second should open with the letter that ends the first.

Look at it:  workbench tasks show {file}:TASK
Train it:    the spec at the end of this file
"""

from workbench.tasks import Task

# What to work on: rows with the columns that the formatters and the reward use. A run's `dataset:` key replaces them.
ITEMS = [{{"prompt": "town"}}, {{"prompt": "river"}}, {{"prompt": "plant"}}, {{"prompt": "bird"}}]


def first_agent(item):
    """What agent 0 is shown: a text, or a list of chat messages for models with a chat template."""
    return f"Name a {{item['prompt']}}:"


def second_agent(item):
    """What agent 1 is shown."""
    return f"Name another {{item['prompt']}}:"


def links(first, second):
    """1 when the second text starts with the letter that ends the first, 0.2 for any two letters, else 0."""
    end, start = first.strip()[-1:].lower(), second.strip()[:1].lower()
    if not (end.isalpha() and start.isalpha()):
        return 0.0
    return 1.0 if end == start else 0.2


def reward(first_texts, second_texts):
    """One number per joint response: agent 0's k-th text meets agent 1's k-th text.

    Name `batch_items` or `prompts` as further arguments to see the item or the prompt of each.
    """
    return [links(first, second) for first, second in zip(first_texts, second_texts)]


# For more than one turn: def transition(prompt, agent_completions, item, **history) returns one prompt per agent,
# goes into Task(transition=transition), and the run sets config.num_turns: 2.

TASK = Task(
    name="{name}",
    description="The second agent's word should start with the letter that ends the first agent's word.",
    cooperation="Neither sees the other's word, so both must settle on letters that fit.",
    num_agents=2,
    train_items=ITEMS,
    eval_items=ITEMS,  # or None for no evaluation
    formatters=[first_agent, second_agent],
    reward=reward,
    # Values that suit the task; a run's own config wins. `workbench config magrpo` explains each one.
    suggested_config={{
        "num_turns": 1,
        "num_generations": 8,
        "max_new_tokens": 2,
        "agent_learning_rate": 3e-3,
        "num_train_epochs": 20,
    }},
)

# The spec of a run; save it as {name}.yaml and start it with: workbench train {name}.yaml
#
{commented}
'''


def write_template(file: Path) -> str:
    """Write the template to `file` and return the run spec (YAML) that trains it from the current folder.

    Raises TaskError when the file is there already, its name does not end in .py, or its folder is missing.
    """
    if file.suffix != ".py" or not NAME.fullmatch(file.stem):
        raise TaskError(f"{file} must be a Python file named by letters, digits, _ and -, such as my_task.py.")
    if not file.parent.is_dir():
        raise TaskError(f"The folder {file.parent} does not exist; make it first.")
    spec = _spec(file)
    commented = "\n".join(f"# {line}" for line in _spec(Path(file.name)).splitlines())
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE.format(file=file.name, name=file.stem, commented=commented))
    except FileExistsError:
        raise TaskError(f"{file} is there already and stays as it is; choose another name.") from None
    return spec


def _spec(file: Path) -> str:
    values = {
        "name": file.stem,
        "task": f"{file}:TASK",
        "algorithm": "magrpo",
        "model": "builtin:tiny",
        "config": {"num_train_epochs": 20},
    }
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip()
