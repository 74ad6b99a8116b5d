"""Every field: default, help, and one sentence that names it when a value is wrong."""

import contextlib
import dataclasses
import math
import pickle
import warnings

import pytest

from workbench.config import MAGRPOConfig, MAREINFORCEConfig, MAReMaxConfig, MARLOOConfig

ALL = (MAGRPOConfig, MAREINFORCEConfig, MARLOOConfig, MAReMaxConfig)
MODES = {MAGRPOConfig: "mean", MAREINFORCEConfig: "raw", MARLOOConfig: "rloo", MAReMaxConfig: "max"}

DEFAULTS = {  # the table of the specification, written out here on purpose
    "num_agents": 2,
    "num_turns": 2,
    "num_train_epochs": 20,
    "agent_learning_rate": 5e-6,
    "num_generations": 4,
    "max_new_tokens": 256,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": None,
    "discount": 1.0,
    "joint_mode": "aligned",
    "early_termination_threshold": -0.2,
    "rollout_buffer_size": 2,
    "train_batch_size": 2,
    "advantage_normalization": True,
    "eval_interval": 16,
    "eval_num_samples": 4,
    "eval_batch_size": 1,
    "logging_steps": 50,
    "external_prompt_passthrough": False,
    "parallel_training": "none",
    "agent_devices": None,
    "reference_devices": None,
    "reference_kl_enabled": False,
    "reference_kl_coef": 0.1,
    "seed": 0,
    "shuffle": False,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "lr_scheduler": "constant",
    "warmup_steps": 0,
    "micro_batch_size": None,
    "generation_batch_size": None,
    "gradient_checkpointing": False,
    "save_interval": 0,
}


def build(config, **values):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return config(**values)


@pytest.mark.parametrize("config", ALL)
def test_defaults_are_those_of_the_specification(config):
    assert dataclasses.asdict(build(config)) == DEFAULTS | {"advantage_mode": MODES[config]}


@pytest.mark.parametrize("config", ALL)
def test_all_are_magrpo_configs(config):
    assert issubclass(config, MAGRPOConfig)


@pytest.mark.parametrize("field", dataclasses.fields(MAGRPOConfig), ids=lambda f: f.name)
def test_every_field_has_help_and_a_level(field):
    assert field.metadata["help"].endswith(".")
    assert field.metadata["level"] in ("basic", "advanced")


@pytest.mark.parametrize("config", ALL)
def test_subclasses_keep_the_metadata(config):
    field = config.__dataclass_fields__["advantage_mode"]
    assert field.metadata == MAGRPOConfig.__dataclass_fields__["advantage_mode"].metadata


NOT_COUNTS = [0, -1, 1.5, "many", None, True, math.nan]
NOT_COUNTS_FROM_ZERO = [-1, 0.5, "many", None, True]
NOT_BOOLEANS = [None, "maybe", 2, []]
BAD = {
    "num_agents": [*NOT_COUNTS, 1001],
    "num_turns": [*NOT_COUNTS, 1001],
    "num_train_epochs": NOT_COUNTS,
    "agent_learning_rate": [0, -1e-6, math.nan, math.inf, "fast", None, True],
    "num_generations": [*NOT_COUNTS, 1],
    "max_new_tokens": NOT_COUNTS,
    "temperature": [0, -1, math.nan, math.inf, None, True],
    "top_p": [0, 1.1, -0.5, math.nan, None, True],
    "top_k": [-1, 1.5, "many", True],
    "discount": [-0.1, 1.1, math.nan, None, True],
    "joint_mode": ["both", "", None, 3],
    "early_termination_threshold": [math.nan, math.inf, "never", True],
    "rollout_buffer_size": NOT_COUNTS,
    "train_batch_size": [0, -1, 1.5, "many", True],
    "advantage_normalization": NOT_BOOLEANS,
    "advantage_mode": ["median", "", None, 3],
    "eval_interval": NOT_COUNTS_FROM_ZERO,
    "eval_num_samples": NOT_COUNTS_FROM_ZERO,
    "eval_batch_size": NOT_COUNTS,
    "logging_steps": NOT_COUNTS,
    "external_prompt_passthrough": NOT_BOOLEANS,
    "parallel_training": ["mpi", "", None, 3],
    "agent_devices": [3, [1, 2], True],
    "reference_devices": [3, [1, 2], True],
    "reference_kl_enabled": NOT_BOOLEANS,
    "reference_kl_coef": [-0.1, math.nan, math.inf, None, True],
    "seed": NOT_COUNTS_FROM_ZERO,
    "shuffle": NOT_BOOLEANS,
    "weight_decay": [-0.1, math.nan, None, True],
    "max_grad_norm": [0, -1, math.nan, True],
    "lr_scheduler": ["step", None, 3],
    "warmup_steps": NOT_COUNTS_FROM_ZERO,
    "micro_batch_size": [0, -1, 1.5, True],
    "generation_batch_size": [0, -1, 1.5, True],
    "gradient_checkpointing": NOT_BOOLEANS,
    "save_interval": NOT_COUNTS_FROM_ZERO,
}


