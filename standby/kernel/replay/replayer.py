"""A thread with one reader that applies the changelogs of some replicas to their stores (rule `drain-target`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from standby.errors import CorruptState, StandfastError, Transient, Unavailable
from standby.kernel.cancel_scope import ReportSignal
from standby.kernel.ports import ON_DAMAGE, Changelog, Chunk
from standby.kernel.probes import REPLAYED, Probe
from standby.kernel.replay.ends import EndOffset, EndOffsetPoller
from standby.kernel.replay.rate_limiter import RateLimiter
from standby.kernel.store.store import TaskStore
from standby.replica.identity import TopicChanged
from standby.replica.lag import LagClock, mean_bytes
from standby.replica.lifecycle import Signal
from standby.replica.store.origin import is_too_old
from standby.shared.clock import Clock
from standby.shared.model import Fault
from standby.threads.worker import Worker, settle

_log: Final = logging.getLogger(__name__)

#: Maximum number of records per read. A million records took 1.6 CPU seconds with 10,000 per read and 1.15 with
#: 2,000 (measured): the smaller batch stays in the processor's cache.
_BATCH_RECORDS: Final = 2_000

#: Poll interval when there is nothing to read; it makes up most of a standby's lag. Larger reads cost less per
#: record. A drain does not wait for it.
_TAIL_SECONDS: Final = 0.025

#: The same during a drain: the read itself waits this long for a first record.
_DRAIN_SECONDS: Final = 0.002

#: How often the lag of replicas that are held back is updated.
_HELD_BACK_SECONDS: Final = 0.5

#: How long a replayer without replicas keeps its reader, with the reader's threads and memory.
_IDLE_SECONDS: Final = 10.0

#: A reader that delivers nothing for this long, although there is data, is replaced: a Kafka client can lose its
#: brokers permanently (`standby.adapters.kafka.renewable_client`).
_SILENCE_SECONDS: Final = 15.0

#: How many records of a batch are measured. More would cost time and not improve the estimate.
_MEASURED_RECORDS: Final = 64

#: Throttled restores read in steps of this length, so that they run evenly and react to commands.
_THROTTLE_SECONDS: Final = 0.05

#: Assumed size of a record before any was seen.
_UNKNOWN_BYTES: Final = 1_000

#: After this many failed reads in a row at a position within the changelog, the position counts as unreadable.
_MISREADS: Final = 3


@dataclass(slots=True, eq=False)
class Replayed:
    """The replay of one replica's changelog into its store; owned by one replayer at a time."""

    partition: int
    store: TaskStore
    tell: ReportSignal
    heard_at: float
    """Monotonic time of the last data from its reader, or of the start of reading."""
    lag: LagClock = field(default_factory=LagClock)
    lag_ms: int | None = None
    """For how long it has been behind, in milliseconds; None while that is not known."""
    at_end_ms: int | None = None
    """When (Unix milliseconds) it last had everything in the changelog; None: not known."""
    record_bytes: float | None = None
    """Mean size of recently applied records; None before the first."""
    signalled: Signal | None = None
    is_paused: bool = False
    """Whether its restore is paused; set by its owner."""
    seen: EndOffset | None = None
    """The changelog end that was evaluated last."""
    misreads: int = 0
    """How often in a row reading at its position failed, although the changelog has data there."""
    damage: str = ""
    """The damage that one of these reads found; a later read of the same position may not report it."""
    target: int | None = None
    drained: Future[None] | None = None

    @property
    def is_restoring(self) -> bool:
        """Whether it is neither being drained nor in sync."""
        return self.target is None and self.signalled is not Signal.CAUGHT_UP


class Router(Protocol):
    """What a replayer needs from the router, which assigns replicas to replayers (`standby.kernel.replay.router`)."""

    def may_restore(self) -> bool:
        """Return whether replicas that are not being drained may be restored now."""
        ...

    def ended(self, replica: Replayed) -> None:
        """Take note that the replica's store is no longer in use."""
        ...

    def leaves(self, replica: Replayed) -> bool:
        """Return whether the replica now belongs on another replayer; if so, it must be handed over."""
        ...

    def hand_over(self, replica: Replayed) -> None:
        """Take over a replica that the replayer has released."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings and collaborators that all replayers of a job share."""

    ends: EndOffsetPoller
    lag_bound_ms: int
    clock: Clock
    probe: Probe
    restore_bytes_per_second: int
    """Limit for replicas that are not in sync, for all replayers together; 0: no limit."""
    check_topic: Callable[[], object]
    """Raises `TopicChanged` when the changelog is another topic now, `Transient` when that is unknown.

    A replica whose position is not in the changelog must not be wiped if the changelog was recreated."""
    topic: str
    """The changelog's name."""
    bounds: Callable[[int], tuple[int, int]]
    """Returns the first offset and the end of a changelog partition; raises `Transient`."""
    rate_limiter: RateLimiter


