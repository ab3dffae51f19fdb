"""Finds the difference between a value and what was read back of it. Pure."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

#: Types for which `==` is sufficient, except for NaN.
_PLAIN: Final = frozenset({bool, bytes, float, int, str, type(None)})


@dataclasses.dataclass(frozen=True, slots=True)
class _Difference:
    """Two parts that differ, and their place in the values."""

    written: Any
    read: Any
    place: str = ""

    def within(self, step: str) -> _Difference:
        return dataclasses.replace(self, place=step + self.place)

    def __str__(self) -> str:
        where = f"at {self.place}, " if self.place else ""
        return f"{where}{_shown(self.written)} would come back as {_shown(self.read)}"


def difference(written: Any, read: Any) -> str | None:
    """Return a description of the first difference of two values; None when they are equal.

    Values are compared with `==`, except that NaN equals NaN, datetimes are equal if they are the same instant, and
    all fields of dataclasses, msgspec structs and attrs classes are compared, regardless of their own comparison.
    """
    found = _found(written, read)
    return None if found is None else str(found)


def _found(written: Any, read: Any) -> _Difference | None:
    if type(written) in _PLAIN and written == read:
        return None
    names = _fields(type(written))
    if names is None and not isinstance(written, dict | list | tuple):
        return None if _is_equal(written, read) else _Difference(written, read)
    if not _is_alike(written, read):
        return _Difference(written, read)
    for step, part, other in _parts(written, read, names):
        found = _found(part, other)
        if found is not None:
            return found.within(f".{step}" if names is not None else f"[{_shortened(step)}]")
    return None


def _is_alike(written: Any, read: Any) -> bool:
    """Return whether two values have the same kind, and the same number and names of parts."""
    if _fields(type(written)) is not None:
        return type(read) is type(written)
    if isinstance(written, dict):
        return isinstance(read, dict) and written.keys() == read.keys()
    kind = list if isinstance(written, list) else tuple
    return isinstance(read, kind) and len(read) == len(written)


def _parts(written: Any, read: Any, names: Iterable[str] | None) -> Iterator[tuple[Any, Any, Any]]:
    """Return the parts of two similar values, by name, key or number."""
    if names is not None:
        # A field without a value has no attribute in the instance.
        return ((name, getattr(written, name, None), getattr(read, name, None)) for name in names)
    if isinstance(written, dict):
        return ((key, part, read[key]) for key, part in written.items())
    return zip(range(len(written)), written, read, strict=True)


def not_finite(value: Any) -> str | None:
    """Return a description of the first NaN or infinity in a value; None when there is none."""
    try:
        plain = msgspec.to_builtins(value)
    except Exception:  # noqa: BLE001 - this only explains another error
        return None
    return next(_not_finite(plain, ""), None)


def _not_finite(plain: Any, place: str) -> Iterator[str]:
    if isinstance(plain, float) and not math.isfinite(plain):
        yield f"{plain}{f' at {place}' if place else ''}"
    elif isinstance(plain, dict):
        for key, each in plain.items():
            yield from _not_finite(each, f"{place}.{key}")
    elif isinstance(plain, list | tuple):
        for index, each in enumerate(plain):
            yield from _not_finite(each, f"{place}[{index}]")


def _is_equal(written: Any, read: Any) -> bool:
    """Return whether two values without parts are the same."""
    if isinstance(written, float) and isinstance(read, float) and math.isnan(written):
        return math.isnan(read)
    if isinstance(written, Decimal) and isinstance(read, Decimal):
        # `==` raises for a signaling NaN.
        return written.compare_total(read) == 0
    if isinstance(written, datetime) and isinstance(read, datetime):
        if (written.tzinfo is None) != (read.tzinfo is None):
            return False
        # Not `==`: in a repeated hour, no datetime is equal to one in another time zone.
        return written - read == timedelta()
    return bool(written == read)


def _shown(value: Any) -> str:
    return f"{_shortened(value)} ({type(value).__name__})"


def _shortened(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except Exception:  # noqa: BLE001 - a class of the job's own
        return "a value"


def _fields_of(kind: type[Any]) -> tuple[str, ...] | None:
    """Return the field names of a record class; None for another type."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(each.name for each in attributes)


_fields = cast("Callable[[type[Any]], tuple[str, ...] | None]", lru_cache(maxsize=1024)(_fields_of))
