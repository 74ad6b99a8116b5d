"""Placement: every case is decided before a model loads, on a machine with no, one or two (pretended) GPUs."""

import re
import types

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from workbench.config import IACConfig, MAACConfig, MAGRPOConfig
from workbench.models import workers as model_workers
from workbench.models.devices import place
from workbench.models.tiny import tiny_model, tiny_tokenizer
from workbench.trainers.actor_critic import IACTrainer
from workbench.trainers.reinforce import MAGRPOTrainer

CPU, GPU0, GPU1 = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


def machine(monkeypatch, gpus):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda") if gpus else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)


@pytest.fixture
def two_gpus(monkeypatch):
    machine(monkeypatch, 2)


@pytest.fixture
def no_gpu(monkeypatch):
    machine(monkeypatch, 0)


@pytest.fixture
def no_loading(monkeypatch):
    def refuse(*_):
        raise AssertionError("a model was loaded before its device was checked")

    monkeypatch.setattr(model_workers, "load_model", refuse)


def args(mode="mp", agents=None, references=None, critics=None):
    return types.SimpleNamespace(
        parallel_training=mode, agent_devices=agents, reference_devices=references, critic_devices=critics
    )


@pytest.mark.parametrize(("devices", "expected"), [
    ("cpu", [CPU] * 3),
    (["cpu"], [CPU] * 3),
    ("cuda", [GPU0] * 3),
    ("cuda:1", [GPU1] * 3),
    (["cuda:1"], [GPU1] * 3),
    (["cuda:0", "cpu", "cuda:1"], [GPU0, CPU, GPU1]),
    (["cuda:1", "cuda:1", "cuda"], [GPU1, GPU1, GPU0]),  # several models may share a device
])  # fmt: skip
def test_one_value_serves_all_and_a_list_goes_in_order(two_gpus, devices, expected):
    placed = place(args(agents=devices, references=devices, critics=devices), 3, 3)
    assert [list(placed.agents), list(placed.references), list(placed.critics)] == [expected] * 3


def test_references_go_to_their_agents_unless_told_otherwise(two_gpus):
    assert place(args(agents=["cuda:0", "cuda:1"]), 2, 0).references == (GPU0, GPU1)
    assert place(args(agents=["cuda:0", "cuda:1"], references="cpu"), 2, 0).references == (CPU, CPU)


def test_a_central_critic_has_a_device_of_its_own(two_gpus):
    placed = place(args(agents="cuda:0", critics="cuda:1"), 2, 1)
    assert (placed.agents, placed.critics) == ((GPU0, GPU0), (GPU1,))


@pytest.mark.parametrize(("gpus", "given", "expected"), [
    (0, {}, CPU),
    (2, {}, GPU0),
    (2, {"agents": "cpu"}, CPU),
    (2, {"agents": ["cuda:1"] * 2, "critics": "cuda:1"}, GPU1),
    (2, {"references": "cuda:1"}, GPU1),
])  # fmt: skip
def test_without_processes_all_models_are_on_one_device(monkeypatch, gpus, given, expected):
    machine(monkeypatch, gpus)
    placed = place(args("none", **given), 2, 2)
    assert {*placed.agents, *placed.references, *placed.critics} == {expected}
    assert [len(placed.agents), len(placed.references), len(placed.critics)] == [2, 2, 2]


