"""The flat configurations of the six algorithms: names, defaults, help, ranges and choices.

Every field carries its metadata (`help`, `ge`/`gt`/`le`, `choices`, `level`), from which the
documentation, the command line and the app's form are generated. A configuration is checked when
it is built, before any model loads. This module knows neither torch nor trainers.
"""

from __future__ import annotations

import dataclasses
import typing
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.fields import checked_value, did_you_mean, redefault, setting

JOINT_MODE_ALIASES = {"align": "aligned", "crossed": "cross"}
SCHEDULERS = ("constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial",
              "inverse_sqrt")  # fmt: skip
Devices: typing.TypeAlias = str | Sequence[str] | None
LARGEST_TREE = 1_000_000  # joint responses of one item; more is a slip, and would fill any memory


@dataclass
class TrainingConfig:
    """What all six algorithms share. Source: the parameter lists of the two algorithm pages."""

    num_agents: int = setting(2, "Number of agents in the team.", level="basic", ge=1, le=1000)
    num_turns: int = setting(
        2, "Turns per episode; more than 1 needs an external_transition.", level="basic", ge=1, le=1000
    )
    num_train_epochs: int = setting(20, "Passes over the training items.", level="basic", ge=1)
    agent_learning_rate: float = setting(5e-6, "Learning rate of every agent's AdamW.", level="basic", gt=0)
    num_generations: int = setting(
        4, "Completions K each agent samples per node; the baseline's group size.", level="basic", ge=1, le=LARGEST_TREE
    )
    max_new_tokens: int = setting(256, "Longest completion, in tokens.", level="basic", ge=1)
    temperature: float = setting(1.0, "Sampling temperature; scores use the same one.", level="basic", gt=0)
    top_p: float = setting(1.0, "Nucleus sampling mass; 1.0 is off.", gt=0, le=1)
    top_k: int | None = setting(None, "Sample among the k likeliest tokens; None or 0 is off.", ge=0)
    discount: float = setting(
        1.0,
        "Actor-critic: factor on the next turn's value in the TD target. REINFORCE returns are never discounted.",
        ge=0,
        le=1,
    )
    early_termination_threshold: float | None = setting(
        -0.2, "A branch stops when its node's mean immediate reward is greater than this; None = never."
    )
    rollout_buffer_size: int = setting(2, "Samples per agent collected before an update.", ge=1)
    train_batch_size: int | None = setting(
        None, "Samples averaged by one optimizer step, at most what the buffer holds; None = rollout_buffer_size.", ge=1
    )
    advantage_normalization: bool = setting(
        True, "Centre and scale the advantages of a group; makes all four baselines equal.", level="basic"
    )
    eval_interval: int = setting(16, "Evaluate at items divisible by this within an epoch; 0 = never.", ge=0)
    eval_num_samples: int = setting(4, "Items per evaluation; 0 = none.", ge=0)
    eval_batch_size: int = setting(1, "Items generated together in an evaluation.", ge=1)
    logging_steps: int = setting(50, "Least joint-reward evaluations between two training log points.", ge=1)
    external_prompt_passthrough: bool = setting(False, "Prompts from external_transition go to the model unformatted.")
    parallel_training: str = setting(
        "none",
        "Where models live: none = in this process, on one device; mp = each in a process of its own, on its device.",
        choices=("none", "mp"),
    )
    agent_devices: Devices = setting(None, "Device or devices of the agents, such as 'cuda:0'; None = automatic.")
    reference_devices: Devices = setting(None, "Device or devices of the frozen references; None = the agents'.")
    reference_kl_enabled: bool = setting(False, "Subtract a penalty for leaving the initial model.", level="basic")
    reference_kl_coef: float = setting(0.1, "Weight of the reference KL penalty.", ge=0)
    seed: int = setting(0, "Seed of everything random in a run.", level="basic", ge=0, le=2**63 - 1)
    shuffle: bool = setting(False, "Shuffle the training items in each epoch, from the seed.")
    weight_decay: float = setting(0.0, "AdamW weight decay.", ge=0)
    max_grad_norm: float | None = setting(
        1.0, "Clip each optimizer step's gradient norm to this; None = no clipping.", gt=0
    )
    lr_scheduler: str = setting(
        "constant",
        "Learning-rate schedule over optimizer steps (transformers' names that need no further setting).",
        choices=SCHEDULERS,
    )
    warmup_steps: int = setting(0, "Optimizer steps of linear warm-up (schedules that have one).", ge=0)
    micro_batch_size: int | None = setting(
        None, "Sequences per forward in an update, a memory cap that never changes the update; None = all.", ge=1
    )
    generation_batch_size: int | None = setting(None, "Sequences per forward while generating; None = all.", ge=1)
    gradient_checkpointing: bool = setting(False, "Recompute activations in the backward pass to save memory.")
    save_interval: int = setting(0, "Write a checkpoint every this many items; 0 = only when stopped.", ge=0)

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            setattr(self, spec.name, checked_value(type(self), spec.name, getattr(self, spec.name)))
        if self.train_batch_size is None:
            self.train_batch_size = self.rollout_buffer_size
        if self.warmup_steps and self.lr_scheduler == "constant":
            raise ValueError("warmup_steps has no effect with lr_scheduler 'constant'; choose 'constant_with_warmup'.")
        if self.parallel_training == "mp":
            self.check_placed()
        self.check_combinations()

    def check_placed(self) -> None:
        """Workers in processes of their own need to be told where."""
        if self.agent_devices is None:
            raise ValueError(
                "agent_devices is required with parallel_training 'mp', such as 'cpu' or ['cuda:0', 'cuda:1']."
            )

    def check_combinations(self) -> None:
        """Rules that involve several fields; a family of algorithms overrides this."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> typing.Self:
        """Build from a mapping; unknown names are errors that suggest the nearest field."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(f"{cls.__name__} has no field {name!r}{did_you_mean(name, known)}")
        return cls(**values)


