"""The API for a job's author: the types of the keyed state function.

A job is a module with up to two functions, named in its job file::

    def clean(df: DataFrame) -> DataFrame: ...                     # task.transform, on Spark
    def totals(rows: pyarrow.Table, state: State, out: Output) -> None: ...   # task.step

``clean`` gets the DataFrame of a micro-batch with the columns ``key`` (binary), ``value`` (binary),
``timestamp``, and the reserved ``_task`` (int) and ``_offset`` (long), which must be in its result; a job
with several inputs also has ``_topic`` (string), and must keep it and ``timestamp``; one with
``task.input.headers`` has ``headers`` (docs/inputs.md).
It must be pure: it also runs on a standby, to keep it warm, and there its result is discarded.

``totals`` is called once per micro-batch and task, with that task's rows in ``_offset`` order (several
inputs are merged by ``timestamp``, each in its order). What
it writes to ``state`` and emits to ``out`` becomes visible together with the input's offset, or not
at all. After a failure, it may be called again with the same rows and the same state. It may also be called with
only the first of them, if the others are to follow in another transaction. A step with windows or sessions is called
without rows where very many close at once (docs/event-time.md).

`standby.state` has typed keys and values, counters and expiry on top of a `Store` (docs/state.md),
`standby.eventtime` windows, sessions and de-duplication by the data's own time (docs/event-time.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol


class RowError(ValueError):
    """A row of a batch is invalid; the report identifies the record by its offset instead of the row.

    Raise it from a step with the number of the row, from 0, and the problem: `RowError(3, "has no price")`.
    """

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(f"row {row} of the batch {problem}")
        self.row: Final = row
        self.problem: Final = problem


class ValueRefused(ValueError):
    """A value is not written to a store, because it would not be read back unchanged.

    Raised by a serde. The record that causes it is found by trying less input, as when Kafka refuses a record
    (docs/failing-records.md).
    """


class Store(Protocol):
    """A named store of a task: bytes to bytes, in the order of the keys' bytes.

    Reads see the writes of the running batch. A store is usable only during the call to which it was passed;
    afterwards it raises `RuntimeError`.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        ...

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the existing ones among ``keys`` with their values, in one look-up."""
        ...

    def __contains__(self, key: bytes) -> bool:
        """Return whether ``key`` has a value; costs as much as `get`."""
        ...

    def range(
        self, start: bytes = b"", stop: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys from ``start`` up to but not including ``stop``, with their values, in key order.

        ``stop`` None is the end of the store; ``reverse`` yields the same, last key first. The iterator sees the
        store as of the call, without later writes of the batch. Any number of iterators may be open, and none needs
        to be exhausted: they only hold a page of records.
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
    """Collects the output records of a batch.

    It is usable only during the call to which it was passed; afterwards it raises `RuntimeError`.
    """

    def emit(
        self,
        key: bytes | None,
        value: bytes | None,
        topic: str | None = None,
        headers: Mapping[str, bytes] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send a record to ``topic`` (by default the first of `task.outputs`), partitioned by ``key``.

        ``headers``: pairs if a name occurs twice or a value is missing. ``timestamp_ms``: the record's time in Unix
        milliseconds, from 1 on; by default the time of sending. A topic with `message.timestamp.type=LogAppendTime`
        overrides it.

        Raises `BadConfiguration` for a topic that is not in `task.outputs`, `TypeError` or `ValueError` for values
        that a record cannot have.
        """
        ...

    def emit_many(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], topic: str | None = None
    ) -> None:
        """Send records with these keys and values, in order: the same as `emit` for each, in less time.

        The columns are lists, or arrays of objects as pandas has them. Raises as `emit`, and `ValueError` for columns
        of different lengths; then none of them is sent.
        """
        ...