@pytest.mark.parametrize("mode", ["none", "mp"])
@pytest.mark.parametrize(("given", "critics", "message"), [
    ({"agents": ["cpu", "cpu", "cpu"]}, 0, "agent_devices lists 3 devices for 2 models; list 2, or one for all."),
    ({"agents": "cpu", "references": ["cpu"] * 3}, 0, "reference_devices lists 3 devices for 2 models"),
    ({"agents": "cpu", "critics": ["cpu", "cpu"]}, 1, "critic_devices lists 2 devices for 1 model; name one."),
    ({"agents": []}, 0, "agent_devices is an empty list; name a device, or leave it out."),
    ({"agents": "cpu", "critics": []}, 2, "critic_devices is an empty list"),
    ({"agents": "gpu"}, 0, "agent_devices: 'gpu' is not a device name; use 'cpu' or 'cuda:0'."),
    ({"agents": ""}, 0, "agent_devices: '' is not a device name"),
    ({"agents": ["cpu", "cuda:-1"]}, 0, "agent_devices: 'cuda:-1' is not a device name"),
    ({"agents": "cuda:2"}, 0, "agent_devices: there is no device 'cuda:2' on this machine (it has cpu and cuda:0, cu"),
    ({"agents": "cpu:1"}, 0, "agent_devices: there is no device 'cpu:1'"),
    ({"agents": "mps"}, 0, "agent_devices: there is no device 'mps'"),
    ({"agents": "meta"}, 0, "agent_devices: there is no device 'meta'"),
    ({"agents": "cpu", "references": "cuda:9"}, 0, "reference_devices: there is no device 'cuda:9'"),
    ({"agents": "cpu", "critics": ["cpu", "cuda:9"]}, 2, "critic_devices: there is no device 'cuda:9'"),
    ({"agents": "cpu", "critics": "cpu"}, 0, "critic_devices is set, but there is no separate critic to place; remove"),
])  # fmt: skip
def test_what_cannot_be_placed_is_refused_by_name(two_gpus, mode, given, critics, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        place(args(mode, **given), 2, critics)


def test_a_machine_without_gpu_says_so(no_gpu):
    with pytest.raises(ValueError, match=r"no device 'cuda' on this machine \(it has cpu and no accelerator\)"):
        place(args(agents="cuda"), 2, 0)


@pytest.mark.parametrize("given", [
    {"agents": ["cpu", "cuda:1"]},
    {"agents": "cpu", "references": "cuda:0"},
    {"agents": "cuda:0", "critics": "cuda:1"},
])  # fmt: skip
def test_several_devices_need_processes(two_gpus, given):
    with pytest.raises(ValueError, match=r"name several devices \(.*\).*use parallel_training='mp'"):
        place(args("none", **given), 2, 2)


# --- in configurations and trainers ---------------------------------------------------------------


@pytest.mark.parametrize(("config", "given", "message"), [
    (MAGRPOConfig, {}, "agent_devices is required with parallel_training 'mp'"),
    (MAACConfig, {"critic_devices": "cpu"}, "agent_devices is required"),
    (MAACConfig, {"agent_devices": "cpu"}, "critic_devices is required with parallel_training 'mp'"),
    (IACConfig, {"agent_devices": "cpu"}, "critic_devices is required"),
])  # fmt: skip
def test_processes_must_be_told_where(config, given, message):
    with pytest.raises(ValueError, match=message):
        config(parallel_training="mp", num_turns=1, **given)


def test_a_shared_model_needs_no_critic_devices():
    assert IACConfig(parallel_training="mp", use_separate_critic=False, agent_devices="cpu").critic_devices is None


def build(trainer=MAGRPOTrainer, fields=(), **arguments):
    settings = {"num_turns": 1, "parallel_training": "mp", "agent_devices": "cpu"} | dict(fields)
    given = {"reward_func": lambda a, b: [0.0] * len(a), "args": trainer.config_class(**settings)} | arguments
    return trainer(**given)


def test_a_missing_device_is_an_error_before_any_model_loads(no_gpu, no_loading):
    with pytest.raises(ValueError, match="agent_devices: there is no device 'cuda:0'"):
        build(agent_model="builtin:tiny", num_agents=2, fields={"agent_devices": ["cpu", "cuda:0"]})


def test_one_model_cannot_be_on_two_devices(two_gpus, no_loading):
    model = tiny_model()
    with pytest.raises(ValueError, match="agent 0 and agent 1 are one model, but the agents' devices put it on cpu"):
        build(agents=[model, model], tokenizer=tiny_tokenizer(), fields={"agent_devices": ["cpu", "cuda:1"]})


def test_the_reference_of_one_model_cannot_be_on_two_devices(two_gpus, no_loading):
    model = tiny_model()
    fields = {"reference_devices": ["cpu", "cuda:1"], "reference_kl_enabled": True}
    with pytest.raises(ValueError, match="the references' devices put it on cpu and on cuda:1; give it one device"):
        build(agents=[model, model], tokenizer=tiny_tokenizer(), fields=fields)


def test_a_shared_critic_cannot_be_on_two_devices(two_gpus, no_loading):
    critic = GPT2LMHeadModel(GPT2Config(vocab_size=259, n_positions=64, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(ValueError, match="critic 0 and critic 1 are one model, but the critics' devices"):
        build(IACTrainer, {"critic_devices": ["cpu", "cuda:1"]}, agent_model="builtin:tiny", critic_model=critic)


def test_critic_devices_without_separate_critics_are_refused(no_loading):
    with pytest.raises(ValueError, match="critic_devices is set, but there is no separate critic"):
        build(
            IACTrainer,
            {"critic_devices": "cpu", "use_separate_critic": False},
            agent_model="builtin:tiny",
            num_agents=2,
        )
