"""Applies the changelogs of a job's replicas to their stores: one thread, one consumer (design 4.3)."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from standby.errors import BrokenLaw, CorruptState, StandfastError, Transient, Unavailable
from standby.kernel.ends import Ends
from standby.kernel.lane import settle
from standby.kernel.ports import Broker, Changelog, Chunk
from standby.kernel.probes import REPLAYED, Probe
from standby.kernel.store import TaskStore
from standby.replica.lag import LagClock, mean_bytes
from standby.replica.lifecycle import Signal
from standby.replica.origin import is_too_old
from standby.replica.throttle import Throttle

_log: Final = logging.getLogger(__name__)

_BATCH_RECORDS: Final = 10_000

#: Between two looks when there is nothing to read: 3 % of a core and 38 ms of lag at 5,000 records a second.
_TAIL_SECONDS: Final = 0.02

#: The same while somebody waits for the end; the read itself waits so long for a first record.
_DRAIN_SECONDS: Final = 0.002

#: So many records of a batch are measured: more would cost, and say no more.
_MEASURED_RECORDS: Final = 64

#: So long at most a throttled restore keeps the thread from the other replicas.
_THROTTLE_SECONDS: Final = 0.05

#: What a record is taken for while none was seen.
_UNKNOWN_BYTES: Final = 1_000

#: Tells what came of a replay: the signal, and why.
Tell = Callable[[Signal, str], None]


@dataclass(slots=True, eq=False)
class Replayed:
    """One replica's changelog on its way into its store."""

    partition: int
    store: TaskStore
    tell: Tell
    lag: LagClock = field(default_factory=LagClock)
    lag_ms: int | None = None
    """For how long it has been behind; None while that is not known."""
    at_end_ms: int | None = None
    """When (Unix milliseconds) it last had all there was in the changelog; None: not known."""
    record_bytes: float | None = None
    """Mean size of the records applied last; None while there were none."""
    told: Signal | None = None
    seen_ms: int = 0
    """When the end that was looked at last was asked for."""
    target: int | None = None
    drained: Future[None] | None = None

    @property
    def is_restoring(self) -> bool:
        """Whether nobody waits for it, and it is not in sync either."""
        return self.target is None and self.told is not Signal.CAUGHT_UP


