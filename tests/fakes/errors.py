"""Exceptions of every kind that a job's code may raise, each created by a function."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any, Final


class Mute(Exception):
    """Whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Quitting(Exception):
    """Asking for its text ends the process."""

    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


class Beyond(BaseException):
    """No `Exception`."""


_GROUP: Final[Any] = getattr(builtins, "BaseExceptionGroup", None)


def _group() -> BaseException:
    group: BaseException = _GROUP("some", [ValueError("\udfff"), KeyboardInterrupt()])
    return group


def _circle() -> BaseException:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


KINDS: Final[Mapping[str, Callable[[], BaseException]]] = {
    "surrogate": lambda: ValueError("half a pair: \ud800"),
    "mute": Mute,
    "quitting": Quitting,
    "enormous": lambda: ValueError("x" * 5_000_000),
    "long lines": lambda: ValueError("\n".join(["line"] * 100_000)),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "beyond": lambda: Beyond("\udc80"),
    # Python 3.10 has no exception groups.
    **({"group": _group} if _GROUP is not None else {}),
    "circle": _circle,
    "memory": MemoryError,
    "recursion": lambda: RecursionError("deep"),
    "empty": ValueError,
}
