"""A Spark transform that another container runs until the session of this one is warm.

A container that is promoted while its session starts has the state and no way to compute: the start and the first
batch take many seconds of processor time. Other containers of the job have the same transform, compiled, and rows are
transformed each by itself, so it does not matter where. Everything else stays here: reading the input, the step, the
state and the transaction (decision 48).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import pyarrow as pa

from standby.errors import StandfastError, Transient
from standby.feed.input_feed import RowTransform
from standby.ports import FindLender, PeerRefused, StartCalledOff, TransformLender
from standby.shared.clock import REAL, Clock
from standby.shared.errortext import first_line
from standby.shared.model import TaskId
from standby.shared.peers import ROWS_BYTES
from standby.threads.worker import Worker

_LOG: Final = logging.getLogger(__name__)

#: Bytes of rows that are sent at once; a row that is larger goes alone.
_PIECE_BYTES: Final = 4 << 20

#: How many lenders are tried for one batch.
_LENDERS: Final = 3

#: For how long a lender that was looked for in advance is taken.
_AHEAD_SECONDS: Final = 2.0

#: How often a rehearsal is interrupted until it ends.
_CANCEL_SECONDS: Final = 0.2

#: How long a batch that runs here waits for a rehearsal, which takes a second or a few, before it ends it.
_REHEARSAL_SECONDS: Final = 10.0


class OwnTransform(RowTransform, Protocol):
    """The transform in this process's session."""

    def open(self) -> None:
        """Start the session, if it is not running. See `standby.feed.spark.SparkTransform.open`."""
        ...


