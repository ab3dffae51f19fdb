"""Ordered reads of one batch: its own writes merged with the committed state below. Pure."""

from __future__ import annotations

import operator
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

#: The first page of a scan, records, and the largest: most scans are short, and a long one should cost few calls.
_FIRST: Final = 16
_LARGEST: Final = 1_024

#: So many new keys are put into their places one by one; more are sorted in together.
_FEW: Final = 64


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of the committed state."""

    items: Sequence[tuple[bytes, bytes]]
    """Keys with their values, in the order that was asked for."""
    is_last: bool
    """Whether there is nothing more in the range that was asked for."""


class Pages(Protocol):
    """The committed state, by the page."""

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> Page:
        """Return the first, or with ``reverse`` the last, at most ``limit`` keys of [start, stop).

        There may be fewer, where values are large, but never none unless the page is the last.
        """
        ...


class Order:
    """The keys that a batch has written, sorted; brought up to date only when somebody scans.

    It costs writers nothing: the changes are a dictionary that only grows, so what is new is at its end.
    """

    def __init__(self, changes: dict[bytes, bytes | None]) -> None:
        self._changes = changes
        self._keys: list[bytes] = []

    def between(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes | None]]:
        """Return the changes of the keys in [start, stop) as they are now, in key order."""
        keys = self._keys
        new = list(islice(reversed(self._changes), len(self._changes) - len(keys)))
        if len(new) <= _FEW:
            for key in new:
                insort(keys, key)
        else:
            keys += new
            keys.sort()
        found = keys[bisect_left(keys, start) : bisect_left(keys, stop)]
        return [(key, self._changes[key]) for key in found]


def merged(
    own: list[tuple[bytes, bytes | None]], committed: Iterator[tuple[bytes, bytes]], *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yield both in one order, ``own`` before what is committed under the same key; None as value hides it.

    ``own`` is in key order, ``committed`` in the order that is asked for.
    """
    comes_before = operator.lt
    if reverse:
        own, comes_before = own[::-1], operator.gt
    at, end = 0, len(own)
    for key, value in committed:
        while at < end and comes_before(own[at][0], key):
            changed, new = own[at]
            at += 1
            if new is not None:
                yield changed, new
        if at < end and own[at][0] == key:
            new = own[at][1]
            at += 1
            if new is not None:
                yield key, new
        else:
            yield key, value
    for changed, new in islice(own, at, end):
        if new is not None:
            yield changed, new


def paged(pages: Pages, start: bytes, stop: bytes, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield the committed keys of [start, stop), reading a page when the one before is used up.

    Between two pages nothing of the database is held: an iterator that nobody ends keeps no file and no
    snapshot alive. The state must not change meanwhile.
    """
    limit, is_last = _FIRST, start >= stop
    while not is_last:
        page = pages.page(start, stop, limit, reverse=reverse)
        yield from page.items
        is_last, limit = page.is_last, min(_LARGEST, 8 * limit)
        if not is_last:
            last = page.items[-1][0]
            # The first key behind the last one is the same with a zero byte after it.
            start, stop = (start, last) if reverse else (last + b"\x00", stop)