class Replayer:
    """Owns a changelog reader, and replays the replicas that are assigned to it."""

    def __init__(self, open_reader: Callable[[], Changelog], rules: Rules, router: Router, name: str) -> None:
        """``open_reader`` is called when a replica is added and there is no reader."""
        self._open_reader = open_reader
        self._rules = rules
        self._clock = rules.clock
        self._router = router
        self._replicas: dict[int, Replayed] = {}
        self._reader: Changelog | None = None
        self._free_at = 0.0
        #: When it last had a replica.
        self._busy_at = 0.0
        self._worker = Worker(name, self._turn, failed=self._recover, ended=self._forget_all)
        self._worker.start()

    # ---- from any thread ----

    def put(self, command: Callable[[], None]) -> None:
        """Run ``command`` on the replayer's thread, after earlier commands."""
        self._worker.put(command)

    def wake(self) -> None:
        """Make it check at once whether it may continue."""
        self._worker.wake()

    def close(self) -> None:
        """Stop everything; does not wait."""
        self._worker.close()

    # ---- commands, on the replayer's thread ----

    def add(self, replica: Replayed) -> None:
        """Replay this replica, starting at its store's position."""
        self._replicas[replica.partition] = replica
        self._guarded(replica, partial(self._begin, replica))

    def remove(self, replica: Replayed) -> bool:
        """Stop a replay; return whether it was on this replayer. Its store is no longer in use then."""
        if self._replicas.get(replica.partition) is not replica:
            return False
        self._forget(replica, Transient("the replay was stopped"))
        return True

    def drain(self, replica: Replayed, target: int, done: Future[None]) -> bool:
        """Replay up to ``target`` as fast as possible, then stop; return whether the replica is on this replayer."""
        if self._replicas.get(replica.partition) is not replica:
            return False
        replica.target, replica.drained = target, done
        self._guarded(replica, partial(self._judge, replica))
        return True

    def _begin(self, replica: Replayed) -> None:
        if self._reader is None:
            self._reader = self._open_reader()
        self._reader.add(replica.partition, replica.store.position.offset)
        replica.heard_at = self._clock.monotonic()
        self._rules.ends.look()

    # ---- the thread ----

    def _recover(self, error: BaseException) -> None:
        if isinstance(error, Transient):
            _log.warning("replay: %s", error)
            self._pause(1.0)
        elif isinstance(error, StandfastError):
            self._fail_all(f"applying the changelog: {error}")
        else:
            _log.error("the replay cannot go on", exc_info=error)
            self._fail_all(f"the replay cannot go on: {type(error).__name__}: {error}")

    def _forget_all(self) -> None:
        for replica in tuple(self._replicas.values()):
            self._forget(replica, Transient("the replay was closed"))
        if self._reader is not None:
            self._reader.close()

    def _fail_all(self, message: str) -> None:
        """End every replay, rather than leave replicas that silently stand still."""
        # The reader's assignment is unknown now; the next replica gets a new reader.
        reader, self._reader = self._reader, None
        for replica in tuple(self._replicas.values()):
            self._forget(replica, Unavailable(message))
            replica.tell(Signal.FAILED, message)
        if reader is not None:
            # Not by letting go of it: librdkafka may not come back from ending a client here.
            with suppress(Exception):
                reader.close()

    def _turn(self) -> None:
        self._worker.catch_up()
        if self._worker.is_closed:
            return
        reader = self._reader
        if not self._replicas or reader is None:
            self._rest()
            return
        self._busy_at = self._clock.monotonic()
        going = self._hold_back(reader)
        if not going:
            self._judge_all()
            self._pause(_HELD_BACK_SECONDS)
            return
        is_draining = any(each.target is not None for each in self._replicas.values())
        if not is_draining and (pause := self._free_at - self._clock.monotonic()) > 0:
            self._pause(pause)
            return
        limit = self._limit()
        chunks = reader.read(limit, _DRAIN_SECONDS if is_draining else 0)
        for partition, chunk in chunks.items():
            replica = self._replicas[partition]
            replica.heard_at = self._clock.monotonic()
            self._guarded(replica, partial(self._apply, replica, chunk))
        self._judge_all()
        self._see_to_the_deaf(reader, going)
        # A full batch means that there is more to read.
        if not is_draining and sum(len(each.changes) for each in chunks.values()) < limit:
            self._pause(_TAIL_SECONDS)

    def _rest(self) -> None:
        """Wait for a replica; close the reader if none comes."""
        if self._reader is None:
            self._worker.wait(None)
        elif not self._pause(_IDLE_SECONDS) and self._clock.monotonic() - self._busy_at >= _IDLE_SECONDS:
            self._reader.close()
            self._reader = None

    def _pause(self, seconds: float) -> bool:
        """Wait for a command and run it; return whether there was one."""
        return self._worker.wait(self._clock.pace(seconds))

    def _hold_back(self, reader: Changelog) -> Sequence[Replayed]:
        """Pause the replicas that may not be restored now; return the others."""
        may_restore = self._router.may_restore()
        going = []
        for replica in self._replicas.values():
            if replica.is_restoring and (replica.is_paused or not may_restore):
                reader.pause(replica.partition)
            else:
                reader.resume(replica.partition)
                going.append(replica)
        return going

    def _see_to_the_deaf(self, reader: Changelog, going: Sequence[Replayed]) -> None:
        """Restart reading of partitions that have data which the reader has not delivered for a long time.

        After a broker was away, librdkafka may never resume fetching from a partition (its issue 4492). If the data
        is only hidden by an open transaction, restarting is harmless.
        """
        since = self._clock.monotonic() - _SILENCE_SECONDS
        # A replica may have moved to another replayer in this turn.
        here = [each for each in going if self._replicas.get(each.partition) is each]
        deaf = [
            each for each in here if each.heard_at < since and (each.lag_ms or 0) > _SILENCE_SECONDS * 1_000
        ]
        if not deaf:
            return
        numbers = ", ".join(str(each.partition) for each in deaf)
        _log.warning(
            "the reader has delivered nothing of changelog partition %s for %.0f s: restarting it",
            *(numbers, _SILENCE_SECONDS),
        )
        if len(deaf) == len(here):
            # The reader itself may be at fault.
            self._replace(reader)
            return
        for replica in deaf:
            self._guarded(replica, partial(self._begin, replica))

    def _replace(self, reader: Changelog) -> None:
        """Close ``reader``, unless another one is in its place already, and read everything with a new one."""
        if self._reader is not reader:
            return
        self._reader = None
        # Without a reader its replicas would stand still, whether or not the former one can be closed.
        with suppress(Exception):
            reader.close()
        for replica in tuple(self._replicas.values()):
            self._guarded(replica, partial(self._begin, replica))

    def _limit(self) -> int:
        """Return how many records to read at once: fewer if a long throttling pause would follow."""
        rate = self._rules.restore_bytes_per_second
        sizes = [each.record_bytes or _UNKNOWN_BYTES for each in self._replicas.values() if each.is_restoring]
        if not sizes or not rate:
            return _BATCH_RECORDS
        return max(1, min(_BATCH_RECORDS, int(rate * _THROTTLE_SECONDS / max(sizes))))

    def _count(self, replica: Replayed, records: int) -> None:
        """Charge what a restore has replayed to the shared limit."""
        rate = self._rules.restore_bytes_per_second
        if rate and replica.is_restoring and replica.record_bytes is not None:
            wait = self._rules.rate_limiter.take(int(records * replica.record_bytes), rate)
            self._free_at = self._clock.monotonic() + wait

    def _guarded(self, replica: Replayed, act: Callable[[], None]) -> None:
        """Run ``act``. An error ends this replica's replay only."""
        try:
            act()
        except CorruptState as error:
            self._forget(replica, error)
            replica.tell(Signal.STATE_LOST, str(error))
        except TopicChanged as error:
            self._forget(replica, error)
            replica.tell(Signal.FAILED, str(error), Fault.CHANGED_TOPIC)
        except StandfastError as error:
            self._forget(replica, error)
            replica.tell(Signal.FAILED, f"applying the changelog: {error}")
        except Exception as error:  # noqa: BLE001 - a bug must not leave a replica that silently stands still
            _log.exception("changelog partition %d", replica.partition)
            message = f"applying the changelog: {type(error).__name__}: {error}"
            self._forget(replica, Unavailable(message))
            replica.tell(Signal.FAILED, message)

    def _apply(self, replica: Replayed, chunk: Chunk) -> None:
        store, rules = replica.store, self._rules
        if chunk.is_out_of_range or chunk.damage:
            self._misread(replica, chunk)
            return
        replica.misreads, replica.damage = 0, ""
        if is_too_old(store.position.caught_up_ms, store.retention_ms, rules.clock.now_ms()):
            raise CorruptState("it has been behind for longer than the changelog keeps tombstones")
        at_end_ms = replica.lag.applied(chunk.position)
        store.apply(chunk.changes, chunk.position, at_end_ms or 0)
        replica.record_bytes = mean_bytes(chunk.changes[:_MEASURED_RECORDS], replica.record_bytes)
        self._count(replica, len(chunk.changes))
        rules.probe(REPLAYED)

    def _misread(self, replica: Replayed, chunk: Chunk) -> None:
        """Find out why nothing can be read at a replica's position; raise the reason, or retry the read.

        Raises `CorruptState` for a position outside of the changelog, `Unavailable` for one inside, and
        `TopicChanged`.
        """
        rules, position = self._rules, chunk.position
        place = f"{rules.topic}-{replica.partition}"
        # After a damaged batch, the next read of librdkafka may only report that the position is out of range.
        replica.damage = chunk.damage or replica.damage
        why = replica.damage or "Kafka reports that it has nothing there"
        try:
            rules.check_topic()
            first, end = rules.bounds(replica.partition)
        except Transient as error:
            why = str(error)
        else:
            if not first <= position <= end:
                bounds = f"it begins at {first} and ends at {end}"
                raise CorruptState(f"changelog {place} has nothing at {position} (or no longer): {bounds}")
            replica.misreads += 1
            if replica.misreads >= _MISREADS:
                raise Unavailable(
                    f"changelog {place} cannot be read on from {position}, and it ends at {end}: {why}. "
                    f"{ON_DAMAGE.capitalize()}"
                )
        # A retry is likely to fail again, so it is delayed.
        self._free_at = self._clock.monotonic() + _HELD_BACK_SECONDS
        _log.warning("changelog %s: nothing can be read at %d: %s", place, position, why)
        self._begin(replica)

    def _judge_all(self) -> None:
        for replica in tuple(self._replicas.values()):
            self._guarded(replica, partial(self._judge, replica))
            if self._replicas.get(replica.partition) is replica and self._router.leaves(replica):
                self._let_go(replica)
                self._router.hand_over(replica)

    def _judge(self, replica: Replayed) -> None:
        """Compare the replica's position with the end, and report a change."""
        position = replica.store.position.offset
        if replica.target is not None and position >= replica.target:
            self._forget(replica)
            return
        end = self._rules.ends.changelog(replica.partition)
        if end is None:
            # The broker is away: whether the replica is in sync stays as it was.
            replica.lag_ms = None
            return
        if end is not replica.seen:
            # Ends are compared by identity, not by time: if the host's clock is set back, no end would be newer for
            # a while.
            replica.seen = end
            replica.lag.end_seen(end.offset, end.asked_ms)
        at_end_ms = replica.at_end_ms = replica.lag.applied(position)
        replica.lag_ms = replica.lag.lag_ms(position, self._rules.clock.now_ms())
        is_in_sync = (
            at_end_ms is not None and replica.lag_ms is not None and replica.lag_ms < self._rules.lag_bound_ms
        )
        if is_in_sync:
            assert at_end_ms is not None
            replica.store.caught_up(at_end_ms)
        signal = Signal.CAUGHT_UP if is_in_sync else Signal.FELL_BEHIND
        if signal is not replica.signalled and (is_in_sync or replica.signalled is not None):
            if is_in_sync:
                replica.store.serve()
            replica.signalled = signal
            replica.tell(signal, "")

    def _forget(self, replica: Replayed, error: StandfastError | None = None) -> None:
        """End a replay of this replayer, and complete its drain, if there is one: successfully, or with ``error``."""
        if self._replicas.get(replica.partition) is not replica:
            return
        self._let_go(replica)
        self._router.ended(replica)
        if replica.drained is not None:
            settle(replica.drained, error=error)

    def _let_go(self, replica: Replayed) -> None:
        del self._replicas[replica.partition]
        reader = self._reader
        if reader is None:
            return
        try:
            reader.remove(replica.partition)
        except Exception as error:  # noqa: BLE001 - the replica has left; its caller must learn that
            _log.warning("the reader of %s is replaced", self._rules.topic, exc_info=error)
            # Not at once: what it has read for other replicas may not be applied yet, and would be read again.
            self._worker.put(partial(self._replace, reader))