class BorrowingTransform:
    """A `RowTransform` that starts ``own`` on a thread of its own; batches that come before its end are borrowed.

    So no caller waits for the start, unless nobody lends the transform.
    """

    def __init__(
        self, own: OwnTransform, find: FindLender, *, starts_early: bool, clock: Clock = REAL
    ) -> None:
        """``starts_early``: whether `warm` starts the session; otherwise the first `prepare` does."""
        self._own = own
        self._find = find
        self._clock = clock
        self._starts_early = starts_early
        self._tasks: Collection[TaskId] = ()
        self._lender: TransformLender | None = None
        self._borrowed = 0
        self._is_suspicious = False
        """Whether a lender has failed on some rows: no other one gets them, or any."""
        self.has_run_here = False
        """Whether a batch has run here since `prepare`."""
        #: The transformed rows of an empty batch.
        self._empty: pa.Table | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        # Guarded by the condition.
        self._has_started = False
        """Whether the start is over, successful or not."""
        self._error: BaseException | None = None
        """Why the session could not be started; None again when the next start begins."""
        self._is_searching = False
        """Whether a lender is looked for: until then it is not known whether to rehearse."""
        self._is_awaited = False
        """Whether a batch waits for the session, and not for rehearsals."""
        self._is_cancelled = False
        self._is_called_off = False
        """Whether the next wait of `prepare` is to end."""
        self._is_rehearsing = False
        """Whether the start is in its rehearsals."""
        self._ahead: _Search | None = None
        """The search for a lender that was begun before a `prepare`."""

    def warm(self, recent: Callable[[], pa.Table | None]) -> None:
        """Start the session and rehearse; see `RowTransform.warm`. A start continues when this is cancelled."""
        if not self._starts_early:
            return
        self._uncancel()
        if not self._begin(recent) and self._has_started:
            self._own.warm(recent)
            return
        if self._wait_for_start(self._is_over, ends_rehearsal=False) and (error := self._error) is not None:
            raise error

    def cancel_warm(self) -> None:
        """Make a running `warm` return soon. Thread-safe."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()
            is_ours = self._has_started
        if is_ours:
            self._own.cancel_warm()

    @property
    def is_warm(self) -> bool:
        """Whether the session of this process is; a borrowed transform is an expedient."""
        return self._own.is_warm

    @property
    def run_seconds(self) -> float | None:
        """See `RowTransform.run_seconds`."""
        return self._own.run_seconds

    def expect(self, tasks: Collection[TaskId]) -> None:
        """Look for a lender for the next `prepare`, unless the session has started. Thread-safe; does not wait.

        A task that becomes active is fenced and drained meanwhile, which takes longer than to find one. Of several
        that begin at about the same time only the first one is searched for.
        """
        now = self._clock.monotonic()
        with self._changed:
            former = self._ahead
            is_looked_for = former is not None and now < former.until
            if self._has_started or self._is_suspicious or is_looked_for:
                return
            searcher = Worker("lender-search").start()
            self._ahead = _Search(searcher.submit(partial(self._find, tasks)), now + _AHEAD_SECONDS)
        searcher.close()
        if former is not None:
            former.give_up()

    def prepare(
        self, tasks: Collection[TaskId], recent: Callable[[], pa.Table | None], *, may_borrow: bool
    ) -> None:
        """Make `run` possible for a feed of these tasks: find a lender, or wait until the session has started.

        Without ``may_borrow`` no other container is given the rows, for example because they may have ended a process.
        Raises like `OwnTransform.open`, and `StartCalledOff` after `cancel_prepare`.
        """
        self._drop()
        self._tasks = tasks
        self.has_run_here = False
        has_failed = self._error is not None
        if has_failed or not self._has_started:
            with self._changed:
                self._is_searching, self._is_awaited = True, False
            self._begin(recent)
            try:
                # With a lender, nobody would report why it fails again.
                if may_borrow and not has_failed:
                    self._look_for_lender()
            finally:
                self._give_up_ahead()
                with self._changed:
                    self._is_searching, self._is_awaited = False, self._lender is None
                    self._changed.notify_all()
            if self._lender is not None:
                return
            self._own.cancel_warm()
            if not self._wait_for_start(lambda: self._has_started or self._is_called_off):
                with self._changed:
                    self._is_called_off = False
                raise StartCalledOff("the wait for the start of Spark was called off")
            if (error := self._error) is not None:
                raise error
        self._own.open()

    def cancel_prepare(self) -> None:
        """Make a `prepare` that waits for the start, or else the next one, raise `StartCalledOff`. Thread-safe."""
        with self._changed:
            # Not reset before a `prepare` has seen it: it may be called just before one begins to wait.
            self._is_called_off = True
            self._changed.notify_all()

    def run(self, rows: pa.Table) -> pa.Table:
        """Return the transformed rows; see `RowTransform.run`."""
        self._uncancel()
        for left in reversed(range(_LENDERS)):
            lender = self._lender
            if lender is None or self._has_started:
                break
            if not rows.num_rows and self._empty is not None:
                return self._empty
            pieces = _pieces(rows)
            if any(each.nbytes > _PIECE_BYTES and len(encoded(each)) > ROWS_BYTES for each in pieces):
                _LOG.info("a row is too large for another container; the session here is waited for")
                break
            try:
                result = pa.concat_tables([decoded(lender.run(encoded(each))) for each in pieces])
            except Transient as error:
                self._drop()
                if self._is_cancelled:
                    raise
                if not rows.num_rows or (isinstance(error, PeerRefused) and error.is_soon):
                    _LOG.info("the transform is not lent any more: %s", error)
                    if left:
                        self._look_for_lender()
                else:
                    _LOG.warning("the lender of the transform fails, perhaps because of the rows: %s", error)
                    self._is_suspicious = True
            else:
                self._borrowed += 1
                self._empty = result.schema.empty_table()
                return result
        return self._run_here(rows)

    def cancel(self) -> None:
        """Interrupt a running `run`; see `RowTransform.cancel`."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()
        lender = self._lender
        if lender is not None:
            lender.interrupt()
        self._own.cancel()

    def close(self) -> None:
        """Close the connection, and end the session once its start is over. A rehearsal is interrupted."""
        self._drop()
        self._give_up_ahead()
        self._own.cancel_warm()
        while self._thread is not None and self._thread.is_alive():
            self._own.cancel()
            self._thread.join(_CANCEL_SECONDS)
        self._own.close()

    @property
    def child_pids(self) -> tuple[int, ...]:
        """See `RowTransform.child_pids`."""
        return self._own.child_pids

    def _begin(self, recent: Callable[[], pa.Table | None]) -> bool:
        """Start the session on a thread, unless that was begun before and has not failed; return whether it began."""
        with self._changed:
            if self._thread is not None and self._error is None:
                return False
            self._has_started, self._error = False, None
        self._thread = threading.Thread(target=self._start, args=(recent,), name="spark-start", daemon=True)
        self._thread.start()
        return True

    def _start(self, recent: Callable[[], pa.Table | None]) -> None:
        error: BaseException | None = None
        try:
            self._own.open()
        except BaseException as raised:  # noqa: BLE001 (this thread's outermost level; the others raise it)
            error = raised
        else:
            self._rehearse(recent)
        self._end_start(error)

    def _rehearse(self, recent: Callable[[], pa.Table | None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_searching)
            if self._is_awaited:
                return
        self._is_rehearsing = True
        try:
            self._own.warm(recent)
        except StandfastError as error:
            _LOG.warning("warming up: %s", first_line(error))
        except BaseException:  # noqa: BLE001 (this thread's outermost level)
            # The next `warm` repeats it, and raises it where that ends the container.
            _LOG.exception("warming up")
        finally:
            self._is_rehearsing = False

    def _end_start(self, error: BaseException | None) -> None:
        with self._changed:
            self._error = error
            self._has_started = True
            self._changed.notify_all()
        self._give_up_ahead()

    def _run_here(self, rows: pa.Table) -> pa.Table:
        if not self._has_started:
            with self._changed:
                self._is_awaited = True
            self._own.cancel_warm()
            if not self._wait_for_start(self._is_over):
                raise Transient("the batch was cancelled")
        if self._lender is not None:
            _LOG.info("the transform runs here from now on; %d batches were borrowed", self._borrowed)
            self._drop()
        if (error := self._error) is not None:
            # The next start of the feed reports it as what it is: an error of `run` would be one of these rows.
            raise Transient(f"Spark has not started: {first_line(error)}") from error
        self.has_run_here = True
        return self._own.run(rows)

    def _wait_for_start(self, is_over: Callable[[], bool], *, ends_rehearsal: bool = True) -> bool:
        """Wait for the end of the start, or until ``is_over``; return whether the start is over.

        On behalf of a batch, a rehearsal is ended if it takes long: it may hang.
        """
        seconds = _REHEARSAL_SECONDS if ends_rehearsal else None
        while True:
            with self._changed:
                if self._changed.wait_for(is_over, seconds):
                    return self._has_started
            if self._is_rehearsing:
                self._own.cancel()

    def _look_for_lender(self) -> None:
        if self._is_suspicious or not self._tasks:
            return
        self._lender = self._found_ahead()
        if self._lender is None and not self._has_started:
            # Whoever could not lend when the task began to become active may do so now.
            self._lender = self._find(self._tasks)
        if self._lender is not None:
            _LOG.info("the transform is run by %s until the session here is warm", self._lender)

    def _found_ahead(self) -> TransformLender | None:
        """Return what a recent search in advance has found, once it is over. Raises as the search."""
        ahead = self._taken_ahead()
        if ahead is not None and self._clock.monotonic() < ahead.until:
            return ahead.found.result()
        if ahead is not None:
            ahead.give_up()
        return None

    def _give_up_ahead(self) -> None:
        ahead = self._taken_ahead()
        if ahead is not None:
            ahead.give_up()

    def _taken_ahead(self) -> _Search | None:
        with self._changed:
            ahead, self._ahead = self._ahead, None
        return ahead

    def _drop(self) -> None:
        lender, self._lender = self._lender, None
        if lender is not None:
            lender.close()

    def _uncancel(self) -> None:
        with self._changed:
            self._is_cancelled = False

    def _is_over(self) -> bool:
        return self._has_started or self._is_cancelled


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for a lender that was begun in advance."""

    found: Future[TransformLender | None]
    until: float
    """The monotonic time until which what is found is still there in all likelihood."""

    def give_up(self) -> None:
        """Close what is found, or was; nobody asks for it."""
        self.found.add_done_callback(_close_found)


def _close_found(found: Future[TransformLender | None]) -> None:
    if found.exception() is None and (lender := found.result()) is not None:
        lender.close()


def encoded(rows: pa.Table) -> bytes:
    """Return the rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def decoded(stream: bytes) -> pa.Table:
    """Return the rows of an Arrow IPC stream. Raises `Transient` for anything else."""
    try:
        return pa.ipc.open_stream(stream).read_all()
    except (pa.ArrowException, OSError) as error:
        raise Transient(f"these are no rows: {first_line(error)}") from error


def _pieces(rows: pa.Table) -> list[pa.Table]:
    """Return the rows in pieces of at most `_PIECE_BYTES`, or of a single row. Rows may differ much in size."""
    if rows.nbytes <= _PIECE_BYTES or rows.num_rows <= 1:
        return [rows]
    half = rows.num_rows // 2
    return [*_pieces(rows.slice(0, half)), *_pieces(rows.slice(half))]
