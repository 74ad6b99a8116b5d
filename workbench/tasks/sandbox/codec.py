"""Plain data to bytes and back, for what crosses between a candidate program and its checker.

The checker must read bytes that hostile code wrote, so pickle and marshal are out (both can run or corrupt the
reader), and json has no tuples, sets, bytes or infinities. The format is a tag and a length per value; nothing but
None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset and dict can come out, and subclasses
arrive as their plain base. This module is read by a bare interpreter: it imports nothing but os and select.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing would double the time that every program takes to start
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 100  # nested containers; deeper data is refused, so that no reader runs out of stack
HEADER = 4  # bytes of a frame's length
NAMES = {None: b"n", True: b"t", False: b"f"}
CONTAINERS: tuple[tuple[Any, bytes], ...] = ((list, b"l"), (tuple, b"u"), (set, b"e"), (frozenset, b"z"))
BUILDERS: dict[bytes, Any] = {tag: kind for kind, tag in CONTAINERS}


def encode(value: Any) -> bytes:
    """`value` as bytes. TypeError naming the type that is not plain data, ValueError when it is nested too deep."""
    parts: list[bytes] = []
    _encode(value, parts, 0)
    return b"".join(parts)


def _encode(value: Any, parts: list[bytes], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"data nested more than {MAX_DEPTH} levels deep")
    if value is None or value is True or value is False:
        parts.append(NAMES[value])
    elif isinstance(value, int):
        parts.append(b"i%x;" % value)
    elif isinstance(value, float):
        parts.append(b"d%s;" % float.hex(value).encode())
    elif isinstance(value, complex):
        parts.append(b"c%s,%s;" % (float.hex(value.real).encode(), float.hex(value.imag).encode()))
    elif isinstance(value, str):
        data = str.encode(value, "utf-8", "surrogatepass")
        parts += [b"s%d;" % len(data), data]
    elif isinstance(value, (bytes, bytearray)):
        parts += [b"b%d;" % len(value), bytes(value)]
    else:
        _encode_container(value, parts, depth + 1)


def _encode_container(value: Any, parts: list[bytes], depth: int) -> None:
    if isinstance(value, dict):
        parts.append(b"m%d;" % len(value))
        for key, held in value.items():
            _encode(key, parts, depth)
            _encode(held, parts, depth)
        return
    for kind, tag in CONTAINERS:
        if isinstance(value, kind):
            parts.append(b"%s%d;" % (tag, len(value)))
            for held in value:
                _encode(held, parts, depth)
            return
    raise TypeError(f"a value of type {type(value).__name__}")


def decode(data: bytes) -> Any:
    """The value of `encode`'s bytes; ValueError for anything else, whatever is wrong with it."""
    reader = _Reader(data)
    try:
        value = reader.value(0)
    except (ValueError, TypeError, OverflowError) as error:  # also a list as a key, a float that is too large
        raise ValueError(f"malformed data: {error}") from None
    if reader.position != len(data):
        raise ValueError("malformed data: bytes are left over")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def _until(self, end: bytes = b";") -> str:
        stop = self.data.index(end, self.position)
        text = self.data[self.position : stop].decode("ascii")
        self.position = stop + 1
        return text

    def _count(self) -> int:
        """A length that the rest of the data can hold, since every value takes at least one byte."""
        count = int(self._until())
        if not 0 <= count <= len(self.data) - self.position:
            raise ValueError("a length reaches past its end")
        return count

    def _bytes(self) -> bytes:
        count = self._count()
        self.position += count
        return self.data[self.position - count : self.position]

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH + 1:
            raise ValueError("nested too deep")
        tag = self.data[self.position : self.position + 1]
        self.position += 1
        if tag in b"ntf" and tag:
            return {b"n": None, b"t": True, b"f": False}[tag]
        if tag == b"i":
            return int(self._until(), 16)
        if tag == b"d":
            return float.fromhex(self._until())
        if tag == b"c":
            return complex(*map(float.fromhex, self._until().split(",")))
        if tag == b"s":
            return self._bytes().decode("utf-8", "surrogatepass")
        if tag == b"b":
            return self._bytes()
        return self._container(tag, depth + 1)

    def _container(self, tag: bytes, depth: int) -> Any:
        if tag == b"m":
            return {self.value(depth): self.value(depth) for _ in range(self._count())}
        if tag not in BUILDERS:
            raise ValueError(f"unknown tag {tag!r}")
        return BUILDERS[tag]([self.value(depth) for _ in range(self._count())])


def write_frame(descriptor: int, payload: bytes) -> None:
    """A length and the payload, to a descriptor that blocks."""
    rest = memoryview(len(payload).to_bytes(HEADER, "big") + payload)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_frame(descriptor: int) -> bytes:
    """The next frame of a descriptor that blocks; EOFError when the other side has gone."""
    return _read_exactly(descriptor, int.from_bytes(_read_exactly(descriptor, HEADER), "big"))


def _read_exactly(descriptor: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
