"""From a trainer's constructor arguments to loaded workers: counts, devices, tokenizers, models."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import torch

from workbench.callbacks import Formatter, Transition, resolve_formatters
from workbench.config import TrainingConfig
from workbench.models.devices import resolve_device
from workbench.models.language_model import LanguageModel
from workbench.models.loading import ModelOptions, add_special_tokens, load_model, load_tokenizer
from workbench.models.policy import Policy
from workbench.parallel.handles import LocalHandle
from workbench.parallel.team import Team
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


def build_team(
    plan: TeamPlan, args: Any, planned_updates: int, make_policy: type[Policy] = Policy
) -> tuple[Team, list[PreTrainedModel]]:
    """Load what has to be loaded and place it. Returns the team and its models [n]."""
    device = resolve_device(args.agent_devices, "agent_devices")
    reference_device = resolve_device(args.reference_devices, "reference_devices") if args.reference_devices else device
    # One slot per model: a name is loaded once per agent, an object listed twice stays one model.
    slots = [agent if isinstance(source, str) else id(source) for agent, source in enumerate(plan.sources)]
    policies: dict[int, LocalHandle] = {}
    references: dict[int, LocalHandle] = {}
    for agent, slot in enumerate(slots):
        if slot in policies:
            continue
        model, tokenizer = load_source(plan.sources[agent], plan.tokenizers[agent], plan.options, args.seed)
        name = f"agent {agent}"
        if args.reference_kl_enabled:
            frozen = copy.deepcopy(model).requires_grad_(False)
            references[slot] = LocalHandle(
                LanguageModel(frozen, tokenizer, args, reference_device, f"{name}'s reference")
            )
        updates = planned_updates * slots.count(slot)  # a model that serves several agents learns from each
        policies[slot] = LocalHandle(make_policy(model, tokenizer, args, device, name, updates))
    team = Team([policies[s] for s in slots], [references[s] for s in slots if references])
    return team, [policies[s].worker.model for s in slots]


def load_source(
    source: Source, tokenizer: PreTrainedTokenizerBase | None, options: ModelOptions, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer of one source, with special tokens added.

    New weights (an adapter, rows for new tokens) are drawn from `seed`, not from the process's random state.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _load_source(source, tokenizer, options)


def _load_source(
    source: Source, tokenizer: PreTrainedTokenizerBase | None, options: ModelOptions
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if isinstance(source, str):
        tokens = tokenizer if tokenizer is not None else load_tokenizer(source, options)
        model = load_model(source, options)
    else:
        assert tokenizer is not None, "checked in _tokenizers"
        model, tokens = source, tokenizer
    if options.special_tokens:
        add_special_tokens(tokens, model, options.special_tokens)
    return model, tokens
