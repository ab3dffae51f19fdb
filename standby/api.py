"""What a job's author uses: the types of the keyed state function.

A job is a module with up to two functions, named in its job file::

    def clean(df: DataFrame) -> DataFrame: ...                     # task.transform, on Spark
    def totals(rows: pyarrow.Table, state: State, out: Output) -> None: ...   # task.step

``clean`` gets the streaming DataFrame with the columns ``key`` (binary), ``value`` (binary),
``timestamp``, and the reserved ``_task`` (int) and ``_offset`` (long), which must be in its result; a job
with several inputs also has ``_topic`` (string), and must keep it and ``timestamp``; one with
``task.input.headers`` has ``headers`` (docs/inputs.md).
It must be pure: it also runs on a standby, to keep it warm, and there its result is thrown away.

``totals`` is called once per micro-batch and task, with that task's rows in ``_offset`` order (several
inputs are merged by ``timestamp``, each in its order). What
it writes to ``state`` and emits to ``out`` becomes visible together with the input's offset, or not
at all. It may be called again with the same rows after a failure, then from the same state,
and with only the first of them, when the others are to follow in another transaction. A step with windows or
sessions is called without rows where very many close at once (docs/event-time.md).

`standby.state` has typed keys and values, counters and expiry on top of a `Store` (docs/state.md),
`standby.eventtime` windows, sessions and de-duplication by the data's own time (docs/event-time.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol


class RowError(ValueError):
    """A row of a batch is wrong: what is reported of it names the record by its offset, not by the row.

    Raise it from a step for the number of the row, from 0, and what is wrong with it: `RowError(3, "has no price")`.
    """

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(f"row {row} of the batch {problem}")
        self.row: Final = row
        self.problem: Final = problem


class ValueRefused(ValueError):
    """A value is not written to a store, for what would be read back is not what it was.

    A serde raises it. Which record it comes of is found by trying less input, as where Kafka refuses a record
    (docs/failing-records.md).
    """


class Store(Protocol):
    """One named store of a task: bytes to bytes, in the order of the keys' bytes.

    Reads see the writes of the running batch. A store is of use during the call that it was given to; later
    it raises `RuntimeError`.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        ...

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the present ones among ``keys`` with their values, in one look-up."""
        ...

    def __contains__(self, key: bytes) -> bool:
        """Return whether ``key`` has a value; costs as much as `get`."""
        ...

    def range(
        self, start: bytes = b"", stop: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys from ``start`` up to but not including ``stop``, with their values, in key order.

        ``stop`` None is the end of the store; ``reverse`` yields the same, last key first. What is seen is the
        store as it was at the call: later writes of the batch do not show. Any number of iterators may be open,
        and none need be read to its end: they hold nothing but a page of records.
        """
        ...

    def prefix(self, prefix: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys that begin with ``prefix``, whole, and their values, as `range` does."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set ``key`` to ``value``; both may be empty, neither None."""
        ...

    def put_many(self, pairs: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Set each key to its value, in order."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove ``key``, whether it exists or not."""
        ...

    def delete_many(self, keys: Iterable[bytes]) -> None:
        """Remove each key, whether it exists or not."""
        ...


#: The task's stores by name, as `task.stores` lists them.
State = Mapping[str, Store]


class Output(Protocol):
    """Collects the records that a batch sends out."""

    def emit(
        self,
        key: bytes | None,
        value: bytes | None,
        topic: str | None = None,
        headers: Mapping[str, bytes] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send a record to ``topic`` (by default the first of `task.outputs`), partitioned by ``key``.

        ``headers``: as pairs where a name comes twice or a value is missing. ``timestamp_ms``: the record's time in
        Unix milliseconds, from 1 on; by default the time at which it is sent. A topic with
        `message.timestamp.type=LogAppendTime` gives each record a time of its own.

        Raises `BadConfiguration` for a topic that `task.outputs` does not list, `TypeError` or `ValueError` for what
        no record can have.
        """
        ...
