"""The actor-critics: MAAC with one centralised critic, IAC with one per agent.

One estimator for both: rewards and critic values along a branch become TD targets and TD errors.
They differ in what a critic reads and in where it lives. Source: the multi-agent actor-critic page.
"""

from __future__ import annotations

import abc
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from workbench import estimators
from workbench.config import ActorCriticConfig, IACConfig, MAACConfig
from workbench.parallel.handles import Handle
from workbench.rollout import as_tensor
from workbench.trainers import setup
from workbench.trainers.base import Trainer
from workbench.trainers.critics import CriticRequest, critic_sources, head_width
from workbench.trainers.records import spread_metrics
from workbench.types import CriticInput, Node, RolloutTree, Sample, UpdateResult, ValueResult, ValueTerm

__all__ = ["IACConfig", "IACTrainer", "MAACConfig", "MAACTrainer"]


class ActorCriticTrainer(Trainer):
    """What MAAC and IAC share. critic_model, critics: see the subclasses; metrics_callback(samples) -> dict."""

    config_class = ActorCriticConfig
    per_agent_rewards = True

    def __init__(
        self,
        agent_model: Any = None,
        agents: Any = None,
        num_agents: int | None = None,
        tokenizer: Any = None,
        reward_func: Callable[..., Any] | None = None,
        reward_processor: Callable[[float], float] | None = None,
        formatters: Any = None,
        args: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        model_config: Mapping[str, Any] | None = None,
        mlflow_config: Mapping[str, Any] | None = None,
        wandb_config: Mapping[str, Any] | None = None,
        external_transition: Callable[..., Any] | None = None,
        critic_model: Any = None,
        critics: Sequence[Any] | None = None,
        metrics_callback: Callable[[Sequence[Sample]], Mapping[str, float]] | None = None,
    ) -> None:
        self.critic_arguments = (critic_model, critics)
        self.metrics_callback = metrics_callback
        model_config = dict(model_config or {})
        self.head_dim = head_width(model_config, getattr(args, "use_separate_critic", True))
        super().__init__(
            agent_model, agents, num_agents, tokenizer, reward_func, reward_processor, formatters, args,
            train_dataset, eval_dataset, model_config, mlflow_config, wandb_config, external_transition,
        )  # fmt: skip

    # --- what MAAC and IAC define -------------------------------------------------------------

    @abc.abstractmethod
    def _critic_folders(self) -> Sequence[str]:
        """Where a saved team keeps each separate critic."""

    @abc.abstractmethod
    def _critic_of(self, agent: int) -> Handle:
        """Who values this agent's histories."""

    @abc.abstractmethod
    def _critic_input(self, node: Node, agent: int, k: int) -> CriticInput:
        """What that critic reads for completion k."""

    # --- the estimator ------------------------------------------------------------------------

    def _tree_samples(self, tree: RolloutTree, first_id: int) -> list[list[Sample]]:
        """[nodes][samples]: one sample per agent and completion, with value, TD target and TD error."""
        values = self._values(tree)
        samples: list[list[Sample]] = [[] for _ in tree.nodes]
        for agent in range(self.num_agents):
            for branch in _branches(tree):
                for t, sample in enumerate(self._branch_samples(agent, tree, branch, values, first_id)):
                    if sample is not None:
                        samples[t].append(sample)
        return samples

    def _values(self, tree: RolloutTree) -> dict[tuple[Handle, CriticInput], float]:
        """What each critic says of everything it reads in this tree: one call per critic, equal inputs once."""
        inputs: dict[Handle, dict[CriticInput, None]] = defaultdict(dict)
        for agent in range(self.num_agents):
            for branch in _branches(tree):
                for node, k in zip(tree.nodes, branch):
                    inputs[self._critic_of(agent)][self._critic_input(node, agent, k)] = None
        calls = {critic: critic.submit("values", list(read)) for critic, read in inputs.items()}
        return {(c, read): v for c, call in calls.items() for read, v in zip(inputs[c], call.result())}

    def _branch_samples(
        self,
        agent: int,
        tree: RolloutTree,
        branch: Sequence[int],
        values: Mapping[tuple[Handle, CriticInput], float],
        first_id: int,
    ) -> list[Sample | None]:
        nodes = list(zip(tree.nodes, branch))
        inputs = [self._critic_input(node, agent, k) for node, k in nodes]
        value = torch.tensor([values[self._critic_of(agent), read] for read in inputs], dtype=torch.float64)
        target = estimators.td_targets(as_tensor([self._reward(*at, agent) for at in nodes]), value, self.args.discount)
        error = estimators.td_errors(target, value)
        return [
            None
            if target[t].isnan()
            else Sample(
                agent=agent,
                item=node.item,
                turn=node.turn,
                node_id=first_id + t,
                ks=(k,),
                completions=(node.completions[agent][k],),
                returns=(float(target[t]),),
                baselines=(float(value[t]),),
                advantages=(float(error[t]),),
                weights=(float(error[t]),),
                values=(float(value[t]),),
                critic_inputs=(inputs[t],),
            )
            for t, (node, k) in enumerate(nodes)
        ]

    def _reward(self, node: Node, k: int, agent: int) -> float | None:
        """The agent's processed reward minus its reference KL penalty."""
        reward, kl = node.agent_rewards[agent][k], node.completions[agent][k].kl
        return reward if reward is None or kl is None else reward - self.args.reference_kl_coef * kl

    def _planned_updates(self) -> int:
        """Optimizer steps per agent: an epoch's samples, buffer by buffer, each turn a group of its own."""
        turns = [t for _ in range(self.cursor.items * self.args.num_generations) for t in range(self.args.num_turns)]
        size, batch = self.args.rollout_buffer_size, self.args.train_batch_size
        buffers = [turns[i : i + size] for i in range(0, len(turns), size)]
        steps = sum(-(-count // batch) for buffer in buffers for count in Counter(buffer).values())
        return int(self.args.num_train_epochs * steps)

    # --- learning -----------------------------------------------------------------------------

    def _batches(self, buffer: Sequence[Sample]) -> list[list[Sample]]:
        """Groups of one turn, normalised as a whole, cut into optimizer steps."""
        groups: dict[int, list[Sample]] = defaultdict(list)
        for sample in buffer:
            groups[sample.turn].append(sample)
        size = self.args.train_batch_size
        ready = [self._weighted(groups[turn]) for turn in sorted(groups)]
        return [group[i : i + size] for group in ready for i in range(0, len(group), size)]

    def _weighted(self, group: Sequence[Sample]) -> list[Sample]:
        errors = torch.tensor([s.advantages[0] for s in group], dtype=torch.float64)
        weights = estimators.normalized(errors) if self.args.advantage_normalization else errors
        self.tracker.normalized([(s.node_id, s.agent, s.ks[0], float(w)) for s, w in zip(group, weights)])
        self._log_group(group, errors)
        return [dataclasses.replace(s, weights=(float(w),)) for s, w in zip(group, weights)]

    def _log_group(self, group: Sequence[Sample], errors: torch.Tensor) -> None:
        prefix = f"agent_{group[0].agent}/turn_{group[0].turn}/"
        values, targets = (
            torch.tensor([getattr(s, n)[0] for s in group], dtype=torch.float64) for n in ("values", "targets")
        )
        metrics = {"td_error_mean": float(errors.mean()), "td_error_abs": float(errors.abs().mean())}
        metrics |= spread_metrics(errors.tolist())
        explained = estimators.explained_variance(values, targets)
        if explained == explained:  # NaN when all targets are equal
            metrics["explained_variance"] = explained
        self.ledger.add({prefix + name: value for name, value in metrics.items()})
        if self.metrics_callback is not None:
            self.ledger.add({name: float(value) for name, value in self.metrics_callback(group).items()})

    def _learn(self, batches: Mapping[int, list[list[Sample]]]) -> dict[int, list[UpdateResult]]:
        # Sent before the agents' own steps are awaited, so that critics elsewhere learn at the same time.
        calls = {
            agent: [self._critic_of(agent).submit("update", value_terms(batch)) for batch in steps]
            for agent, steps in batches.items()
        }
        results = super()._learn(batches)
        for agent, steps in calls.items():
            for batch, call in zip(batches[agent], steps):
                result: ValueResult = call.result()
                self.ledger.add({f"agent_{agent}/turn_{batch[0].turn}/value_loss": result.loss})
        return results

    def _saved(self) -> dict[str, Handle]:
        return super()._saved() | dict(zip(self._critic_folders(), self.critics))


class MAACTrainer(ActorCriticTrainer):
    """Multi-agent actor-critic: one critic values the joint history, so all agents share its TD error.

    critic_model: a name or a loaded model, or critics: a list of exactly one. It reads one text that
    joins all agents' prompts (critic_type "q": and completions), with agent 0's tokenizer, and is
    updated with each agent's batch in turn.
    """

    config_class = MAACConfig
    algorithm_name = "maac"

    def _critic_folders(self) -> Sequence[str]:
        return ["critic"]

    def _critic_request(self, plan: setup.TeamPlan) -> CriticRequest:
        sources = critic_sources(*self.critic_arguments, 1, "MAAC", plan.sources)
        return CriticRequest(sources, self._planned_updates() * self.num_agents, self.head_dim)

    def _critic_of(self, agent: int) -> Handle:
        return self.critics[0]

    def _critic_input(self, node: Node, agent: int, k: int) -> CriticInput:
        joint = [row[k] for row in node.completions]
        parts = [f"Agent {i} reads:\n{c.prompt}" for i, c in enumerate(joint)]
        if self.args.critic_type == "q":
            parts += [f"Agent {i} writes:\n{c.text}" for i, c in enumerate(joint)]
        return "\n\n".join(parts)


class IACTrainer(ActorCriticTrainer):
    """Independent actor-critic: agent i's critic reads what agent i read.

    use_separate_critic True: critic_model (a name loaded once per agent, or a loaded object that all
    share with one optimizer) or critics (one per agent). False: a value head on each agent's own
    model, updated in the same step as the actor; passing critics is an error.

    Over several turns, let an agent's prompt repeat its own earlier completions. The mean of V over the next
    histories is then what a completion leads to; without them V may be a mean over completions that were not
    written, and the actor's expected gradient can be biased even when V is exact.
    """

    config_class = IACConfig
    algorithm_name = "iac"

    def _critic_folders(self) -> Sequence[str]:
        return [f"critic_{i}" for i in range(len(self.critics))]

    def _policy_kind(self) -> str:
        return "policy" if self.args.use_separate_critic else "shared"

    def _critic_request(self, plan: setup.TeamPlan) -> CriticRequest:
        if not self.args.use_separate_critic:
            if self.critic_arguments != (None, None):
                raise ValueError("use_separate_critic=False puts the critics on the agents' models: pass no critics.")
            return CriticRequest()
        sources = critic_sources(*self.critic_arguments, self.num_agents, "IAC with separate critics", plan.sources)
        head_dim = self.args.critic_value_head_hidden_dim
        if self.head_dim is not None and head_dim is not None:
            raise ValueError("critic_value_head_hidden_dim is set in args and in model_config; set it once.")
        return CriticRequest(sources, self._planned_updates(), head_dim or self.head_dim)

    def _critic_of(self, agent: int) -> Handle:
        return self.critics[agent] if self.critics else self.team.policies[agent]

    def _critic_input(self, node: Node, agent: int, k: int) -> CriticInput:
        completion = node.completions[agent][k]
        return completion.prompt_ids + (completion.token_ids if self.args.critic_type == "q" else ())

    def _learn(self, batches: Mapping[int, list[list[Sample]]]) -> dict[int, list[UpdateResult]]:
        if self.critics:
            return super()._learn(batches)
        results = Trainer._learn(self, batches)
        for agent, steps in results.items():
            for batch, result in zip(batches[agent], steps):
                self.ledger.add({f"agent_{agent}/turn_{batch[0].turn}/value_loss": result.value_loss})
        return results


def value_terms(batch: Sequence[Sample]) -> list[ValueTerm]:
    """The critic's part of one optimizer step."""
    return [
        ValueTerm(s.critic_inputs[0], s.targets[0], 1.0 / len(batch), f"item {s.item}, turn {s.turn}") for s in batch
    ]


def _branches(tree: RolloutTree) -> list[list[int]]:
    """The completion index taken at each node: one chain of turns, or each of the K leaves of a single turn."""
    if len(tree.nodes) == 1:
        return [[k] for k in range(len(tree.root.responses))]
    return [[0] * len(tree.nodes)]
