"""Metrics of evaluated trees: one completion per agent and turn, a single path without branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.rollout import derive_seed
from workbench.trainers.records import tree_records
from workbench.types import Item, NodeRecord, RolloutTree, mean_of

if TYPE_CHECKING:
    from workbench.trainers.base import Trainer

Hooks = tuple[Callable[..., Any], Callable[..., Any]] | None


def hooks(eval_logger: Callable[..., Any] | None, eval_aggregator: Callable[..., Any] | None) -> Hooks:
    """Both or neither.

    eval_logger(agent_completions_turns=[n][items][turns], batch_items=, prompts=) gives one dict per
    item; eval_aggregator(dicts, num_turns=) gives `turn_k/...`, logged under `eval/`.
    """
    if eval_logger is None and eval_aggregator is None:
        return None
    if eval_logger is None or eval_aggregator is None:
        missing = "eval_logger" if eval_logger is None else "eval_aggregator"
        raise ValueError(f"eval_logger and eval_aggregator only work together; pass {missing} too.")
    return eval_logger, eval_aggregator


def evaluate(trainer: Trainer, count: int) -> dict[str, float]:
    """Metrics over the first `count` items of the trainer's eval_dataset; {} for none."""
    items = [(index, trainer.eval_dataset[index]) for index in range(min(count, len(trainer.eval_dataset)))]
    if not items:
        return {}
    with trainer.watch("eval"):
        trees = recorded_trees(trainer, items)
        return metrics(trees, trainer.args.num_turns, [item for _, item in items], trainer.eval_hooks)


def recorded_trees(trainer: Trainer, items: Sequence[tuple[int, Item]]) -> list[RolloutTree]:
    """The trees of an evaluation, `eval_batch_size` items at a time; their nodes go to the trackers."""
    size, seed = trainer.args.eval_batch_size, trainer.args.seed
    starts = range(0, len(items), size)
    trees = [t for i in starts for t in trainer.single_paths(items[i : i + size], derive_seed(seed, "eval", i))]
    for tree in trees:
        rows = records(tree, trainer.node_count, trainer.env_step, trainer.cursor.epoch)
        trainer.node_count += len(rows)
        trainer.tracker.nodes(rows)
    return trees


def records(tree: RolloutTree, first_id: int, step: int, epoch: int) -> list[NodeRecord]:
    """Trace rows of an evaluated tree; an evaluation does not advance the x-axis."""
    for node in tree.nodes:
        node.step = step
    return tree_records(tree, first_id, "eval", epoch)


def metrics(trees: Sequence[RolloutTree], num_turns: int, items: Sequence[Item], custom: Hooks) -> dict[str, float]:
    """`eval/turn_k/reward_mean` and `expected_return` (undiscounted reward sum from that turn)."""
    values: dict[str, float] = {}
    for turn in range(1, num_turns + 1):
        nodes = [tree.nodes[turn - 1] for tree in trees]
        means = {
            "reward_mean": mean_of([node.rewards[0] for node in nodes]),
            "expected_return": mean_of([node.returns[0] for node in nodes]),
        }
        values |= {f"eval/turn_{turn}/{name}": value for name, value in means.items() if value is not None}
    return values | _custom(trees, num_turns, items, custom)


def _custom(trees: Sequence[RolloutTree], num_turns: int, items: Sequence[Item], custom: Hooks) -> dict[str, float]:
    if custom is None:
        return {}
    eval_logger, eval_aggregator = custom
    agents = range(len(trees[0].root.completions))
    texts = [[[node.completions[agent][0].text for node in tree.nodes] for tree in trees] for agent in agents]
    per_item = eval_logger(
        agent_completions_turns=texts, batch_items=list(items), prompts=[item.get("prompt", "") for item in items]
    )
    return {f"eval/{name}": float(value) for name, value in eval_aggregator(per_item, num_turns=num_turns).items()}
