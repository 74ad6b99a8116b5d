"""From nodes and samples to what leaves the loop: update terms, rows of the trace, metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workbench.types import (
    CompletionRecord,
    JointRecord,
    Node,
    NodeRecord,
    RolloutTree,
    Sample,
    Term,
    UpdateResult,
    mean_of,
)


def policy_terms(batch: Sequence[Sample]) -> list[Term]:
    """Mean over the batch's samples of the mean over each sample's completions."""
    return [
        Term(
            completion,
            weight,
            share=1.0 / (len(batch) * len(sample.completions)),
            where=f"item {sample.item}, turn {sample.turn}",
            target=sample.returns[g],
            old_value=sample.values[g] if sample.values else 0.0,
        )
        for sample in batch
        for g, (completion, weight) in enumerate(zip(sample.completions, sample.weights))
    ]


def tree_records(
    tree: RolloutTree, first_id: int, phase: str, epoch: int, samples: Sequence[Sequence[Sample]] = ()
) -> list[NodeRecord]:
    """The tree's nodes with ids from `first_id` on; samples [nodes] add returns and advantages."""
    ids = {id(node): first_id + i for i, node in enumerate(tree.nodes)}
    rows = samples or [()] * len(tree.nodes)
    return [
        _node_record(node, ids[id(node)], ids.get(id(node.parent)), phase, epoch, row)
        for node, row in zip(tree.nodes, rows)
    ]


def _node_record(
    node: Node, node_id: int, parent_id: int | None, phase: str, epoch: int, samples: Sequence[Sample]
) -> NodeRecord:
    known = {(s.agent, k): (s, g) for s in samples for g, k in enumerate(s.ks)}
    return NodeRecord(
        node_id=node_id,
        phase=phase,
        step=node.step,
        epoch=epoch,
        item=node.item,
        turn=node.turn,
        parent_id=parent_id,
        parent_joint=node.parent_joint,
        terminated=node.terminated,
        joints=tuple(map(JointRecord, range(len(node.responses)), node.responses, node.rewards, node.returns)),
        completions=tuple(
            _completion_record(node, agent, k, known.get((agent, k)))
            for agent, row in enumerate(node.completions)
            for k in range(len(row))
        ),
    )


def _completion_record(node: Node, agent: int, k: int, known: tuple[Sample, int] | None) -> CompletionRecord:
    completion = node.completions[agent][k]
    own = [r for r, response in zip(node.agent_rewards[agent], node.responses) if response[agent] == k]
    numbers: dict[str, float | None] = {}
    if known:
        sample, g = known
        numbers = {
            "return_": sample.returns[g],
            "baseline": sample.baselines[g],
            "advantage": sample.advantages[g],
            "normalized": None if sample.values else sample.weights[g],  # actor-critic: known at the update
        }
        if sample.values:
            value, target = sample.values[g], sample.targets[g]
            numbers |= {"value": value, "target": target, "td_error": sample.advantages[g]}
    return CompletionRecord(
        agent=agent,
        k=k,
        prompt=completion.prompt,
        text=completion.text,
        tokens=len(completion.token_ids),
        finished=completion.finished,
        logprob=completion.logprob,
        kl=completion.kl,
        reward=mean_of(own),
        **numbers,
    )


def node_metrics(node: Node, kl_coefficient: float) -> dict[str, float]:
    """`turn_k/...` of one training node."""
    prefix = f"turn_{node.turn}/"
    values = {"reward_mean": node.reward_mean, "expected_return": mean_of(node.returns)}
    kls = [c.kl for row in node.completions for c in row]
    if (kl := mean_of(kls)) is not None:
        values |= {"reference_kl_mean": kl, "reference_kl_penalty_mean": kl_coefficient * kl}
    values["unscored_fraction"] = sum(r is None for r in node.rewards) / len(node.rewards)
    return {prefix + name: value for name, value in values.items() if value is not None}


def batch_metrics(batch: Sequence[Sample], result: UpdateResult) -> Iterator[dict[str, float]]:
    """`agent_i/turn_k/...` of each sample in one optimizer step."""
    scores, entropies = iter(result.scores), iter(result.entropies)
    for sample in batch:
        group = range(len(sample.completions))
        yield sample_metrics(sample, [next(scores) for _ in group], [next(entropies) for _ in group], result)


def sample_metrics(
    sample: Sample, scores: Sequence[float], entropies: Sequence[float], result: UpdateResult
) -> dict[str, float]:
    """`agent_i/turn_k/...` of one sample in an optimizer step. loss: the sample's own mean of -(A * score)."""
    group = len(sample.completions)
    values = {
        "loss": -sum(w * s for w, s in zip(sample.weights, scores)) / group,
        "grad_norm": result.grad_norm,
        "entropy": sum(entropies) / group,
        "completion_tokens": sum(len(c.token_ids) for c in sample.completions) / group,
        "truncated_fraction": sum(not c.finished for c in sample.completions) / group,
    }
    if not sample.values:  # an actor-critic's groups are those of its buffer
        values |= spread_metrics(sample.advantages)
    return {f"agent_{sample.agent}/turn_{sample.turn}/{name}": value for name, value in values.items()}


def spread_metrics(advantages: Sequence[float]) -> dict[str, float]:
    """Population standard deviation of a group's advantages, and whether it is exactly none."""
    mean = sum(advantages) / len(advantages)
    spread = (sum((a - mean) ** 2 for a in advantages) / len(advantages)) ** 0.5
    return {"advantage_std": spread, "zero_variance_fraction": float(min(advantages) == max(advantages))}
