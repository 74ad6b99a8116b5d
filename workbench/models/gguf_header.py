"""The header of a GGUF file: its settings and the shapes of its tensors.

The package `gguf` reads the same, but takes seconds for the vocabulary, which nobody needs here; a form cannot wait.
Source: the format's specification, versions 2 and 3, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

MAGIC, VERSIONS = b"GGUF", (2, 3)
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""struct's letter for each of the format's types of numbers."""
STRING, ARRAY = 8, 9
Value = str | int | float | bool | None


@dataclass(frozen=True)
class Header:
    """settings: without the lists, such as the vocabulary, which are None. tensors: how many numbers each one has."""

    settings: dict[str, Value]
    tensors: dict[str, int]


def read_header(file: Path) -> Header:
    """Raises ValueError, with half a sentence, for a file that is no GGUF file or ends too early."""
    with file.open("rb") as stream:
        if stream.read(4) != MAGIC:
            raise ValueError("it is not a GGUF file")
        if (version := _number(stream, "I")) not in VERSIONS:
            raise ValueError(f"its version {version} is not known here")
        tensors, settings = int(_number(stream, "Q")), int(_number(stream, "Q"))
        found = {_string(stream): _value(stream, int(_number(stream, "I"))) for _ in range(settings)}
        return Header(found, dict(_tensor(stream) for _ in range(tensors)))


def _tensor(stream: BinaryIO) -> tuple[str, int]:
    name = _string(stream)
    size = prod(int(_number(stream, "Q")) for _ in range(int(_number(stream, "I"))))
    stream.seek(4 + 8, 1)  # its type and place
    return name, size


def _value(stream: BinaryIO, kind: int) -> Value:
    if kind in NUMBERS:
        return _number(stream, NUMBERS[kind])
    if kind == STRING:
        return _string(stream)
    if kind != ARRAY:
        raise ValueError(f"it has a value of the unknown type {kind}")
    _skip(stream, int(_number(stream, "I")), int(_number(stream, "Q")))
    return None


def _skip(stream: BinaryIO, kind: int, count: int) -> None:
    if kind in NUMBERS:
        stream.seek(count * struct.calcsize(f"<{NUMBERS[kind]}"), 1)
        return
    for _ in range(count):
        _value(stream, kind)


def _string(stream: BinaryIO) -> str:
    return _read(stream, int(_number(stream, "Q"))).decode(errors="replace")


def _number(stream: BinaryIO, letter: str) -> int | float:
    number: int | float = struct.unpack(f"<{letter}", _read(stream, struct.calcsize(f"<{letter}")))[0]
    return number


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size) if size < 2**24 else b""  # no name is that long: the file is damaged
    if len(data) != size:
        raise ValueError("it ends too early or is damaged")
    return data
