"""From a trainer's constructor arguments to the plans of its workers: counts, tokenizers, models."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from workbench.callbacks import Formatter, Transition, resolve_formatters
from workbench.config import TrainingConfig
from workbench.models.devices import Placement
from workbench.models.loading import ModelOptions, load_tokenizer
from workbench.models.workers import WorkerPlan
from workbench.rewards import RewardFunction
from workbench.rollout import Environment
from workbench.types import Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Source: TypeAlias = Union[str, "PreTrainedModel"]
Tokenizers: TypeAlias = Union["PreTrainedTokenizerBase", Sequence["PreTrainedTokenizerBase"], None]


@dataclass(frozen=True)
class TeamPlan:
    """Everything about the models that can be decided before one is loaded."""

    sources: tuple[Source, ...]  # [n]
    tokenizers: tuple[PreTrainedTokenizerBase | None, ...]  # [n] None: load it from the source
    options: ModelOptions

    @property
    def names(self) -> list[str]:
        """Each agent's model name, for logs."""
        return [s if isinstance(s, str) else s.config._name_or_path or type(s).__name__ for s in self.sources]


def checked_args(args: TrainingConfig | None, config_class: type[TrainingConfig]) -> TrainingConfig:
    """The algorithm's own configuration, its defaults for None."""
    args = config_class() if args is None else args
    if not isinstance(args, config_class):
        raise ValueError(f"args must be a {config_class.__name__}, got {type(args).__name__}.")
    return args


def plan_team(
    agent_model: str | None,
    agents: Sequence[Source] | None,
    num_agents: int | None,
    tokenizer: Tokenizers,
    model_config: Mapping[str, Any] | None,
    args: TrainingConfig,
) -> TeamPlan:
    """Check the model arguments against each other; ValueError names the one to change."""
    sources = _sources(agent_model, agents, num_agents, args)
    options = ModelOptions.parse(model_config)
    if not all(isinstance(s, str) for s in sources):
        options.refuse_for_loaded()
    return TeamPlan(tuple(sources), _tokenizers(tokenizer, sources), options)


def _sources(
    agent_model: str | None, agents: Sequence[Source] | None, num_agents: int | None, args: TrainingConfig
) -> list[Source]:
    if agents is None:
        if agent_model is None:
            raise ValueError("Give agent_model (one name for all agents) or agents (a list of names or models).")
        if not isinstance(agent_model, str):
            raise ValueError("agent_model must be a model name; pass loaded models in agents=[...].")
        return [agent_model] * _count(num_agents, args)
    if isinstance(agents, str) or not agents:
        raise ValueError("agents must be a non-empty list of model names or loaded models, one per agent.")
    if agent_model is not None and any(a != agent_model for a in agents if isinstance(a, str)):
        raise ValueError(f"agent_model ({agent_model!r}) and agents disagree; give only one of them.")
    for i, agent in enumerate(agents):
        if not isinstance(agent, str) and not hasattr(agent, "generate"):
            raise ValueError(f"agents[{i}] is {type(agent).__name__}, not a model name or a model that can generate.")
    return list(agents)


def _count(num_agents: int | None, args: TrainingConfig) -> int:
    count = args.num_agents if num_agents is None else num_agents
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"num_agents must be a whole number of at least 1, got {count!r}.")
    return count


def settle_num_agents(args: TrainingConfig, count: int) -> TrainingConfig:
    """A copy of args that says how many agents there really are; warns when it said otherwise."""
    args = copy.copy(args)
    if args.num_agents != count:
        default = args.__dataclass_fields__["num_agents"].default
        if args.num_agents != default:
            warnings.warn(
                f"args.num_agents is {args.num_agents}, but there are {count} agents; using {count}.", stacklevel=4
            )
        args.num_agents = count
    return args


def _tokenizers(tokenizer: Tokenizers, sources: Sequence[Source]) -> tuple[PreTrainedTokenizerBase | None, ...]:
    if isinstance(tokenizer, (list, tuple)):
        if len(tokenizer) != len(sources):
            raise ValueError(
                f"tokenizer has {len(tokenizer)} entries for {len(sources)} agents; give one, or one per agent."
            )
        for (a, first), (b, second) in itertools.combinations(enumerate(sources), 2):
            if first is second and not isinstance(first, str) and tokenizer[a] is not tokenizer[b]:
                raise ValueError(
                    f"agents[{a}] and agents[{b}] are one model but have different tokenizers; give it one."
                )
        return _required(tokenizer, sources)
    return _required((tokenizer,) * len(sources), sources)


