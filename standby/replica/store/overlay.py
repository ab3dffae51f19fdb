"""The state of one batch of a task: reads that see its own writes, ordered changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from standby.api import Store
from standby.replica.store.keys import after, prefix
from standby.replica.store.scan import Pages, ScanPage, SortedWrites, merged, paged

#: Full key → new value, or None for a deletion; in the order of each key's first write.
Changes = dict[bytes, "bytes | None"]


class Reads(Pages, Protocol):
    """The committed state below a batch."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each full key, in order; None where there is none."""
        ...


class Postponed(BaseException):
    """From a certain row on, the rows of a batch produce more than one transaction should hold.

    It ends the step's call, whose results are discarded. Not an `Exception`, so that the step does not catch it.
    """

    def __init__(self, row: int, notes: Changes) -> None:
        """``row`` 0: what is due before the first row is processed first, without rows, starting with ``notes``."""
        super().__init__(f"from row {row} on")
        self.row = row
        self.notes = notes


class StoreOverlay:
    """A named store during one batch; implements `standby.api.Store`."""

    def __init__(
        self, name: str, reads: Reads, changes: Changes, order: SortedWrites, *, may_postpone: bool
    ) -> None:
        self._may_postpone = may_postpone
        self._prefix = prefix(name)
        self._reads = reads
        self._changes = changes
        self._order = order

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        full = self._prefix + key
        if full in self._changes:
            return self._changes[full]
        return self._reads.get_many((full,))[0]

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the existing ones among ``keys`` with their values, in one look-up."""
        full_prefix, changes = self._prefix, self._changes
        present: dict[bytes, bytes] = {}
        missing = list(dict.fromkeys(keys))
        if changes:
            asked, missing = missing, []
            for key in asked:
                full = full_prefix + key
                if full not in changes:
                    missing.append(key)
                elif (value := changes[full]) is not None:
                    present[key] = value
        if missing:
            values = self._reads.get_many([full_prefix + key for key in missing])
            present |= {key: value for key, value in zip(missing, values, strict=True) if value is not None}
        return present

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def range(
        self, start: bytes = b"", stop: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys of [start, stop) with their values, in key order, as they are now."""
        end = after(self._prefix) if stop is None else self._prefix + stop
        assert end is not None, "a store's name begins with its length"
        return self._scan(self._prefix + start, end, reverse)

    def prefix(self, prefix: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys that begin with ``prefix``, whole, and their values, as they are now."""
        full = self._prefix + prefix
        end = after(full)
        assert end is not None, "a store's name begins with its length"
        return self._scan(full, end, reverse)

    def put(self, key: bytes, value: bytes) -> None:
        """Set ``key`` to ``value``."""
        # Checked here, where the author's line is in the traceback, not when the batch is written.
        if type(key) is not bytes or type(value) is not bytes:
            raise _not_bytes(key, value)
        self._changes[self._prefix + key] = value

    def put_many(self, pairs: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Set each key to its value, in order."""
        put = self.put
        for key, value in pairs.items() if isinstance(pairs, Mapping) else pairs:
            put(key, value)

    def delete(self, key: bytes) -> None:
        """Remove ``key``, whether it exists or not."""
        self._changes[self._prefix + key] = None

    def delete_many(self, keys: Iterable[bytes]) -> None:
        """Remove each key, whether it exists or not."""
        for key in keys:
            self.delete(key)

    def postpone(self, row: int, notes: Mapping[bytes, bytes]) -> None:
        """Raise `Postponed`, unless all rows must be processed at once; ``notes`` are then written to this store."""
        if self._may_postpone:
            raise Postponed(row, {self._prefix + key: value for key, value in notes.items()})

    def end(self) -> None:
        """Refuse all use from now on: the batch has ended, and its changes are being written to the changelog."""
        self._reads, self._changes = _OVER, _Over()

    def _scan(self, start: bytes, stop: bytes, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        # Taken at the call, not at the first item, so later writes of the batch are not seen. The committed state
        # does not change before the batch has ended, so reading it page by page is consistent, too.
        own = self._order.between(start, stop) if start < stop else []
        return self._without_prefix(merged(own, paged(self, start, stop, reverse=reverse), reverse=reverse))

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        """Return a page of the committed state, by full keys. Refused after the batch has ended."""
        return self._reads.page(start, stop, limit, reverse=reverse)

    def _without_prefix(self, items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        length = len(self._prefix)
        for key, value in items:
            if self._reads is _OVER:
                # A scan that was begun has own writes, and the rest of its page, without asking for anything.
                _refuse()
            yield key[length:], value


def _not_bytes(key: object, value: object) -> TypeError:
    return TypeError(f"a store maps bytes to bytes, not {type(key).__name__} to {type(value).__name__}")


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("the batch that this store was given for is over")


class _Over(Changes):
    """Replaces the changes of a batch that has ended; this costs a running batch nothing."""

    __contains__ = __getitem__ = __setitem__ = _refuse


class _OverReads:
    get_many = page = staticmethod(_refuse)


_OVER = _OverReads()


class BatchState(Mapping[str, Store]):
    """The stores of one task during one batch (a `standby.api.State`), and their changes.

    The last write of a key counts. Nothing is written to the committed state.
    """

    def __init__(self, stores: Iterable[str], reads: Reads, *, may_postpone: bool = False) -> None:
        """``may_postpone``: whether the caller handles `Postponed`."""
        self.changes: Changes = {}
        order = SortedWrites(self.changes)
        self._stores = {
            name: StoreOverlay(name, reads, self.changes, order, may_postpone=may_postpone) for name in stores
        }

    def __getitem__(self, name: str) -> Store:
        return self._stores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def end(self) -> None:
        """Make every store, and every iterator over one, refuse all use from now on."""
        for store in self._stores.values():
            store.end()
