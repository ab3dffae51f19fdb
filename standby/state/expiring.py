"""Values that expire, based on a time in the data. Pure.

No clock is read: the caller passes the time, from the records or the batch, so a replayed batch, a promoted standby
and a test reach the same state. Values are removed by ordinary writes, so the removals are in the changelog, and a
standby is always byte for byte identical to its active.

Three kinds of keys share the store, distinguished by their first byte::

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

#: After this many writes, and before the first, up to twice as many expired values are removed: removal keeps up
#: with the writes, at the cost of one short scan.
_WRITES: Final = 64


def data_key(key: bytes) -> bytes:
    """Return the store's key for the value of ``key``."""
    return _DATA + key


def split_value(data: bytes) -> tuple[int, bytes]:
    """Return the expiry of a value (milliseconds of the job's time), and the value. Raises `ValueError`."""
    return INT.load(data[:8]), data[8:]


class Expiring(Generic[K, V]):
    """A store whose values expire ``ttl_ms`` after they were put, for one batch at one time.

    The underlying store must not be used in any other way. ``now_ms`` is the time of the batch, from the records or
    from a watermark; if it decreases from one batch to the next, values that have expired but are not removed yet
    become visible again.
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
        """Return the value of ``key``; None when there is none or it has expired."""
        data = self._store.get(data_key(self._key.dump(key)))
        return None if data is None or self._has_expired(data) else load_value(self._value, data[8:], key)

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the existing ones among ``keys`` with their values, in one look-up."""
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
        """Return the unexpired keys from ``start`` up to but not including ``stop``, like `Typed.range`."""
        first = _DATA if start is None else data_key(head(self._key, start))
        # The byte after the prefix of all data.
        last = b"e" if stop is None else data_key(head(self._key, stop))
        return self._loaded(self._store.range(first, last, reverse=reverse))

    def prefix(self, prefix: K, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Return the unexpired keys that begin with ``prefix``, like `Typed.prefix`."""
        return self._loaded(self._store.prefix(data_key(head(self._key, prefix)), reverse=reverse))

    def put(self, key: K, value: V, at_ms: int | None = None) -> None:
        """Set ``key`` to ``value``, which expires ``ttl_ms`` after ``at_ms``, by default the batch's time.

        If it would have expired already, the key is removed. Raises `ValueRefused` like `Typed.put`.
        """
        self.put_many(((key, value),), at_ms)

    def put_many(self, pairs: Mapping[K, V] | Iterable[tuple[K, V]], at_ms: int | None = None) -> None:
        """Set each key to its value like `put`, in one look-up."""
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        # The last value of a key counts; each key has one entry in the order of expiry.
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
        """Return when ``key`` expires; None when it does not exist, or has expired."""
        data = self._store.get(data_key(self._key.dump(key)))
        return None if data is None or self._has_expired(data) else split_value(data)[0]

    def sweep(self, limit: int) -> int:
        """Remove at most ``limit`` expired values, oldest first; return how many were removed.

        Writes do this implicitly; this method is for batches that write nothing.
        """
        floor = self._known_floor()
        # Start at the floor, because a scan must skip all removed entries until the database is compacted.
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
        """Remove the values of keys and their entries in the order of expiry."""
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
        """Keep the floor at or below a new expiry: it is above only when the batch's time has decreased."""
        if expiry < self._known_floor():
            self._set_floor(expiry)

    def _set_floor(self, floor: int) -> None:
        if floor != self._known_floor():
            self._floor = floor
            self._store.put(_FLOOR, INT.dump(floor))
