"""One thread with one reader that applies the changelogs of some replicas to their stores (rule `drain-target`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from standby.errors import CorruptState, StandfastError, Transient, Unavailable
from standby.kernel.ports import ON_DAMAGE, Changelog, Chunk
from standby.kernel.probes import REPLAYED, Probe
from standby.kernel.replay.ends import End, Ends
from standby.kernel.replay.rate_limiter import RateLimiter
from standby.kernel.run import Tell
from standby.kernel.store.store import TaskStore
from standby.replica.identity import TopicChanged
from standby.replica.lag import LagClock, mean_bytes
from standby.replica.lifecycle import Signal
from standby.replica.store.origin import is_too_old
from standby.shared.clock import Clock
from standby.shared.model import Fault
from standby.threads.worker import Worker, settle

_log: Final = logging.getLogger(__name__)

#: Most records of one read. A million took 1.6 CPU seconds with 10,000 and 1.15 with 2,000 (measured): so many stay in
#: the processor's cache.
_BATCH_RECORDS: Final = 2_000

#: Between two looks when there is nothing to read: most of a standby's lag. What comes in larger turns costs less for
#: each record. Nobody who wants it to drain waits for it.
_TAIL_SECONDS: Final = 0.025

#: The same while somebody waits for the end; the read itself waits so long for a first record.
_DRAIN_SECONDS: Final = 0.002

#: Between two looks at how far behind those are that are held back.
_HELD_BACK_SECONDS: Final = 0.5

#: A replayer that nobody is on keeps its reader, and the threads and memory of that, for so long.
_IDLE_SECONDS: Final = 10.0

#: A reader that brings nothing for so long, of what is there to be read, is replaced: a client of Kafka can lose its
#: brokers for good (`standby.adapters.kafka.lasting`).
_SILENCE_SECONDS: Final = 15.0

#: So many records of a batch are measured: more would cost, and say no more.
_MEASURED_RECORDS: Final = 64

#: Throttled restores take what they may in steps of so long: they go evenly, and hear what they are told.
_THROTTLE_SECONDS: Final = 0.05

#: What a record is taken for while none was seen.
_UNKNOWN_BYTES: Final = 1_000

#: So often in a row nothing can be read at a position where there is something until that is taken for true.
_MISREADS: Final = 3


@dataclass(slots=True, eq=False)
class Replayed:
    """One replica's changelog on its way into its store; one replayer at a time has it."""

    partition: int
    store: TaskStore
    tell: Tell
    heard_at: float
    """Monotonic time of what its reader brought last, or of when that began to read it."""
    lag: LagClock = field(default_factory=LagClock)
    lag_ms: int | None = None
    """For how long it has been behind; None while that is not known."""
    at_end_ms: int | None = None
    """When (Unix milliseconds) it last had all there was in the changelog; None: not known."""
    record_bytes: float | None = None
    """Mean size of the records applied last; None while there were none."""
    told: Signal | None = None
    is_paused: bool = False
    """Whether it is not to be restored for now; set by who owns it."""
    seen: End | None = None
    """The end that was looked at last."""
    misreads: int = 0
    """How often in a row nothing could be read at its position, although there is something."""
    damage: str = ""
    """The damage found by one of these reads; a later one of the same position may not name it."""
    target: int | None = None
    drained: Future[None] | None = None

    @property
    def is_restoring(self) -> bool:
        """Whether nobody waits for it, and it is not in sync either."""
        return self.target is None and self.told is not Signal.CAUGHT_UP


