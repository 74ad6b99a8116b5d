"""The one training loop. An algorithm adds its samples (`_samples`) and, if it has more to learn
than the policies, its update; everything else is shared."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import checkpoint, objectives
from workbench.callbacks import Formatter
from workbench.config import TrainingConfig
from workbench.parallel.handles import Handle, WorkerDiedError
from workbench.rollout import Rollout, Shape, derive_seed
from workbench.stopwatch import Stopwatch
from workbench.tracking import build_trackers
from workbench.tracking.base import FAILED, FINISHED, KILLED, Monitor
from workbench.trainers import evaluation, resume, setup
from workbench.trainers.critics import CriticRequest
from workbench.trainers.cursor import Cursor, as_sequence
from workbench.trainers.epoch_notes import EpochNotes
from workbench.trainers.ledger import Ledger
from workbench.trainers.records import batch_metrics, node_metrics, policy_terms, tree_records
from workbench.trainers.workers import start_workers
from workbench.types import Item, RolloutTree, Sample, UpdateResult

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Trainer(abc.ABC):
    """Trains the agents of one team. See the subclass for the algorithm.

    agent_model: one model name loaded `num_agents` times, or agents: a list of names or loaded
    models (its length is the number of agents; one object listed twice is one model with one
    optimizer). tokenizer: one, or one per agent; required for loaded models. reward_func,
    reward_processor, formatters, external_transition: see workbench.rewards and
    workbench.callbacks. args: the algorithm's configuration. model_config: see
    workbench.models.loading. mlflow_config, wandb_config: see workbench.tracking. eval_logger and
    eval_aggregator (only together): see workbench.trainers.evaluation. ValueError with one sentence
    for arguments that do not fit together, before any model loads.
    """

    config_class: type[TrainingConfig]
    algorithm_name: str
    per_agent_rewards = False

    def __init__(
        self,
        agent_model: str | None = None,
        agents: Sequence[str | PreTrainedModel] | None = None,
        num_agents: int | None = None,
        tokenizer: PreTrainedTokenizerBase | Sequence[PreTrainedTokenizerBase] | None = None,
        reward_func: Callable[..., Any] | None = None,
        reward_processor: Callable[[float], float] | None = None,
        formatters: Formatter | Sequence[Formatter] | None = None,
        args: TrainingConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        model_config: Mapping[str, Any] | None = None,
        mlflow_config: Mapping[str, Any] | None = None,
        wandb_config: Mapping[str, Any] | None = None,
        external_transition: Callable[..., Any] | None = None,
        eval_logger: Callable[..., Any] | None = None,
        eval_aggregator: Callable[..., Any] | None = None,
    ) -> None:
        args = setup.checked_args(args, self.config_class)
        plan = setup.plan_team(agent_model, agents, num_agents, tokenizer, model_config, args)
        self.num_agents = len(plan.sources)
        self.args: Any = setup.settle_num_agents(args, self.num_agents)
        reward = setup.checked_reward(reward_func, self.num_agents, reward_processor, self.per_agent_rewards)
        environment = setup.build_environment(reward, formatters, external_transition, self.args)
        self.eval_hooks = evaluation.hooks(eval_logger, eval_aggregator)
        self.train_dataset = as_sequence(train_dataset, "train_dataset")
        self.eval_dataset = as_sequence(eval_dataset, "eval_dataset")
        self.tracker = build_trackers(mlflow_config, wandb_config)
        self.model_names = plan.names

        self.checkpoint_dir = Path("checkpoints")
        self.stopped = False
        self.env_step = 0
        self.node_count = 0
        self.cursor = Cursor(len(self.train_dataset), self.args.num_train_epochs, self.args.seed, self.args.shuffle)
        self.buffers: list[list[Sample]] = [[] for _ in range(self.num_agents)]
        self.ledger = Ledger(self.args.logging_steps)
        self.notes = EpochNotes(self.args)
        self.latest_metrics: dict[str, float] = {}
        self.watch = Stopwatch()
        with self.watch("load"):
            self.team, self.critics = start_workers(
                plan, self.args, self._planned_updates(), self._policy_kind(), self._critic_request(plan)
            )
        self.rollout = Rollout(self.team, environment, setup.sampling(self.args), self.watch)

    @property
    def agents(self) -> list[PreTrainedModel]:
        """Each agent's model with its present weights [n]; copies where the agents live in other processes."""
        models = {handle: handle.model() for handle in self.team.policies}
        return [models[handle] for handle in self.team.policies]

    def close(self) -> None:
        """End the workers' processes, if any; the trainer is of no use afterwards."""
        for handle in (*self.team.policies, *self.team.references, *self.critics):
            handle.close()

    @property
    def monitor(self) -> Monitor:  # whoever watches this training live
        return self.watch.monitor

    @monitor.setter
    def monitor(self, monitor: Monitor) -> None:
        self.watch.monitor = monitor

    # --- what an algorithm defines ------------------------------------------------------------

    @abc.abstractmethod
    def _tree_samples(self, tree: RolloutTree, first_id: int) -> list[list[Sample]]:
        """The estimator: samples of each node [nodes] of a tree with returns; node ids count from first_id."""

    def _joint_mode(self) -> str:
        return "aligned"

    def _policy_kind(self) -> str:
        """See workbench.models.workers."""
        return "policy"

    def _critic_request(self, plan: setup.TeamPlan) -> CriticRequest:
        """The separate critics; REINFORCE has none."""
        return CriticRequest()

    def _learn(self, batches: Mapping[int, list[list[Sample]]]) -> dict[int, list[UpdateResult]]:
        """One optimizer step per batch of every agent."""
        return self.team.update({agent: list(map(policy_terms, steps)) for agent, steps in batches.items()})

    def workers(self) -> list[Handle]:
        """Every model that learns, once."""
        return list(dict.fromkeys(self._saved().values()))

    def _saved(self) -> dict[str, Handle]:
        """Folder name in a saved team -> whose model it is."""
        return {f"agent_{i}": policy for i, policy in enumerate(self.team.policies)}

    def _shape(self) -> Shape:
        args, join = self.args, objectives.JOINT_MODES[self._joint_mode()]
        return Shape(args.num_turns, args.num_generations, join, args.early_termination_threshold)

    def _planned_updates(self) -> int:
        """Optimizer steps per agent if no branch terminates early."""
        joint = len(self._shape().join(self.num_agents, self.args.num_generations))
        samples = self.cursor.items * sum(joint**t for t in range(self.args.num_turns))
        return self.args.num_train_epochs * setup.optimizer_steps(samples, self.args)

    # --- the loop -----------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: str | Path | None = None) -> None:
        """Run all epochs, or from a checkpoint on; returns early (`stopped`) when the monitor asks."""
        if not len(self.train_dataset):
            raise ValueError("train() needs a train_dataset with at least one item.")
        if self.cursor.finished:
            raise ValueError("This trainer has run all its epochs; build another one to train on.")
        self.stopped = False
        try:
            if resume_from_checkpoint is None:
                checkpoint.seed_everything(self.args.seed)  # the user's callbacks may draw from these generators
                self.tracker.begin(
                    {"algorithm": self.algorithm_name, "models": self.model_names, **dataclasses.asdict(self.args)}
                )
            else:
                self.load_checkpoint(resume_from_checkpoint, tracking=True)
            self._epochs()
        except BaseException as error:
            if isinstance(error, WorkerDiedError):  # the other workers wait for calls that will not come
                self.close()
            self.tracker.end(KILLED if isinstance(error, KeyboardInterrupt) else FAILED)
            raise
        self.tracker.end(KILLED if self.stopped else FINISHED)

    def _epochs(self) -> None:
        while not self.cursor.finished:
            while not self.cursor.epoch_done:
                self._item_step()
                if self.stopped:
                    return
            self._end_epoch()
        if self.args.save_interval:
            self.save_checkpoint()
        self._log(self.ledger.take(self.env_step) | self.watch.take())
        self.monitor.progress(self.cursor.done, self.cursor.total, self.latest_metrics)

    def _item_step(self) -> None:
        if self.args.eval_interval and self.cursor.position % self.args.eval_interval == 0:
            self.evaluate()
        index = self.cursor.index()
        seed = derive_seed(self.args.seed, "train", self.cursor.done)
        tree = self.rollout.expand([(index, self.train_dataset[index])], self._shape(), seed, self.env_step)[0]
        self._collect(tree)
        self.cursor.advance()
        if self.ledger.due(self.env_step):
            self._log(self.ledger.take(self.env_step) | self.watch.take())
        self._maybe_save()
        self.monitor.progress(self.cursor.done, self.cursor.total, self.latest_metrics)

    def _maybe_save(self) -> None:
        stop = self.monitor.stop_requested()
        if stop or (self.args.save_interval and self.cursor.done % self.args.save_interval == 0):
            self.save_checkpoint()
        self.stopped = stop

    def _collect(self, tree: RolloutTree) -> None:
        """Samples of the tree's nodes go to the trace and, in environment order, to the buffers."""
        samples = self._tree_samples(tree, self.node_count)
        self.tracker.nodes(tree_records(tree, self.node_count, "train", self.cursor.epoch, samples))
        self.node_count += len(tree.nodes)
        for node, node_samples in zip(tree.nodes, samples):
            self.env_step = node.step
            self.notes.add(node)
            self.watch.tokens += sum(len(c.token_ids) for row in node.completions for c in row)
            self.ledger.add(node_metrics(node, self.args.reference_kl_coef))
            for sample in node_samples:
                self.buffers[sample.agent].append(sample)
            self._update(full_only=True)

    def _end_epoch(self) -> None:
        self._update(full_only=False)
        self.notes.end(self.cursor.epoch + 1)
        self.cursor.next_epoch()

    # --- updates ------------------------------------------------------------------------------

    def _update(self, full_only: bool) -> None:
        """Use up the buffers that are full (or all that hold something); agents update side by side."""
        least = self.args.rollout_buffer_size if full_only else 1
        ready = [agent for agent, buffer in enumerate(self.buffers) if len(buffer) >= least]
        batches = {agent: self._batches(self.buffers[agent]) for agent in ready}
        for agent in ready:
            self.buffers[agent] = []
        if ready:
            with self.watch("update"):
                results = self._learn(batches)
            for agent in ready:
                for batch, result in zip(batches[agent], results[agent]):
                    for metrics in batch_metrics(batch, result):
                        self.ledger.add(metrics)

    def _batches(self, buffer: Sequence[Sample]) -> list[list[Sample]]:
        size = self.args.train_batch_size
        return [list(buffer[i : i + size]) for i in range(0, len(buffer), size)]

    # --- reporting ----------------------------------------------------------------------------

    def _log(self, metrics: Mapping[str, float]) -> None:
        if metrics:
            self.latest_metrics |= metrics
            self.tracker.metrics(self.env_step, metrics)

    def evaluate(self, num_eval_samples: int | None = None) -> dict[str, float]:
        """`eval/turn_k/...` over the first items of eval_dataset; {} without one, or for 0 samples."""
        count = self.args.eval_num_samples if num_eval_samples is None else int(num_eval_samples)
        self._log(metrics := evaluation.evaluate(self, count))
        return metrics

    def play(self, items: Sequence[Item], seed: int = 0) -> list[RolloutTree]:
        """One completion per agent and turn for each item, with the present weights; nothing is recorded."""
        return self.single_paths(list(enumerate(items)), derive_seed(seed, "play"))

    def single_paths(self, items: Sequence[tuple[int, Item]], seed: int) -> list[RolloutTree]:
        """One completion per agent and turn for each (index, item)."""
        shape = Shape(self.args.num_turns, 1, objectives.aligned_responses, None)
        return self.rollout.expand(items, shape, seed, self.env_step) if items else []

    # --- saving -------------------------------------------------------------------------------

    def save_model(self, output_dir: str | Path) -> None:
        """`agent_i/` with model and tokenizer (and `critic*/`); from_pretrained reads them back bit-equal."""
        with self.watch("save"):
            for call in [worker.submit("save", Path(output_dir) / name) for name, worker in self._saved().items()]:
                call.result()
        self.tracker.artifacts(Path(output_dir))

    def save_checkpoint(self) -> Path:
        """Everything a later `train(resume_from_checkpoint=)` needs to go on as if never interrupted."""
        with self.watch("save"):
            return resume.save(self)

    def load_checkpoint(self, folder: str | Path, tracking: bool = False) -> None:
        """Restore models, optimizers, buffers, cursor and random states; tracking True: rewind the trackers too."""
        resume.restore(self, Path(folder), tracking)
