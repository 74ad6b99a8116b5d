"""How much memory a run will need on each device, before it starts; and how much it really used.

Weights, gradients and optimizer states are exact: AdamW keeps two numbers per trained parameter. What passes through
the models is an estimate for the worst moment: full batches of the longest completions. Everything in bytes. Models
are not loaded, only the headers of their files are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.config import TrainingConfig
from workbench.models.facts import DTYPE_BYTES, ModelFacts, model_facts
from workbench.models.locations import ModelError
from workbench.runs.hardware import Hardware, canonical, probe
from workbench.runs.spec import ResolvedRun
from workbench.runs.supervision import read_exit
from workbench.runs.workspace import RunFolder

WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer"
ACTIVATIONS, CACHE, PROGRAM = "activations", "generation cache", "program"
PASSING = (ACTIVATIONS, CACHE)
"""What is there only while a model generates or is updated; not both at once."""
PROGRAM_BYTES = {"main": 650 * 2**20, "worker": 500 * 2**20, "cuda": 500 * 2**20}
"""Of a process with torch, transformers and MLflow, of one without MLflow, and of a process's CUDA context."""
LOGIT_COPIES = 4  # logits, log-probabilities, their gradient, and the entropy's probabilities
SAMPLING_COPIES = 3  # logits, probabilities, and what top-k and top-p sort
PROMPT_TOKENS = 256  # where the task's items do not tell
CHARACTERS_PER_TOKEN = 3  # fewer than in English text with a usual tokenizer, so that the estimate is not too low
LORA_RANK, LORA_TARGETS = 8, ("q_proj", "v_proj")  # peft's defaults for most models


@dataclass(frozen=True)
class Part:
    """Bytes of one kind for one owner, such as "agent 0"."""

    owner: str
    kind: str
    bytes: int


@dataclass(frozen=True)
class DevicePlan:
    """One device. needed: bytes at the worst moment; free: bytes now, None when the device does not tell."""

    device: str
    parts: tuple[Part, ...]
    needed: int
    free: int | None

    @property
    def fits(self) -> bool | None:
        """None when it cannot be said."""
        return None if self.free is None else self.needed <= self.free


@dataclass(frozen=True)
class MemoryPlan:
    """unknown: one sentence per model whose size is unknown; the devices' numbers are then too low by it.
    prompt_tokens: the assumed length of a prompt."""

    devices: tuple[DevicePlan, ...]
    unknown: tuple[str, ...]
    prompt_tokens: int


@dataclass(frozen=True)
class _Model:
    owner: str
    source: str
    device: str
    trained: bool
    critic: bool = False


def memory_plan(resolved: ResolvedRun, machine: Hardware | None = None, prompt_tokens: int | None = None) -> MemoryPlan:
    """The plan of a run. machine: this one, looked at now, unless given. prompt_tokens: None = by the task's items."""
    machine = machine or probe()
    config, options = resolved.config, resolved.spec.model_options
    length = prompt_tokens or _prompt_tokens(resolved)
    parts: dict[str, list[Part]] = {}
    unknown: dict[str, None] = {}
    models = _models(resolved, machine)
    for model in models:
        try:
            facts = model_facts(model.source, options)
        except ModelError as error:
            unknown[str(error)] = None
            continue
        parts.setdefault(model.device, []).extend(_parts(model, facts, config, options, length))
    for part, device in _programs(models, config):
        parts.setdefault(device, []).append(part)
    at_once = config.parallel_training != "none"
    plans = [
        DevicePlan(device, tuple(found), _needed(found, at_once), machine.free_memory(device))
        for device, found in sorted(parts.items())
    ]
    return MemoryPlan(tuple(plans), tuple(unknown), length)


def actual_memory(run: RunFolder) -> dict[str, int]:
    """The most bytes a run used per device so far, as far as it was recorded: {} before its first item."""
    used = dict(run.own_status().memory or {})
    ended = read_exit(run.exit_file)
    if ended is not None and ended.peak_rss is not None:
        used["cpu"] = max(used.get("cpu", 0), ended.peak_rss)
    return used


# --- which models, and where ----------------------------------------------------------------------


def _models(resolved: ResolvedRun, machine: Hardware) -> list[_Model]:
    spec, config, count = resolved.spec, resolved.config, resolved.task.num_agents
    values = vars(config)
    agents = _spread(values["agent_devices"], count)
    sources = spec.agents or [str(spec.model)] * count
    if config.parallel_training == "none":  # all on one device, whichever field names it
        named = [_spread(values.get(f), count) for f in ("agent_devices", "reference_devices", "critic_devices")]
        agents = next(filter(None, named), [machine.default_device()] * count)
    models = [_Model(f"agent {i}", sources[i], agents[i], trained=True) for i in range(count)]
    if config.reference_kl_enabled:
        places = _spread(values["reference_devices"], count) or agents
        models += [_Model(f"reference {i}", sources[i], places[i], trained=False) for i in range(count)]
    if spec.critic is not None:
        number = 1 if resolved.algorithm.name == "maac" else count
        critics = [spec.critic] * number if isinstance(spec.critic, str) else spec.critic
        places = _spread(values.get("critic_devices"), len(critics)) or _spread(agents, len(critics))
        models += [_Model(f"critic {i}", s, places[i], trained=True, critic=True) for i, s in enumerate(critics)]
    return models


def _spread(devices: Any, count: int) -> list[str]:
    """The device of each of `count` models, [] when nothing is said. A list of another length is repeated here, and
    refused by the training itself."""
    names = [devices] if isinstance(devices, str) else list(devices or [])
    return [canonical(names[i % len(names)]) for i in range(count)] if names else []