class Replay:
    """Owns the changelog reader; everybody else asks through its inbox."""

    def __init__(
        self,
        broker: Broker,
        ends: Ends,
        lag_bound_ms: int,
        clock: Callable[[], int],
        probe: Probe,
        name: str,
        restore_bytes_per_second: int = 0,
    ) -> None:
        """``restore_bytes_per_second``: most of what replicas that are not in sync may replay; 0: no bound."""
        self._broker = broker
        self._ends = ends
        self._lag_bound_ms = lag_bound_ms
        self._clock = clock
        self._probe = probe
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._replicas: dict[int, Replayed] = {}
        self._reader: Changelog | None = None
        self._bytes_per_second = restore_bytes_per_second
        self._throttle = Throttle()
        self._free_at = 0.0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"{name}-replay", daemon=True)
        self._thread.start()

    def add(self, replica: Replayed) -> None:
        """Replay this replica from its store's position on; nothing changes when it is being replayed."""
        self._inbox.put(lambda: self._add(replica))

    def remove(self, replica: Replayed) -> Future[None]:
        """Stop a replay; once the future is done, nothing of it touches the store any more."""
        done: Future[None] = Future()
        self._inbox.put(lambda: self._remove(replica, done))
        return done

    def drain(self, replica: Replayed, target: int) -> Future[None]:
        """Replay up to ``target`` as fast as can be, then stop; the future is done when both have happened.

        It fails when the replay ends otherwise.
        """
        done: Future[None] = Future()
        self._inbox.put(lambda: self._drain(replica, target, done))
        return done

    def close(self) -> None:
        """Stop everything; does not wait."""
        self._inbox.put(self._end)

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._turn()
            except StandfastError as error:
                _log.warning("replay: %s", error)
                self._wait(1.0)
            except Exception as error:  # noqa: BLE001 - this thread's outermost loop
                _log.exception("the replay cannot go on")
                self._fail_all(f"the replay cannot go on: {type(error).__name__}: {error}")
        for partition in tuple(self._replicas):
            self._forget(partition, Transient("the replay was closed"))
        if self._reader is not None:
            self._reader.close()

    def _fail_all(self, told: str) -> None:
        """End every replay after a bug, rather than leave replicas that stand still and say nothing."""
        for replica in tuple(self._replicas.values()):
            self._replicas.pop(replica.partition)
            if replica.drained is not None:
                settle(replica.drained, error=Unavailable(told))
            replica.tell(Signal.FAILED, told)
        # Its assignment is not known any more; the next replica gets a new one.
        self._reader = None

    def _turn(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()
        if self._is_closed:
            return
        if not self._replicas or self._reader is None:
            self._wait(None)
            return
        is_draining = any(each.target is not None for each in self._replicas.values())
        if not is_draining and (pause := self._free_at - time.monotonic()) > 0:
            self._wait(pause)
            return
        self._hold_back(self._reader, is_draining=is_draining)
        chunks = self._reader.read(self._limit(), _DRAIN_SECONDS if is_draining else 0)
        for partition, chunk in chunks.items():
            replica = self._replicas[partition]
            self._guarded(replica, partial(self._apply, replica, chunk))
        for replica in tuple(self._replicas.values()):
            self._guarded(replica, partial(self._judge, replica))
        # A full batch means that there is more; half a batch is worth going on for at once, too.
        if not is_draining and sum(len(each.changes) for each in chunks.values()) < _BATCH_RECORDS // 2:
            self._wait(_TAIL_SECONDS)

    def _hold_back(self, reader: Changelog, *, is_draining: bool) -> None:
        """Have restores wait while a promotion drains: it must not stand in line behind their backlog."""
        for replica in self._replicas.values():
            if is_draining and replica.is_restoring:
                reader.pause(replica.partition)
            else:
                reader.resume(replica.partition)

    def _limit(self) -> int:
        """Return how many records to read at once: less where a wait would follow that the others would feel."""
        sizes = [each.record_bytes or _UNKNOWN_BYTES for each in self._replicas.values() if each.is_restoring]
        if not sizes or not self._bytes_per_second:
            return _BATCH_RECORDS
        return max(1, min(_BATCH_RECORDS, int(self._bytes_per_second * _THROTTLE_SECONDS / max(sizes))))

    def _count(self, replica: Replayed, records: int) -> None:
        """Take what a restore has replayed out of what it may."""
        if self._bytes_per_second and replica.is_restoring and replica.record_bytes is not None:
            now, amount = time.monotonic(), int(records * replica.record_bytes)
            self._free_at = now + self._throttle.take(amount, self._bytes_per_second, now)

    def _wait(self, seconds: float | None) -> None:
        try:
            command = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return
        command()

    def _guarded(self, replica: Replayed, act: Callable[[], None]) -> None:
        """Run ``act``; whatever goes wrong with it ends this replica's replay and no other's."""
        try:
            act()
        except CorruptState as error:
            self._forget(replica.partition, error)
            replica.tell(Signal.STATE_LOST, str(error))
        except StandfastError as error:
            self._forget(replica.partition, error)
            replica.tell(Signal.FAILED, f"applying the changelog: {error}")
        except Exception as error:  # noqa: BLE001 - a bug must not leave a replica that stands still and says nothing
            _log.exception("changelog partition %d", replica.partition)
            told = f"applying the changelog: {type(error).__name__}: {error}"
            self._forget(replica.partition, Unavailable(told))
            replica.tell(Signal.FAILED, told)

    def _apply(self, replica: Replayed, chunk: Chunk) -> None:
        store = replica.store
        if chunk.is_out_of_range:
            raise CorruptState(f"the changelog has nothing at {chunk.position} (any more)")
        if is_too_old(store.position.caught_up_ms, store.retention_ms, self._clock()):
            raise CorruptState("it has been behind for longer than the changelog keeps tombstones")
        at_end_ms = replica.lag.applied(chunk.position)
        store.apply(chunk.changes, chunk.position, at_end_ms or 0)
        replica.record_bytes = mean_bytes(chunk.changes[:_MEASURED_RECORDS], replica.record_bytes)
        self._count(replica, len(chunk.changes))
        self._probe(REPLAYED)

    def _judge(self, replica: Replayed) -> None:
        """Look where the replica stands against the end, and say so when that has changed."""
        position = replica.store.position.offset
        if replica.target is not None and position >= replica.target:
            self._forget(replica.partition)
            return
        end = self._ends.changelog(replica.partition)
        if end is None:
            # The broker is away: membership is frozen.
            replica.lag_ms = None
            return
        if end.asked_ms > replica.seen_ms:
            replica.seen_ms = end.asked_ms
            replica.lag.end_seen(end.offset, end.asked_ms)
        at_end_ms = replica.at_end_ms = replica.lag.applied(position)
        replica.lag_ms = replica.lag.lag_ms(position, self._clock())
        is_in_sync = (
            at_end_ms is not None and replica.lag_ms is not None and replica.lag_ms < self._lag_bound_ms
        )
        if is_in_sync:
            assert at_end_ms is not None
            replica.store.caught_up(at_end_ms)
        signal = Signal.CAUGHT_UP if is_in_sync else Signal.FELL_BEHIND
        if signal is not replica.told and (is_in_sync or replica.told is not None):
            if is_in_sync:
                replica.store.serve()
            replica.told = signal
            replica.tell(signal, "")

    def _add(self, replica: Replayed) -> None:
        if replica.partition in self._replicas:
            if self._replicas[replica.partition] is not replica:
                raise BrokenLaw(f"partition {replica.partition} is replayed into another store already")
            return
        if self._reader is None:
            self._reader = self._broker.open_changelog()
        self._replicas[replica.partition] = replica
        self._reader.add(replica.partition, replica.store.position.offset)
        self._ends.look()

    def _remove(self, replica: Replayed, done: Future[None]) -> None:
        if self._replicas.get(replica.partition) is replica:
            self._forget(replica.partition, Transient("the replay was stopped"))
        settle(done)

    def _drain(self, replica: Replayed, target: int, done: Future[None]) -> None:
        if self._replicas.get(replica.partition) is not replica:
            settle(done, error=Transient("the replay has ended"))
            return
        replica.target, replica.drained = target, done
        self._guarded(replica, partial(self._judge, replica))

    def _forget(self, partition: int, error: StandfastError | None = None) -> None:
        """Stop a replay and tell whoever waits for its end: well, or with ``error``."""
        replica = self._replicas.pop(partition, None)
        if replica is None:
            return
        if self._reader is not None:
            self._reader.remove(partition)
        if replica.drained is not None:
            settle(replica.drained, error=error)

    def _end(self) -> None:
        self._is_closed = True