def test_every_field_is_tested_with_bad_values():
    assert set(BAD) == {f.name for f in dataclasses.fields(MAGRPOConfig)}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_bad_values_name_the_field(name, value):
    with pytest.raises(ValueError, match=f"^{name}\\b") as caught:
        build(MAGRPOConfig, **{name: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config", ALL)
def test_one_generation_is_refused_by_the_whole_family(config):
    with pytest.raises(ValueError, match=r"num_generations must be at least 2"):
        build(config, num_generations=1)


@pytest.mark.parametrize(("settings", "fits"), [
    ({"num_generations": 1_000_000, "num_turns": 1}, True),  # one node
    ({"num_generations": 999, "num_turns": 2}, True),  # 999 + 999 * 999 = 999,000
    ({"num_generations": 1000, "num_turns": 2}, False),  # 1000 + 1000 * 1000
    ({"num_generations": 1000, "num_turns": 1, "joint_mode": "cross"}, True),
    ({"num_generations": 1000, "num_turns": 1, "joint_mode": "cross", "num_agents": 3}, False),
    ({"num_generations": 2, "num_turns": 1000}, False),
])  # fmt: skip
def test_a_tree_that_no_memory_holds_is_refused(settings, fits):
    with contextlib.nullcontext() if fits else pytest.raises(ValueError, match=r"more than 1,000,000 joint responses"):
        MAGRPOConfig(**settings)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("top_k", 0, 0),
        ("top_k", None, None),
        ("early_termination_threshold", None, None),
        ("max_grad_norm", None, None),
        ("agent_learning_rate", "1e-5", 1e-5),  # YAML reads 1e-5 as text
        ("temperature", 1, 1.0),
        ("num_turns", 3.0, 3),
        ("agent_devices", "cpu", "cpu"),
        ("agent_devices", ["cpu", "cpu"], ["cpu", "cpu"]),
        ("joint_mode", "cross", "cross"),
        ("joint_mode", "crossed", "cross"),
        ("joint_mode", "align", "aligned"),
        ("train_batch_size", 1, 1),
    ],
)
def test_good_values(name, value, kept):
    assert getattr(MAGRPOConfig(**{name: value}), name) == kept


def test_train_batch_size_follows_the_buffer():
    assert MAGRPOConfig(rollout_buffer_size=7).train_batch_size == 7
    assert MAGRPOConfig(rollout_buffer_size=7, train_batch_size=3).train_batch_size == 3


# --- warnings ----------------------------------------------------------------------------------


def test_no_warning_by_default():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MAGRPOConfig()
        MARLOOConfig(advantage_normalization=False)


def test_discount_warns_that_it_is_not_used():
    with pytest.warns(UserWarning, match="discount is not used") as seen:
        MAGRPOConfig(discount=0.9)
    assert len(seen) == 1


@pytest.mark.parametrize("config", [MAREINFORCEConfig, MARLOOConfig, MAReMaxConfig])
def test_normalisation_hides_the_baseline_and_says_so(config):
    with pytest.warns(UserWarning, match=r"advantage_normalization is on.*advantage_normalization=False") as seen:
        config()
    assert len(seen) == 1
    assert seen[0].filename == __file__  # points at the user's line


@pytest.mark.parametrize("mode", ["raw", "rloo", "max"])
def test_normalisation_warns_for_magrpo_with_another_baseline(mode):
    with pytest.warns(UserWarning, match=f"{mode}.*same numbers"):
        MAGRPOConfig(advantage_mode=mode)


# --- mappings ----------------------------------------------------------------------------------


def test_from_dict():
    assert MAGRPOConfig.from_dict({"num_turns": 1, "seed": 3}) == MAGRPOConfig(num_turns=1, seed=3)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("num_turn", "num_turns"), ("learning_rate", "agent_learning_rate"), ("max_tokens", "max_new_tokens")],
)
def test_unknown_names_suggest_the_nearest_field(wrong, right):
    with pytest.raises(ValueError, match=rf"'{wrong}' \(did you mean '{right}'\?\)"):
        MAGRPOConfig.from_dict({wrong: 1})


def test_actor_critic_fields_are_unknown_to_the_reinforce_family():
    with pytest.raises(ValueError, match="no field 'value_clip_range'"):
        MAGRPOConfig.from_dict({"value_clip_range": 0.2})


def test_wrong_choice_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"did you mean 'aligned'"):
        MAGRPOConfig(joint_mode="alined")


@pytest.mark.parametrize("config", ALL)
def test_configs_survive_pickling(config):
    built = build(config, num_turns=1, advantage_normalization=False)
    assert pickle.loads(pickle.dumps(built)) == built