def _programs(models: Iterable[_Model], config: TrainingConfig) -> list[tuple[Part, str]]:
    """The training process and its workers, with the CUDA context of each on its GPU."""
    found = [(Part("training process", PROGRAM, PROGRAM_BYTES["main"]), "cpu")]
    if config.parallel_training == "none":
        owners = {model.device: "training process" for model in models}.items()
    else:
        owners = [(model.device, model.owner) for model in models]  # type: ignore[assignment]
        found += [(Part(owner, PROGRAM, PROGRAM_BYTES["worker"]), "cpu") for _, owner in owners]
    return found + [(Part(o, PROGRAM, PROGRAM_BYTES["cuda"]), d) for d, o in owners if d.startswith("cuda")]


def _needed(parts: Iterable[Part], at_once: bool) -> int:
    """What stays, and the most of what passes: in one process one model works at a time, workers all at once."""
    stays, passing = 0, dict[str, int]()
    for part in parts:
        if part.kind in PASSING:
            passing[part.owner] = max(passing.get(part.owner, 0), part.bytes)
        else:
            stays += part.bytes
    return stays + (sum(passing.values()) if at_once else max(passing.values(), default=0))


# --- the bytes of one model -----------------------------------------------------------------------


def _parts(
    model: _Model, facts: ModelFacts, config: TrainingConfig, options: Mapping[str, Any], prompt_tokens: int
) -> list[Part]:
    width = _dtype_bytes(options)
    adapter = _adapter_parameters(facts, options.get("lora"))
    trained = adapter if adapter is not None else facts.parameters - (facts.output_parameters if model.critic else 0)
    trained_width = width if adapter is None else DTYPE_BYTES["float32"]  # peft keeps adapters in float32
    sizes = {WEIGHTS: facts.parameters * width + (adapter or 0) * DTYPE_BYTES["float32"]}
    if model.trained:
        sizes |= {GRADIENTS: trained * trained_width, OPTIMIZER: 2 * trained * trained_width}
    sizes[ACTIVATIONS] = _activations(model, facts, config, prompt_tokens, width)
    if not model.critic and model.trained:
        sizes[CACHE] = _generation(facts, config, prompt_tokens, width)
    return [Part(model.owner, kind, size) for kind, size in sizes.items()]


def _activations(model: _Model, facts: ModelFacts, config: TrainingConfig, prompt: int, width: int) -> int:
    """Of one forward and backward pass; of a forward alone where nothing is trained."""
    batch = config.train_batch_size or config.rollout_buffer_size
    sequences = min(config.micro_batch_size or batch * config.num_generations, batch * config.num_generations)
    tokens = sequences * (prompt + config.max_new_tokens)
    # Inputs of what the backward pass visits: two norms, the projections, the rotated and the joined heads, the gate.
    per_layer = 10 * facts.hidden + 3 * facts.kv_width + 4 * facts.intermediate
    if not model.trained:
        numbers = tokens * per_layer
    elif config.gradient_checkpointing:
        numbers = tokens * (per_layer + facts.layers * facts.hidden)
    else:
        numbers = tokens * per_layer * facts.layers
    logits = 0 if model.critic else sequences * config.max_new_tokens * facts.vocabulary * LOGIT_COPIES
    return numbers * width + logits * DTYPE_BYTES["float32"]


def _generation(facts: ModelFacts, config: TrainingConfig, prompt: int, width: int) -> int:
    """Keys and values of all sequences that are sampled together, and one step's probabilities."""
    generations = config.num_generations
    cross = vars(config).get("joint_mode") == "cross"
    branches = generations**config.num_agents if cross else generations
    sequences = generations * branches ** (config.num_turns - 1)
    sequences = min(config.generation_batch_size or sequences, sequences)
    cache = sequences * (prompt + config.max_new_tokens) * facts.layers * 2 * facts.kv_width * width
    return cache + sequences * facts.vocabulary * SAMPLING_COPIES * DTYPE_BYTES["float32"]


def _dtype_bytes(options: Mapping[str, Any]) -> int:
    name = str(options.get("dtype") or options.get("torch_dtype") or "float32").removeprefix("torch.")
    return DTYPE_BYTES.get(name, 4)


def _adapter_parameters(facts: ModelFacts, lora: Mapping[str, Any] | None) -> int | None:
    """Trained numbers of a low-rank adapter; None without one."""
    if lora is None:
        return None
    h, f, q, kv = facts.hidden, facts.intermediate, facts.heads * facts.head_dim, facts.kv_width
    both = {"q_proj": h + q, "k_proj": h + kv, "v_proj": h + kv, "o_proj": q + h,
            "gate_proj": h + f, "up_proj": h + f, "down_proj": f + h}  # fmt: skip
    targets = lora.get("target_modules") or LORA_TARGETS
    names = both if targets == "all-linear" else [targets] if isinstance(targets, str) else targets
    per_layer = sum(both.get(name, 2 * h) for name in names)
    return int(lora.get("r", LORA_RANK)) * per_layer * facts.layers


def _prompt_tokens(resolved: ResolvedRun) -> int:
    """By the longest prompt among the first items; formatters, which may add to it, are not run."""
    if resolved.spec.dataset is not None:  # may have to be downloaded first
        return PROMPT_TOKENS
    items = resolved.task.load_train_items()
    texts = [items[i].get("prompt") for i in range(min(100, len(items)))]
    lengths = [len(text) for text in texts if isinstance(text, str)]
    per_token = 1 if resolved.spec.model == "builtin:tiny" else CHARACTERS_PER_TOKEN
    return max(lengths) // per_token + 1 if lengths else PROMPT_TOKENS