@dataclass
class MAGRPOConfig(TrainingConfig):
    """MAGRPO and the base of the REINFORCE family: shared group baselines over rollout trees."""

    joint_mode: str = setting(
        "aligned",
        "aligned: response k of every agent forms joint response k; cross: all K**n combinations.",
        level="basic",
        choices=("aligned", "cross"),
    )
    advantage_mode: str = setting(
        "mean",
        "Baseline subtracted from the returns of a group.",
        level="basic",
        choices=("mean", "max", "rloo", "raw"),
    )

    def __post_init__(self) -> None:
        self.joint_mode = JOINT_MODE_ALIASES.get(str(self.joint_mode), self.joint_mode)
        super().__post_init__()

    def check_combinations(self) -> None:
        if self.num_generations < 2:
            raise ValueError(
                f"num_generations must be at least 2 for {type(self).__name__}, got {self.num_generations}."
            )
        self._check_tree()
        if self.discount != 1.0:
            warnings.warn("discount is not used by the REINFORCE family: returns are undiscounted.", stacklevel=5)
        if self.advantage_normalization and self.advantage_mode != "mean":
            warnings.warn(
                f"advantage_normalization is on, so advantage_mode {self.advantage_mode!r} gives the same numbers as "
                "'mean'; set advantage_normalization=False to see the difference.",
                stacklevel=5,
            )

    def _check_tree(self) -> None:
        """The largest tree of an item: every joint response of a node but the last turn's has a child."""
        joints = self.num_generations ** (self.num_agents if self.joint_mode == "cross" else 1)
        total, width = 0, 1
        for _ in range(self.num_turns):
            width *= joints
            total += width
            if total > LARGEST_TREE:
                raise ValueError(
                    f"num_generations {self.num_generations}, num_turns {self.num_turns} and joint_mode "
                    f"{self.joint_mode!r} with {self.num_agents} agents make more than {LARGEST_TREE:,} joint "
                    "responses per item; lower one of them."
                )


@dataclass
class MAREINFORCEConfig(MAGRPOConfig):
    """MAREINFORCE: raw returns, no baseline."""

    advantage_mode: str = redefault(MAGRPOConfig, "advantage_mode", "raw")


@dataclass
class MARLOOConfig(MAGRPOConfig):
    """MARLOO: the mean of the other returns as baseline."""

    advantage_mode: str = redefault(MAGRPOConfig, "advantage_mode", "rloo")


@dataclass
class MAReMaxConfig(MAGRPOConfig):
    """MAReMax: the group's best return as baseline."""

    advantage_mode: str = redefault(MAGRPOConfig, "advantage_mode", "max")


@dataclass
class ActorCriticConfig(TrainingConfig):
    """What MAAC and IAC share."""

    num_train_epochs: int = redefault(TrainingConfig, "num_train_epochs", 40)
    num_generations: int = redefault(TrainingConfig, "num_generations", 1)
    rollout_buffer_size: int = redefault(TrainingConfig, "rollout_buffer_size", 8)
    logging_steps: int = redefault(TrainingConfig, "logging_steps", 1)
    critic_learning_rate: float = setting(5e-6, "Learning rate of the critics' AdamW.", level="basic", gt=0)
    value_loss_coef: float = setting(0.6, "Weight of the critic's squared error.", ge=0)
    critic_type: str = setting(
        "v",
        "v: the critic values the history; q: history and action. A converged Q leaves the actor no signal.",
        level="basic",
        choices=("v", "q"),
    )
    critic_devices: Devices = setting(
        None, "Device or devices of separate critics; required with parallel_training 'mp' where there are any."
    )

    def check_placed(self) -> None:
        super().check_placed()
        if self.critic_devices is None and getattr(self, "use_separate_critic", True):
            raise ValueError("critic_devices is required with parallel_training 'mp', such as 'cpu' or 'cuda:1'.")

    def check_combinations(self) -> None:
        if self.num_turns > 1 and self.num_generations != 1:
            raise ValueError(
                f"num_generations must be 1 for {type(self).__name__} with num_turns {self.num_turns}, "
                f"got {self.num_generations}: a rollout of several turns has one branch."
            )


@dataclass
class MAACConfig(ActorCriticConfig):
    """MAAC: one centralised critic over the joint text, one TD error for all agents."""


@dataclass
class IACConfig(ActorCriticConfig):
    """IAC: a critic per agent on its own history, as a separate model or as a head on the agent's."""

    use_separate_critic: bool = setting(
        True, "True: critics are models of their own; False: a value head on each agent's model.", level="basic"
    )
    value_clip_range: float | None = setting(
        0.2, "Shared model only: limit of the value's move in one update; None = no clipping.", gt=0
    )
    critic_value_head_hidden_dim: int | None = setting(
        None, "Hidden units of a separate critic's value head; None = a linear head.", ge=1
    )
    value_head_hidden_dim: int | None = setting(
        None, "Hidden units of a shared model's value head; None = a linear head.", ge=1
    )
