"""A store of typed keys and values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar, cast

from standby.api import Store
from standby.state.serdes import Key, Serde, dump_value, load_value

K = TypeVar("K")
V = TypeVar("V")


class Typed(Generic[K, V]):
    """Like `standby.api.Store`, for keys and values of other types than bytes."""

    def __init__(self, store: Store, key: Serde[K], value: Serde[V]) -> None:
        self._store = store
        self._key = key
        self._value = value

    def get(self, key: K) -> V | None:
        """Return the value of ``key``, or None."""
        data = self._store.get(self._key.dump(key))
        return None if data is None else load_value(self._value, data, key)

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the existing ones among ``keys`` with their values, in one look-up."""
        by_bytes = {self._key.dump(key): key for key in keys}
        found = self._store.get_many(by_bytes)
        return {by_bytes[key]: load_value(self._value, value, by_bytes[key]) for key, value in found.items()}

    def __contains__(self, key: K) -> bool:
        return self._key.dump(key) in self._store

    def range(
        self, start: K | None = None, stop: K | None = None, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        """Return the keys from ``start`` up to but not including ``stop``, with values; like `Store.range`.

        For composite keys, a bound may have fewer parts. Raises `TypeError` when the keys have no order.
        """
        first = b"" if start is None else self._head(start)
        return self._loaded(
            self._store.range(first, None if stop is None else self._head(stop), reverse=reverse)
        )

    def prefix(self, prefix: K, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Return the keys that begin with ``prefix``, with values; for composite keys, those with its parts.

        Like `Store.prefix`. Raises `TypeError` when the keys have no order.
        """
        return self._loaded(self._store.prefix(self._head(prefix), reverse=reverse))

    def put(self, key: K, value: V) -> None:
        """Set ``key`` to ``value``. Raises `ValueRefused` for a value that would not be read back unchanged."""
        self._store.put(self._key.dump(key), dump_value(self._value, value, key))

    def put_many(self, pairs: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        """Set each key to its value, in order. Raises like `put`."""
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        self._store.put_many(
            (self._key.dump(key), dump_value(self._value, value, key)) for key, value in items
        )

    def delete(self, key: K) -> None:
        """Remove ``key``, whether it exists or not."""
        self._store.delete(self._key.dump(key))

    def delete_many(self, keys: Iterable[K]) -> None:
        """Remove each key, whether it exists or not."""
        self._store.delete_many(self._key.dump(key) for key in keys)

    def _head(self, key: K) -> bytes:
        return head(self._key, key)

    def _loaded(self, items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        for data, value in items:
            key = self._key.load(data)
            yield key, load_value(self._value, value, key)


def typed(store: Store, *, key: Serde[K], value: Serde[V]) -> Typed[K, V]:
    """Return ``store`` with keys and values of the given kinds."""
    return Typed(store, key, value)


def head(serde: Serde[K], key: K) -> bytes:
    """Return the prefix of keys that begin with ``key``. Raises `TypeError` for a serde without an order."""
    if not hasattr(serde, "head"):
        raise TypeError(
            f"keys of {type(serde).__name__} are not in the order of their values; scan with BYTES, TEXT, INT or "
            "tuple_of(…) as key"
        )
    return cast("Key[K]", serde).head(key)
