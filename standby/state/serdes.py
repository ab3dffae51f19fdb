"""Serialisation of values, and of keys whose bytes have the order of the values. Pure."""

from __future__ import annotations

import operator
import reprlib
from typing import Any, Final, Protocol, TypeVar

from standby.api import ValueRefused

T = TypeVar("T")

#: Added so that the order of unsigned bytes is the order of signed numbers.
_OFFSET: Final = 1 << 63

#: In a composite key, a zero byte in a text is escaped like this, and the text ends with `_END`. The end is lower
#: than any continuation of a text, so the shorter of two texts comes first.
_ESCAPED: Final = b"\x00\xff"
_END: Final = b"\x00\x01"


class Serde(Protocol[T]):
    """Converts values to bytes and back."""

    def dump(self, value: T, /) -> bytes:
        """Return the value as bytes; equal values of the same types give equal bytes.

        Exceptions, so that they are no good keys: times of different zones, `Decimal` values with different numbers of
        zeros at the end, and 0.0 and -0.0, as `json_of` and `msgpack_of` write them.

        Raises `ValueRefused` for a value that `load` would not return unchanged.
        """
        ...

    def load(self, data: bytes, /) -> T:
        """Return the value. Raises `ValueError` for invalid bytes."""
        ...


class Key(Serde[T], Protocol[T]):
    """A serde whose bytes have the order of the values, which is required for scans."""

    def head(self, value: T, /) -> bytes:
        """Return the common prefix of the bytes of exactly those keys that begin with ``value``."""
        ...

    def dump_part(self, value: T, /) -> bytes:
        """Return the value as a part of a composite key: self-delimiting bytes."""
        ...

    def load_part(self, data: bytes, at: int, /) -> tuple[T, int]:
        """Return the part that begins at ``at``, and the start of the next one. Raises like `load`."""
        ...


class IntOutOfRange(ValueRefused, OverflowError):
    """A whole number has more than 64 bits."""


def _wrong(value: object, wanted: str) -> ValueRefused:
    return ValueRefused(f"{reprlib.repr(value)} is not {wanted}, but of type {type(value).__name__}")


class _Bytes:
    """Unchanged bytes."""

    def dump(self, value: bytes, /) -> bytes:
        if type(value) is bytes:
            return value
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _wrong(value, "bytes")
        return bytes(value)

    def load(self, data: bytes, /) -> bytes:
        return data

    def head(self, value: bytes, /) -> bytes:
        return self.dump(value)

    def dump_part(self, value: bytes, /) -> bytes:
        return self.dump(value).replace(b"\x00", _ESCAPED) + _END

    def load_part(self, data: bytes, at: int, /) -> tuple[bytes, int]:
        end = at
        # A zero byte in the text itself is escaped.
        while (end := data.find(b"\x00", end)) >= 0 and data[end : end + 2] == _ESCAPED:
            end += 2
        if end < 0 or data[end : end + 2] != _END:
            raise ValueError(f"{data[:32]!r} is not a composite key: a text in it does not end")
        return data[at:end].replace(_ESCAPED, b"\x00"), end + 2


class _Text:
    """Text as UTF-8, which has the order of the code points."""

    def dump(self, value: str, /) -> bytes:
        if not isinstance(value, str):
            raise _wrong(value, "text")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ValueRefused(f"{reprlib.repr(value)} cannot be encoded as UTF-8: {error.reason}") from error

    def load(self, data: bytes, /) -> str:
        return data.decode()

    def head(self, value: str, /) -> bytes:
        return self.dump(value)

    def dump_part(self, value: str, /) -> bytes:
        return BYTES.dump_part(self.dump(value))

    def load_part(self, data: bytes, at: int, /) -> tuple[str, int]:
        part, end = BYTES.load_part(data, at)
        return part.decode(), end


class _Int:
    """Signed 64-bit whole numbers, eight bytes each."""

    def dump(self, value: int, /) -> bytes:
        try:
            return (operator.index(value) + _OFFSET).to_bytes(8, "big")
        except TypeError:
            raise _wrong(value, "a whole number") from None
        except OverflowError:
            raise IntOutOfRange(f"{value} is outside of the 64 bits of INT") from None

    def load(self, data: bytes, /) -> int:
        if len(data) != 8:
            raise ValueError(f"{data[:32]!r} is not an INT: it has {len(data)} bytes, not 8")
        return int.from_bytes(data, "big") - _OFFSET

    def head(self, value: int, /) -> bytes:
        return self.dump(value)

    def dump_part(self, value: int, /) -> bytes:
        return self.dump(value)

    def load_part(self, data: bytes, at: int, /) -> tuple[int, int]:
        return self.load(data[at : at + 8]), at + 8


class _Tuple:
    """Tuples of a fixed length, ordered by the first part, then the second, and so on."""

    def __init__(self, parts: tuple[Key[Any], ...]) -> None:
        self._parts = parts

    def dump(self, value: tuple[Any, ...], /) -> bytes:
        data = self.head(value)
        if len(value) != len(self._parts):
            raise self._of_another_length(value)
        return data

    def load(self, data: bytes, /) -> tuple[Any, ...]:
        value, end = self.load_part(data, 0)
        if end != len(data):
            raise ValueError(f"{data[:32]!r} is longer than a key of {len(self._parts)} parts")
        return value

    def head(self, value: tuple[Any, ...], /) -> bytes:
        if not isinstance(value, tuple):
            raise _wrong(value, "a tuple")
        if len(value) > len(self._parts):
            raise self._of_another_length(value)
        # The last parts may be missing: then this is the prefix of all keys with the first ones.
        return b"".join(part.dump_part(each) for part, each in zip(self._parts, value, strict=False))

    def dump_part(self, value: tuple[Any, ...], /) -> bytes:
        return self.dump(value)

    def load_part(self, data: bytes, at: int, /) -> tuple[tuple[Any, ...], int]:
        values = []
        for part in self._parts:
            value, at = part.load_part(data, at)
            values.append(value)
        return tuple(values), at

    def _of_another_length(self, value: tuple[Any, ...]) -> ValueRefused:
        return ValueRefused(f"{reprlib.repr(value)} has {len(value)} parts, the key has {len(self._parts)}")


def dump_value(serde: Serde[T], value: T, key: object) -> bytes:
    """Return the value of a key as bytes. Raises `ValueRefused` with the key."""
    try:
        return serde.dump(value)
    except ValueRefused as error:
        kind = IntOutOfRange if isinstance(error, OverflowError) else ValueRefused
        raise kind(f"the value of key {reprlib.repr(key)}: {error}") from error


def load_value(serde: Serde[T], data: bytes, key: object) -> T:
    """Return the value of a key. Raises `ValueError` with the key for invalid bytes."""
    try:
        return serde.load(data)
    except ValueError as error:
        raise ValueError(
            f"the value of key {reprlib.repr(key)}, written for an earlier record, cannot be read: {error}"
        ) from error


BYTES: Final[Key[bytes]] = _Bytes()
TEXT: Final[Key[str]] = _Text()
INT: Final[Key[int]] = _Int()


def tuple_of(*parts: Key[Any]) -> Key[tuple[Any, ...]]:
    """Return the serde of composite keys with these parts, in the order of Python tuples.

    A prefix of a key is a tuple with fewer parts.
    """
    if not parts:
        raise ValueError("a composite key has at least one part")
    return _Tuple(parts)
