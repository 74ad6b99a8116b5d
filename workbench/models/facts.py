"""How large a model is, read from its files without loading it: no torch, no network."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from workbench.models.gguf_header import read_header
from workbench.models.locations import ModelError, locate

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "vocabulary": ("vocab_size",),
}
"""What config.json calls the numbers that no model can do without, by architecture."""


@dataclass(frozen=True)
class ModelFacts:
    """Sizes of a decoder. tied: the output layer is the embedding, so that it exists once."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @property
    def kv_width(self) -> int:
        """Numbers per token and layer in each of the two caches."""
        return self.kv_heads * self.head_dim

    @property
    def output_parameters(self) -> int:
        """Of an output layer of its own."""
        return 0 if self.tied else self.vocabulary * self.hidden


TINY = ModelFacts(98_816, 2, 64, 128, 4, 4, 16, 259, tied=True)
"""builtin:tiny, which has no files."""


def model_facts(source: str, options: Mapping[str, Any]) -> ModelFacts:
    """The sizes of a model by its name. options: the spec's model_config, of which revision, subfolder and cache_dir
    say where the files are. Raises ModelError with the reason when they cannot be known here."""
    if source == "builtin:tiny":
        return TINY
    location = locate(source)
    path = location if isinstance(location, Path) else _downloaded(location, options)
    if path.is_file():
        return _of_gguf(path, path.stat().st_mtime_ns)
    folder = path / (options.get("subfolder") or "")
    adapter = folder / "adapter_config.json"
    if adapter.is_file() and not (folder / "config.json").is_file():
        return model_facts(str(_json(adapter).get("base_model_name_or_path")), {})
    return _of_folder(folder, folder.stat().st_mtime_ns)


def _downloaded(name: str, options: Mapping[str, Any]) -> Path:
    from huggingface_hub import try_to_load_from_cache

    where = {key: options[key] for key in ("revision", "cache_dir") if options.get(key)}
    try:
        found = try_to_load_from_cache(name, "config.json", **where)
    except ValueError as error:  # not a name that a hub could have
        raise ModelError(f"The size of {name!r} is unknown: {error}") from error
    if not isinstance(found, str):
        raise ModelError(f"The size of {name!r} is unknown until it has been downloaded.")
    return Path(found).parent


@functools.lru_cache(maxsize=64)
def _of_folder(folder: Path, modified: int) -> ModelFacts:
    config = _json(folder / "config.json")
    config = config.get("text_config", config)
    numbers = {
        key: next((config[n] for n in names if isinstance(config.get(n), int)), 0) for key, names in NAMES.items()
    }
    if not all(numbers.values()):
        missing = next(NAMES[key][0] for key, value in numbers.items() if not value)
        raise ModelError(f"The size of the model in {folder} is unknown: its config.json has no {missing}.")
    tied = bool(config.get("tie_word_embeddings", True))
    return ModelFacts(
        parameters=_stored_parameters(folder, config, tied),
        intermediate=config.get("intermediate_size") or config.get("n_inner") or 4 * numbers["hidden"],
        kv_heads=config.get("num_key_value_heads") or numbers["heads"],
        head_dim=config.get("head_dim") or numbers["hidden"] // numbers["heads"],
        tied=tied,
        **numbers,
    )


def _stored_parameters(folder: Path, config: Mapping[str, Any], tied: bool) -> int:
    from safetensors import safe_open

    shapes: dict[str, int] = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="numpy") as tensors:
            shapes |= {name: prod(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    if shapes:
        return sum(size for name, size in shapes.items() if not (tied and name.startswith("lm_head.")))
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    size = sum(file.stat().st_size for file in folder.glob("pytorch_model*.bin"))
    if not size:
        raise ModelError(f"The size of the model in {folder} is unknown: it holds no weights.")
    return size // DTYPE_BYTES.get(dtype, 4)


@functools.lru_cache(maxsize=64)
def _of_gguf(file: Path, modified: int) -> ModelFacts:
    try:
        header = read_header(file)
    except (OSError, ValueError) as error:
        raise ModelError(f"The size of the model in {file} is unknown: {error}.") from error
    prefix = header.settings.get("general.architecture")

    def number(key: str, default: int = 0) -> int:
        found = header.settings.get(f"{prefix}.{key}") or default
        if not isinstance(found, int) or not found:
            raise ModelError(f"The size of the model in {file} is unknown: it does not say its {key}.")
        return found

    hidden, heads = number("embedding_length"), number("attention.head_count")
    return ModelFacts(
        parameters=sum(header.tensors.values()),
        layers=number("block_count"),
        hidden=hidden,
        intermediate=number("feed_forward_length", 4 * hidden),
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_dim=number("attention.key_length", hidden // heads),
        vocabulary=header.tensors.get("token_embd.weight", 0) // hidden,
        tied="output.weight" not in header.tensors,
    )


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"The size of the model in {file.parent} is unknown: {file.name} cannot be read.") from error
    return found if isinstance(found, dict) else {}