def _required(
    tokenizers: Sequence[PreTrainedTokenizerBase | None], sources: Sequence[Source]
) -> tuple[PreTrainedTokenizerBase | None, ...]:
    for agent, (tokenizer, source) in enumerate(zip(tokenizers, sources)):
        if tokenizer is not None and not hasattr(tokenizer, "eos_token_id"):
            raise ValueError(
                f"tokenizer must be a loaded tokenizer, got {tokenizer!r}; use AutoTokenizer.from_pretrained."
            )
        if tokenizer is None and not isinstance(source, str):
            raise ValueError(f"tokenizer is required, because agents[{agent}] is a loaded model and not a name.")
    return tuple(tokenizers)


def sampling(args: TrainingConfig) -> Sampling:
    """How the agents sample; warns when scores are not those of what is sampled."""
    if args.top_p < 1.0 or args.top_k:
        warnings.warn(
            "top_p and top_k truncate sampling but not the scores, which are those of the full distribution.",
            stacklevel=4,
        )
    return Sampling(args.max_new_tokens, args.temperature, args.top_p, args.top_k or 0, args.generation_batch_size)


def optimizer_steps(samples: int, args: TrainingConfig) -> int:
    """Steps that so many samples of an epoch make: full buffers, then what is left."""
    assert args.train_batch_size is not None, "filled in by the configuration"
    full, rest = divmod(samples, args.rollout_buffer_size)
    return full * math.ceil(args.rollout_buffer_size / args.train_batch_size) + math.ceil(rest / args.train_batch_size)


def checked_reward(
    function: Callable[..., Any] | None, num_agents: int, processor: Callable[[float], float] | None, per_agent: bool
) -> RewardFunction:
    """The reward function behind its calling contract."""
    if function is None:
        raise ValueError("reward_func is required: a function of one completion list per agent that returns numbers.")
    return RewardFunction(function, num_agents, processor, per_agent)


def build_environment(
    reward: RewardFunction,
    formatters: Formatter | Sequence[Formatter] | None,
    transition: Callable[..., Any] | None,
    args: TrainingConfig,
) -> Environment:
    """The user's callbacks, checked."""
    if args.num_turns > 1 and transition is None:
        raise ValueError(
            f"num_turns is {args.num_turns}, which needs an external_transition that returns the next turn's "
            "prompts; pass one, or set num_turns=1."
        )
    return Environment(
        formatters=resolve_formatters(formatters, reward.num_agents),
        reward=reward,
        transition=Transition(transition, reward.num_agents) if transition is not None else None,
        passthrough=args.external_prompt_passthrough,
    )


def load_tokenizers(plan: TeamPlan) -> list[PreTrainedTokenizerBase]:
    """Each agent's tokenizer [n] with the special tokens added; one that several models share is loaded once."""
    loaded: dict[str, PreTrainedTokenizerBase] = {}
    tokenizers = []
    for source, tokenizer in zip(plan.sources, plan.tokenizers):
        if tokenizer is None:
            assert isinstance(source, str), "checked in _tokenizers"
            tokenizer = loaded[source] = loaded.get(source) or load_tokenizer(source, plan.options)
        if plan.options.special_tokens:
            tokenizer.add_special_tokens(dict(plan.options.special_tokens))
        tokenizers.append(tokenizer)
    return tokenizers


def team_workers(
    plan: TeamPlan,
    tokenizers: Sequence[PreTrainedTokenizerBase],
    args: TrainingConfig,
    placement: Placement,
    planned_updates: int,
    kind: str = "policy",
) -> tuple[list[WorkerPlan], list[WorkerPlan]]:
    """Plans of the policies [n] and of their frozen references [n] or []. kind: see workbench.models.workers."""
    slots = model_slots(plan.sources)
    policies: dict[int, WorkerPlan] = {}
    references: dict[int, WorkerPlan] = {}
    for i, (slot, source, tokenizer) in enumerate(zip(slots, plan.sources, tokenizers)):
        updates = planned_updates * slots.count(slot)  # a model that serves several agents learns from each
        one = WorkerPlan(kind, f"agent {i}", source, tokenizer, plan.options, args, placement.agents[i], updates)
        other = dataclasses.replace(
            one, kind="reference", name=f"agent {i}'s reference", device=placement.references[i]
        )
        for plans, made, what in ((policies, one, "agents"), (references, other, "references")):
            check_one_place(plans.setdefault(slot, made), made, what)
    return [policies[s] for s in slots], [references[s] for s in slots] if args.reference_kl_enabled else []


def model_slots(sources: Sequence[Source]) -> list[int]:
    """Which models are one [n]: a name is loaded once per place in the list, an object listed twice is one model."""
    return [i if isinstance(source, str) else id(source) for i, source in enumerate(sources)]


def check_one_place(first: WorkerPlan, again: WorkerPlan, what: str) -> None:
    """One model cannot be on two devices."""
    if first.device != again.device:
        raise ValueError(
            f"{first.name} and {again.name} are one model, but the {what}' devices put it on {first.device} and on "
            f"{again.device}; give it one device."
        )
