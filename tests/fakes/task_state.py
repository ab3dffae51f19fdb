"""A task's committed state in memory, and batches as in the kernel: with the real overlay, without a database."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from standby.replica.store.keys import prefix
from standby.replica.store.overlay import BatchState
from standby.replica.store.scan import ScanPage


class TaskState:
    """The stores of one task, batch after batch; implements `standby.replica.store.overlay.Reads`."""

    def __init__(self, *stores: str) -> None:
        self.stores = stores
        self.content: dict[bytes, bytes] = {}
        self.written = 0
        """Changes of all batches, deletions included."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.content.get(each) for each in keys]

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        keys = sorted(self.content)
        found = keys[bisect_left(keys, start) : bisect_left(keys, stop)]
        if reverse:
            found.reverse()
        # Small pages: what matters is where one ends.
        limit = min(limit, 3)
        return ScanPage([(each, self.content[each]) for each in found[:limit]], len(found) <= limit)

    @contextmanager
    def batch(self) -> Iterator[BatchState]:
        """Yield the stores of a batch; what it wrote is committed unless it raises."""
        batch = BatchState(self.stores, self)
        try:
            yield batch
        finally:
            batch.end()
        self.written += len(batch.changes)
        for key, value in batch.changes.items():
            if value is None:
                self.content.pop(key, None)
            else:
                self.content[key] = value

    def of(self, store: str) -> dict[bytes, bytes]:
        """Return the committed content of one store."""
        head = prefix(store)
        return {key[len(head) :]: self.content[key] for key in sorted(self.content) if key.startswith(head)}
