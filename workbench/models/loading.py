"""From a model's name, folder or GGUF file to a loaded model and its tokenizer.

Options that `model_config` names are passed on or refused by name; none is dropped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.quantization_config import QuantizationMethod

from workbench.fields import did_you_mean
from workbench.models.locations import BUILTIN_FOLDER as BUILTIN_FOLDER
from workbench.models.locations import BUILTINS, ModelError, locate
from workbench.models.tiny import tiny_model, tiny_tokenizer

LOADING_KEYS = ("attn_implementation", "revision", "trust_remote_code", "cache_dir", "token", "subfolder",
                "quantization_config", "low_cpu_mem_usage", "use_safetensors", "variant")  # fmt: skip
TOKENIZER_KEYS = ("revision", "trust_remote_code", "cache_dir", "token", "subfolder")
OWN_KEYS = ("dtype", "torch_dtype", "lora", "special_tokens", "model_kwargs")


@dataclass(frozen=True)
class ModelOptions:
    """A checked `model_config`."""

    dtype: torch.dtype | None = None  # None: float32, since AdamW loses small updates in 16 bits
    loading: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, Any] | None = None
    special_tokens: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, model_config: Mapping[str, Any] | None) -> ModelOptions:
        """Raises ValueError for a key that nothing would use."""
        options = _mapping(model_config or {}, "model_config")
        for key in ("model_kwargs", "special_tokens", "lora"):
            if options.get(key) is not None:
                _mapping(options[key], f"model_config[{key!r}]")
        for key in options:
            if key not in LOADING_KEYS + OWN_KEYS:
                hint = did_you_mean(key, LOADING_KEYS + OWN_KEYS)
                raise ModelError(
                    f"model_config has an unknown key {key!r}{hint}; put other from_pretrained arguments under "
                    "model_config['model_kwargs']."
                )
        loading = {key: options[key] for key in LOADING_KEYS if key in options}
        if "dtype" in options and "torch_dtype" in options:
            raise ModelError("model_config has both dtype and torch_dtype (its old name); give one.")
        return cls(
            dtype=parse_dtype(options.get("dtype", options.get("torch_dtype"))),
            loading=loading | dict(options.get("model_kwargs") or {}),
            lora=options.get("lora"),
            special_tokens=options.get("special_tokens"),
        )

    def refuse_for_loaded(self) -> None:
        """Loading options have no effect on a model object: say so instead of dropping them."""
        useless = [*self.loading, *(["dtype"] if self.dtype else []), *(["lora"] if self.lora is not None else [])]
        if useless:
            raise ModelError(
                f"model_config[{useless[0]!r}] has no effect on a model that is already loaded; "
                "prepare the model with it, or pass the model's name instead."
            )

    def refuse_loading(self, source: str) -> None:
        """`source` is made here, not read with from_pretrained: no loading option applies to it."""
        if self.loading:
            raise ModelError(f"model_config[{next(iter(self.loading))!r}] has no effect on {source}; remove it.")


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ModelError(f"{name} must be a mapping of options, got {value!r}.")
    return dict(value)


def parse_dtype(name: Any) -> torch.dtype | None:
    """torch.bfloat16 from itself, "bfloat16" or "torch.bfloat16"; None stays None."""
    if name is None:
        return None
    dtype = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ModelError(f"model_config['dtype'] must be a torch dtype such as 'float32' or 'bfloat16', got {name!r}.")
    return dtype


def load_model(source: str, options: ModelOptions) -> PreTrainedModel:
    """The model in float32 (or options.dtype) on the CPU, with an adapter when options.lora asks for one."""
    if source == "builtin:tiny":
        options.refuse_loading(source)
        model: PreTrainedModel = tiny_model()
        for parameter in model.parameters():  # buffers stay float32, as from_pretrained keeps them
            parameter.data = parameter.data.to(options.dtype or torch.float32)
        model.config.dtype = options.dtype or torch.float32
    else:
        arguments = {"dtype": options.dtype or torch.float32, **options.loading}
        model, report = _from_pretrained(AutoModelForCausalLM, source, {**arguments, "output_loading_info": True})
        _check_complete(source, report)
        model = _dequantized(model)
    return with_lora(model, options.lora) if options.lora is not None else model


def _check_complete(source: str, report: Mapping[str, Any]) -> None:
    """A layer without stored weights would be random, and nobody would notice."""
    missing = sorted(report["missing_keys"])
    mismatched = sorted(str(key[0] if isinstance(key, tuple) else key) for key in report["mismatched_keys"])
    if missing or mismatched:
        names = [*missing, *mismatched]
        raise ModelError(
            f"{source!r} lacks weights that its config asks for ({len(names)}, such as {names[0]}); "
            "its files do not belong together, so get a complete copy."
        )


def _dequantized(model: PreTrainedModel) -> PreTrainedModel:
    """A model read from GGUF has plain weights, but still says it is quantised and refuses to be saved."""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None and quantizer.quantization_config.quant_method == QuantizationMethod.GGUF:
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
    return model


def load_tokenizer(source: str, options: ModelOptions) -> PreTrainedTokenizerBase:
    """The tokenizer that belongs to `source`."""
    if source == "builtin:tiny":
        return tiny_tokenizer()
    return _from_pretrained(AutoTokenizer, source, {k: v for k, v in options.loading.items() if k in TOKENIZER_KEYS})


def _from_pretrained(auto: Any, source: str, arguments: dict[str, Any]) -> Any:
    location = locate(source)
    if isinstance(location, Path) and location.is_file():
        arguments = {**arguments, "gguf_file": location.name}
        location = location.parent
    try:
        return auto.from_pretrained(str(location), **arguments)
    except Exception as error:  # dozens of types, which all mean that this source is unreadable
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"Cannot load {source!r} ({type(error).__name__}: {reason[0] if reason else 'no reason given'}); check the "
            f"name or path. Built-in models, which need no network: {', '.join(BUILTINS)}."
        ) from error


def with_lora(model: PreTrainedModel, lora: Mapping[str, Any]) -> Any:
    """The model with a new low-rank adapter; only the adapter is trained. lora: peft.LoraConfig arguments."""
    if importlib.util.find_spec("peft") is None:
        raise ModelError("model_config['lora'] needs the package peft: pip install 'marl-workbench[lora]'.")
    import peft

    known = peft.LoraConfig.__dataclass_fields__
    for key in lora:
        if key not in known:
            raise ModelError(f"model_config['lora'] has an unknown key {key!r}{did_you_mean(key, list(known))}.")
    try:
        return peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **lora))
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"model_config['lora'] is not a valid LoRA configuration: {error}.") from error


def fit_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make room in the model's embeddings for tokens that were added to the tokenizer."""
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tokenizer))