class Router(Protocol):
    """What a replayer asks of, and tells, who assigns replicas to replayers (`standby.kernel.replay.router`)."""

    def may_restore(self) -> bool:
        """Return whether replicas that nobody waits for may be restored now."""
        ...

    def ended(self, replica: Replayed) -> None:
        """Hear that nothing touches the replica's store any more."""
        ...

    def leaves(self, replica: Replayed) -> bool:
        """Return whether the replica belongs on another replayer by now; if so, it must be handed over."""
        ...

    def hand_over(self, replica: Replayed) -> None:
        """Take a replica that the replayer does not have any more."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """What all replayers of a job go by."""

    ends: Ends
    lag_bound_ms: int
    clock: Clock
    probe: Probe
    restore_bytes_per_second: int
    """Most of what replicas that are not in sync may replay, on all replayers together; 0: no bound."""
    check_topic: Callable[[], object]
    """Raises `TopicChanged` when the changelog is another one than it was, `Transient` when that is not known.

    A replica that the changelog has nothing for may not be wiped when that was made again."""
    topic: str
    """The changelog's name."""
    bounds: Callable[[int], tuple[int, int]]
    """Returns the first offset and the end of a changelog partition; raises `Transient`."""
    rate_limiter: RateLimiter


class Replayer:
    """Owns a changelog reader and the replay of the replicas that are put on it."""

    def __init__(self, open_reader: Callable[[], Changelog], rules: Rules, router: Router, name: str) -> None:
        """``open_reader`` is called when a replica comes and there is no reader."""
        self._open_reader = open_reader
        self._rules = rules
        self._clock = rules.clock
        self._router = router
        self._replicas: dict[int, Replayed] = {}
        self._reader: Changelog | None = None
        self._free_at = 0.0
        #: When it had a replica last.
        self._busy_at = 0.0
        self._worker = Worker(name, self._turn, failed=self._recover, ended=self._forget_all)
        self._worker.start()

    # ---- from any thread ----

    def put(self, command: Callable[[], None]) -> None:
        """Have ``command`` run on the replayer's thread, after those before."""
        self._worker.put(command)

    def wake(self) -> None:
        """Have it look again at once whether it may go on."""
        self._worker.wake()

    def close(self) -> None:
        """Stop everything; does not wait."""
        self._worker.close()

    # ---- commands, on the replayer's thread ----

    def add(self, replica: Replayed) -> None:
        """Replay this replica from its store's position on."""
        self._replicas[replica.partition] = replica
        self._guarded(replica, partial(self._begin, replica))

    def remove(self, replica: Replayed) -> bool:
        """Stop a replay; return whether it was here. Nothing touches the store any more then."""
        if self._replicas.get(replica.partition) is not replica:
            return False
        self._forget(replica, Transient("the replay was stopped"))
        return True

    def drain(self, replica: Replayed, target: int, done: Future[None]) -> bool:
        """Replay up to ``target`` as fast as can be, then stop; return whether the replica is here."""
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

    def _fail_all(self, told: str) -> None:
        """End every replay, rather than leave replicas that stand still and say nothing."""
        # Its assignment is not known any more; the next replica gets a new one.
        self._reader = None
        for replica in tuple(self._replicas.values()):
            self._forget(replica, Unavailable(told))
            replica.tell(Signal.FAILED, told)

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
        # A full batch means that there is more.
        if not is_draining and sum(len(each.changes) for each in chunks.values()) < limit:
            self._pause(_TAIL_SECONDS)

    def _rest(self) -> None:
        """Wait for somebody to come; give up the reader when nobody does."""
        if self._reader is None:
            self._worker.wait(None)
        elif not self._pause(_IDLE_SECONDS) and self._clock.monotonic() - self._busy_at >= _IDLE_SECONDS:
            self._reader.close()
            self._reader = None

    def _pause(self, seconds: float) -> bool:
        """Wait for a command between two looks, and run it; return whether there was one."""
        return self._worker.wait(self._clock.pace(seconds))

    def _hold_back(self, reader: Changelog) -> Sequence[Replayed]:
        """Have those wait that may not be restored now; return those that may go on."""
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
        """Read anew what there has been for long and the reader has not brought.

        After a broker was away librdkafka may wait for ever before it fetches from one partition again (its issue
        4492). Where only a transaction that is open hides what there is, reading anew does no harm.
        """
        since = self._clock.monotonic() - _SILENCE_SECONDS
        # One of them may have left in this turn; another replayer reads it now.
        here = [each for each in going if self._replicas.get(each.partition) is each]
        deaf = [
            each for each in here if each.heard_at < since and (each.lag_ms or 0) > _SILENCE_SECONDS * 1_000
        ]
        if not deaf:
            return
        numbers = ", ".join(str(each.partition) for each in deaf)
        _log.warning(
            "the reader has brought nothing of changelog partition %s for %.0f s: it is read anew",
            *(numbers, _SILENCE_SECONDS),
        )
        if len(deaf) == len(here):
            # It may be the reader itself.
            self._reader = None
            reader.close()
            deaf = list(self._replicas.values())
        for replica in deaf:
            self._guarded(replica, partial(self._begin, replica))

    def _limit(self) -> int:
        """Return how many records to read at once: fewer where a long wait would follow."""
        rate = self._rules.restore_bytes_per_second
        sizes = [each.record_bytes or _UNKNOWN_BYTES for each in self._replicas.values() if each.is_restoring]
        if not sizes or not rate:
            return _BATCH_RECORDS
        return max(1, min(_BATCH_RECORDS, int(rate * _THROTTLE_SECONDS / max(sizes))))

    def _count(self, replica: Replayed, records: int) -> None:
        """Take what a restore has replayed out of what all of them may."""
        rate = self._rules.restore_bytes_per_second
        if rate and replica.is_restoring and replica.record_bytes is not None:
            wait = self._rules.rate_limiter.take(int(records * replica.record_bytes), rate)
            self._free_at = self._clock.monotonic() + wait

    def _guarded(self, replica: Replayed, act: Callable[[], None]) -> None:
        """Run ``act``; whatever goes wrong with it ends this replica's replay and no other's."""
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
        except Exception as error:  # noqa: BLE001 - a bug must not leave a replica that stands still and says nothing
            _log.exception("changelog partition %d", replica.partition)
            told = f"applying the changelog: {type(error).__name__}: {error}"
            self._forget(replica, Unavailable(told))
            replica.tell(Signal.FAILED, told)

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
        """Find out why nothing comes from a replica's position: raise what that means, or read there again.

        Raises `CorruptState` for a position outside of the changelog, `TopicChanged`, and `Unavailable` for one inside.
        """
        rules, position = self._rules, chunk.position
        place = f"{rules.topic}-{replica.partition}"
        # Behind a damaged batch librdkafka may report the next time that the position is out of range.
        replica.damage = chunk.damage or replica.damage
        why = replica.damage or "Kafka says that it has nothing there"
        try:
            rules.check_topic()
            first, end = rules.bounds(replica.partition)
        except Transient as error:
            why = str(error)
        else:
            if not first <= position <= end:
                bounds = f"it begins at {first} and ends at {end}"
                raise CorruptState(f"changelog {place} has nothing at {position} (any more): {bounds}")
            replica.misreads += 1
            if replica.misreads >= _MISREADS:
                raise Unavailable(
                    f"changelog {place} cannot be read on from {position}, and it ends at {end}: {why}. "
                    f"{ON_DAMAGE.capitalize()}"
                )
        # Reading there again says the same again, but not all the time.
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
        """Look where the replica stands against the end, and say so when that has changed."""
        position = replica.store.position.offset
        if replica.target is not None and position >= replica.target:
            self._forget(replica)
            return
        end = self._rules.ends.changelog(replica.partition)
        if end is None:
            # The broker is away: membership is frozen.
            replica.lag_ms = None
            return
        if end is not replica.seen:
            # Not by its time: a host's clock may be set back, and nothing would be new until it is there again.
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
        if signal is not replica.told and (is_in_sync or replica.told is not None):
            if is_in_sync:
                replica.store.serve()
            replica.told = signal
            replica.tell(signal, "")

    def _forget(self, replica: Replayed, error: StandfastError | None = None) -> None:
        """End a replay that is here, and tell whoever waits for its end: well, or with ``error``."""
        if self._replicas.get(replica.partition) is not replica:
            return
        self._let_go(replica)
        self._router.ended(replica)
        if replica.drained is not None:
            settle(replica.drained, error=error)

    def _let_go(self, replica: Replayed) -> None:
        del self._replicas[replica.partition]
        if self._reader is not None:
            self._reader.remove(replica.partition)
