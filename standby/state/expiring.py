"""Values that expire, by a time that comes with the data. Pure.

No clock is read: the time is the caller's, from the records or the batch, so that a replayed batch, a promoted
standby and a test come to the same state. What is removed is removed by ordinary writes, so the changelog has it,
and a standby stays byte for byte its active.

Three kinds of keys share the store, told apart by their first byte::

    d <key>               → <expiry> <value>    the data
    x <expiry> <key>      →                     what expires when, in order
    f                     → <expiry>            nothing in the order lies before this
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Generic, TypeVar

from standby.api import Store
from standby.state.serdes import INT, Serde, dump_value, load_value
from standby.state.typed import head

K = TypeVar("K")
V = TypeVar("V")

_DATA: Final = b"d"
_EXPIRY: Final = b"x"
_FLOOR: Final = b"f"

#: After so many writes, and before the first, up to twice as many expired values are removed: removal keeps up
#: with what is written, at the price of one short scan.
_WRITES: Final = 64


def data_key(key: bytes) -> bytes:
    """Return where the value of ``key`` lies in the store."""
    return _DATA + key


def split_value(data: bytes) -> tuple[int, bytes]:
    """Return when a value expires (milliseconds of the job's time), and the value itself; raises `ValueError`."""
    return INT.load(data[:8]), data[8:]


class Expiring(Generic[K, V]):
    """A store of values that are there until ``ttl_ms`` after they were put, for one batch at one time.

    A store that is used like this must be used like this only. ``now_ms`` is the time of the batch by the
    records or by a watermark made of them; when it falls from one batch to the next, what had expired and is
    not removed yet shows again.
    """

    def __init__(self, store: Store, *, now_ms: int, ttl_ms: int, key: Serde[K], value: Serde[V]) -> None:
        """``ttl_ms`` must be above 0."""
        if ttl_ms <= 0:
            raise ValueError(f"ttl_ms must be above 0, not {ttl_ms}")
        self._store = store
        self._now_ms = now_ms
        self._ttl_ms = ttl_ms
        self._key = key
        self._value = value
        self._due = _WRITES
        self._floor: int | None = None

    def get(self, key: K) -> V | None:
        """Return the value of ``key``, None when there is none or it has expired."""
        data = self._store.get(data_key(self._key.dump(key)))
        return None if data is None or self._has_expired(data) else load_value(self._value, data[8:], key)

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the present ones among ``keys`` with their values, in one look-up."""
        by_bytes = {data_key(self._key.dump(key)): key for key in keys}
        found = self._store.get_many(by_bytes)
        return {
            by_bytes[key]: load_value(self._value, data[8:], by_bytes[key])
            for key, data in found.items()
            if not self._has_expired(data)
        }

    def __contains__(self, key: K) -> bool:
        data = self._store.get(data_key(self._key.dump(key)))
        return data is not None and not self._has_expired(data)

    def range(
        self, start: K | None = None, stop: K | None = None, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        """Return what has not expired from ``start`` up to but not including ``stop``, as `Typed.range`."""
        first = _DATA if start is None else data_key(head(self._key, start))
        # The byte after the one that all data begins with.
        last = b"e" if stop is None else data_key(head(self._key, stop))
        return self._loaded(self._store.range(first, last, reverse=reverse))

    def prefix(self, prefix: K, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Return what has not expired of the keys that begin with ``prefix``, as `Typed.prefix`."""
        return self._loaded(self._store.prefix(data_key(head(self._key, prefix)), reverse=reverse))

    def put(self, key: K, value: V, at_ms: int | None = None) -> None:
        """Set ``key`` to ``value`` until the time to live after ``at_ms``, by default the batch's time.

        With a time so old that it would have expired already, this removes the key. Raises `ValueRefused` as
        `Typed.put`.
        """
        self.put_many(((key, value),), at_ms)

    def put_many(self, pairs: Mapping[K, V] | Iterable[tuple[K, V]], at_ms: int | None = None) -> None:
        """Set each key to its value, as `put`, in one look-up."""
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        # The last value of a key counts; each key has one place in the order of expiry.
        new = {self._key.dump(key): dump_value(self._value, value, key) for key, value in items}
        expiry = (self._now_ms if at_ms is None else at_ms) + self._ttl_ms
        self._make_room(len(new))
        self._forget(new)
        if expiry > self._now_ms:
            at = INT.dump(expiry)
            self._store.put_many((data_key(key), at + value) for key, value in new.items())
            self._store.put_many((_EXPIRY + at + key, b"") for key in new)
            self._lower(expiry)

    def delete(self, key: K) -> None:
        """Remove ``key``, whether it exists or not."""
        self._forget((self._key.dump(key),))

    def delete_many(self, keys: Iterable[K]) -> None:
        """Remove each key, whether it exists or not."""
        self._forget([self._key.dump(key) for key in keys])

    def expires_ms(self, key: K) -> int | None:
        """Return when ``key`` expires; None when there is no such key any more."""
        data = self._store.get(data_key(self._key.dump(key)))
        return None if data is None or self._has_expired(data) else split_value(data)[0]

    def sweep(self, limit: int) -> int:
        """Remove at most ``limit`` of the expired values, oldest first; return how many there were.

        Writing does it by the way; this is for a batch that has nothing to write.
        """
        floor = self._known_floor()
        # From the floor on, because a scan has to pass everything that was removed until the database tidies up.
        expired = self._store.range(_EXPIRY + INT.dump(floor), _EXPIRY + INT.dump(self._now_ms + 1))
        keys = [key for key, _ in islice(expired, limit)]
        self._store.delete_many(keys)
        self._store.delete_many(data_key(key[9:]) for key in keys)
        if keys:
            self._set_floor(self._now_ms + 1 if len(keys) < limit else INT.load(keys[-1][1:9]))
        return len(keys)

    def _has_expired(self, data: bytes) -> bool:
        return split_value(data)[0] <= self._now_ms

    def _loaded(self, items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        for found, data in items:
            if not self._has_expired(data):
                key = self._key.load(found[1:])
                yield key, load_value(self._value, data[8:], key)

    def _forget(self, keys: Iterable[bytes]) -> None:
        """Remove the values of keys and their places in the order of expiry."""
        for key, data in self._store.get_many([data_key(each) for each in keys]).items():
            self._store.delete(key)
            self._store.delete(_EXPIRY + data[:8] + key[1:])

    def _make_room(self, writes: int) -> None:
        self._due += writes
        if self._due >= _WRITES:
            due, self._due = self._due, 0
            self.sweep(2 * due)

    def _known_floor(self) -> int:
        if self._floor is None:
            data = self._store.get(_FLOOR)
            self._floor = -(1 << 63) if data is None else INT.load(data)
        return self._floor

    def _lower(self, expiry: int) -> None:
        """Keep the floor below a new expiry: above it only when the batch's time has fallen."""
        if expiry < self._known_floor():
            self._set_floor(expiry)

    def _set_floor(self, floor: int) -> None:
        if floor != self._known_floor():
            self._floor = floor
            self._store.put(_FLOOR, INT.dump(floor))
