"""Ordered reads in a batch: its own writes, merged with the committed state. Pure."""

from __future__ import annotations

import operator
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

#: Number of records in the first page of a scan, and in the largest: most scans are short, and a long one should
#: need few calls.
_FIRST: Final = 16
_LARGEST: Final = 1_024

#: Up to this many new keys are inserted one by one; more are added and sorted together.
_FEW: Final = 64


@dataclass(frozen=True, slots=True)
class ScanPage:
    """A range of the committed state."""

    items: Sequence[tuple[bytes, bytes]]
    """Keys with their values, in the requested order."""
    is_last: bool
    """Whether nothing more is in the requested range."""


class Pages(Protocol):
    """The committed state, read by pages."""

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        """Return the first ``limit`` keys of [start, stop) with their values; with ``reverse`` the last ones.

        There may be fewer if values are large, but none only if the page is the last one.
        """
        ...


class SortedWrites:
    """The keys that a batch has written, sorted; updated only by scans.

    Writers pay nothing: the changes are a dictionary that only grows, so new keys are at its end.
    """

    def __init__(self, changes: dict[bytes, bytes | None]) -> None:
        self._changes = changes
        self._keys: list[bytes] = []

    def between(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes | None]]:
        """Return the current changes of the keys in [start, stop), in key order."""
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
    """Yield both in one order; ``own`` overrides the committed value of the same key, None hides it.

    ``own`` is in key order, ``committed`` in the requested order.
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
    """Yield the committed keys of [start, stop), reading the next page when one is exhausted.

    Between two pages, nothing of the database is held, so an abandoned iterator keeps no file or snapshot alive. The
    state must not change meanwhile.
    """
    limit, is_last = _FIRST, start >= stop
    while not is_last:
        page = pages.page(start, stop, limit, reverse=reverse)
        yield from page.items
        is_last, limit = page.is_last, min(_LARGEST, 8 * limit)
        if not is_last:
            last = page.items[-1][0]
            # The first possible key after the last one is that key with a zero byte appended.
            start, stop = (start, last) if reverse else (last + b"\x00", stop)
