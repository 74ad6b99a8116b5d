"""`workbench tasks`, `workbench tasks show`, `workbench tasks new`: look at tasks, try a reward by hand, start one.

No model is loaded and torch is not imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.reporting import DebugOption, reporting

if TYPE_CHECKING:
    from rich.console import Console

    from workbench.tasks import Task
    from workbench.types import Item, Prompt

tasks_app = typer.Typer(help="List tasks, show an item and score typed answers, write a task of your own.")
SPEC_ENDINGS = (".yaml", ".yml")


@tasks_app.callback(invoke_without_command=True)
def list_tasks(context: typer.Context, debug: DebugOption = False) -> None:
    """List the built-in tasks."""
    if context.invoked_subcommand is None:
        with reporting(debug):
            _print_tasks()


@tasks_app.command()
def show(
    task: Annotated[str, typer.Argument(help="A built-in task, my_task.py:TASK, or the YAML file of a run.")],
    item: Annotated[int, typer.Option(help="Number of the evaluation item (training item if the task has none).")] = 0,
    answer: Annotated[
        list[str] | None, typer.Option("--answer", help="What an agent writes; once per agent, in their order.")
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Show an item as each agent sees it, and score one answer per agent."""
    with reporting(debug):
        _show(_load(task), item, answer or [])


@tasks_app.command()
def new(
    file: Annotated[Path, typer.Argument(help="The Python file to write, such as my_task.py.")],
    debug: DebugOption = False,
) -> None:
    """Write a commented task that runs as it is; stdout is the spec of a run of it."""
    with reporting(debug):
        from workbench.tasks.template import write_template

        spec = write_template(file)
        print(f"# {file} is written. Save these lines as {file.stem}.yaml, then: workbench train {file.stem}.yaml")
        print(spec)


def _print_tasks() -> None:
    from rich.markup import escape
    from rich.table import Table

    from workbench.tasks import TASKS
    from workbench.terminal import console

    table = Table("task", "agents", "turns", "what it is", "what cooperation means", show_lines=True)
    for name, task in TASKS.items():
        cells = (name, str(task.num_agents), _turns(task), task.description, task.cooperation)
        table.add_row(*map(escape, cells))
    console().print(table)


def _show(task: Task, index: int, answers: list[str]) -> None:
    from workbench.tasks import TaskError
    from workbench.terminal import console

    if answers and len(answers) != task.num_agents:
        raise TaskError(
            f"Task {task.name!r} has {task.num_agents} agents; give --answer once for each, in their order "
            f"({len(answers)} given)."
        )
    out, item = console(), _pick(task, index)
    prompts = _first_prompts(task, item)
    out.print(f"{task.name}: {task.description}", markup=False, style="bold")
    out.print(f"{task.cooperation}\n", markup=False, style="dim")
    _print_prompts(out, prompts, 1)
    texts = answers or _typed(task.num_agents)
    if texts:
        _print_reward(out, task, item, prompts, texts)


def _turns(task: Task) -> str:
    """The suggested number, and a plus where the task can go on."""
    suggested = task.suggested_config.get("num_turns", 1)
    return f"{suggested}+" if task.transition else "1"


def _load(reference: str) -> Task:
    """The task of a name, a file, or a run's spec with its dataset."""
    from workbench.runs.spec import RunSpec
    from workbench.tasks import load_task

    if reference.endswith(SPEC_ENDINGS):
        return RunSpec.load(reference).resolve().task
    return load_task(reference, Path.cwd())


def _pick(task: Task, index: int) -> Item:
    from workbench.tasks import TaskError

    items = task.load_eval_items() or task.load_train_items()
    if not 0 <= index < len(items):
        raise TaskError(f"Task {task.name!r} has items 0 to {len(items) - 1}; there is no item {index}.")
    return items[index]


def _first_prompts(task: Task, item: Item) -> list[Prompt]:
    from workbench.callbacks import format_prompt, resolve_formatters

    formatters = resolve_formatters(task.formatters, task.num_agents)
    return [format_prompt(formatter, item, None, f"agent {agent}") for agent, formatter in enumerate(formatters)]


def _print_prompts(out: Console, prompts: Sequence[Prompt], turn: int) -> None:
    for agent, prompt in enumerate(prompts):
        out.print(f"[bold]turn {turn}, agent {agent}[/] is shown:", style="cyan")
        out.print(_as_text(prompt), markup=False, soft_wrap=True)


def _as_text(prompt: Prompt) -> str:
    """Chat messages as `role: content`; the model sees them in its own template."""
    return prompt if isinstance(prompt, str) else "\n".join(f"{m['role']}: {m['content']}" for m in prompt)


def _typed(num_agents: int) -> list[str]:
    """One line per agent from a terminal, nothing when there is none."""
    if not sys.stdin.isatty():
        return []
    return [
        typer.prompt(f"agent {agent} writes", default="", show_default=False, err=True) for agent in range(num_agents)
    ]


def _print_reward(out: Console, task: Task, item: Item, prompts: Sequence[Prompt], texts: Sequence[str]) -> None:
    """The reward of the typed texts, why, and what each agent would be shown next."""
    from workbench.rewards import RewardFunction

    function = RewardFunction(task.reward, task.num_agents, per_agent=True)
    rows = function([[text] for text in texts], _as_text(prompts[0]), item, "the typed answers")
    rewards = [row[0] for row in rows]
    for name, value in (task.explain(texts=texts, item=item) if task.explain else {}).items():
        shown = value if isinstance(value, str) else f"{value:.4f}"
        out.print(f"  {name}: {shown}", markup=False, soft_wrap=True)
    distinct = rewards[:1] if len(set(rewards)) == 1 else rewards  # one per agent where they differ
    out.print(f"[bold]reward {', '.join('none (unscored)' if r is None else f'{r:.4f}' for r in distinct)}[/]")
    if task.transition is not None:
        _print_prompts(out, _next_prompts(task, item, prompts, texts, rewards), 2)


def _next_prompts(
    task: Task, item: Item, prompts: Sequence[Prompt], texts: Sequence[str], rewards: list[float | None]
) -> list[Prompt]:
    """What the task's transition makes of the texts, formatted as a trainer formats it."""
    from workbench.callbacks import Transition, format_prompt, resolve_formatters

    assert task.transition is not None
    transition = Transition(task.transition, task.num_agents)
    history = [[_as_text(prompt)] for prompt in prompts]
    external = transition(item, list(texts), history, [[text] for text in texts], rewards, "the typed answers")
    formatters = resolve_formatters(task.formatters, task.num_agents)
    return [
        format_prompt(formatter, item, prompt, f"agent {agent}")
        for agent, (formatter, prompt) in enumerate(zip(formatters, external))
    ]
