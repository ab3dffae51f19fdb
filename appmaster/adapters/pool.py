"""A pool: processes that somebody else starts, and that wait in ZooKeeper until the leader claims them.

To the leader it is a cell. A request claims a process that waits, or waits for one to come; a process that is given
back ends, and its supervisor starts another with a new id. Claims are kept in the processes' own records, so a new
leader knows them; requests that wait are known to this leader only. No single process is in front of a pool whose loss
would end the others, so a pool is never lost as a cell of YARN is.

One thread owns the connection. What it sees is posted to the inbox.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from appmaster.blame import going_on
from appmaster.leadership.ports import PoolMember, PoolRecords
from appmaster.leadership.yarn_ids import grant_id
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from locality.fit import ANY, Demand, PoolProcess, fits, rest
from standby.errors import BadConfiguration, Fenced, Transient
from standby.shared.clock import Clock
from standby.shared.model import NodeOffer
from standby.shared.naming import POOL
from standby.shared.records import MemberRecord
from standby.shared.wire import PROTOCOL
from standby.threads.worker import Worker

_log = logging.getLogger(__name__)

#: Nothing of a pool in which nothing is claimed yet is offered before no process has come for this long, seconds:
#: whatever is placed before the others come would have to move.
QUIET_SECONDS: Final = 3.0

#: Nor longer than this after the first one, seconds.
MOST_QUIET_SECONDS: Final = 30.0

#: How long a process that is gone before its claim was read back may take to register again, with the claim, seconds.
RETURN_SECONDS: Final = 2.0

#: How long a host counts as one that has room after a process of it has ended, seconds: another is being started.
RESTART_SECONDS: Final = 10.0

#: How often the pool is looked at without news, seconds.
_LOOK_SECONDS: Final = 0.5

#: How often a pool that cannot be used yet is looked at, seconds.
_GATHER_SECONDS: Final = 0.1

#: Hosts, those without room, the note, and all processes.
_Offered = tuple[tuple[str, ...], frozenset[str], str, tuple[PoolProcess, ...]]


@dataclass
class PoolCell:
    """The connection to a pool, for the candidate that leads."""

    number: int
    """The number of the cell that it stands for."""
    records: PoolRecords
    post: Callable[[Event], None]
    clock: Clock
    #: Hosts with a process, or with one that is being started again; known after `connect`.
    hosts: tuple[str, ...] = ()
    #: Those of them on which no process waits or is being started.
    full: frozenset[str] = frozenset()
    #: Which processes are of another version, and are not claimed; empty: none.
    note: str = ""
    #: Claims that were given back and are not recorded as such.
    owed: set[str] = field(default_factory=set)
    _members: dict[str, PoolMember] = field(default_factory=dict)
    _pending: dict[str, str | None] = field(default_factory=dict)
    """Claim → the host that is wanted, for requests without a process; oldest first."""
    _tried: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    """Claim of unknown outcome → its process, and since when that is seen to be gone, monotonic seconds."""
    _unsure: set[str] = field(default_factory=set)
    """Processes whose record is to be read again: the outcome of a write is not known, or it has another version."""
    _released: dict[str, float] = field(default_factory=dict)
    """Process that is given back → since when that is known, monotonic seconds."""
    _ended: dict[str, tuple[float, NodeOffer]] = field(default_factory=dict)
    """Host → when a process of it ended last, monotonic seconds, and what that offered."""
    _most: int | None = None
    """How many processes there were when the pool could be used last; None: it could not be used yet."""
    _came: float = 0.0
    """When a process came last, monotonic seconds."""
    _gathering: float = 0.0
    """Since when others are waited for before anything is claimed, monotonic seconds."""
    _offered: _Offered = ((), frozenset(), "", ())
    """What was last offered to the leader."""
    _said: str = ""
    """Why the pool could not be read, as it was logged; empty: it could."""
    _demands: dict[str, Demand] = field(default_factory=dict)
    """Claim → what is asked of its process."""
    _is_stale: threading.Event = field(default_factory=threading.Event)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._worker = Worker(POOL, self._turn, failed=going_on(_log.error, POOL))

    def connect(self) -> None:
        """Return once the pool can be used: something of it is claimed, or no process has come for a while.

        That ZooKeeper does not answer is no loss of the pool: it is asked again for as long as this candidate leads.
        """
        self._is_stale.set()
        self._gathering = self.clock.monotonic()
        while not self._is_over.is_set():
            if self._caught_up() and not self._is_gathering():
                break
            self.clock.sleep(_GATHER_SECONDS)
        self._offered = self._look_over()

    def expected(self) -> tuple[happened.ContainerExpected, ...]:
        """Return the processes that an earlier leader claimed, or this one on an earlier connection."""
        return tuple(
            happened.ContainerExpected(
                name,
                _grant(each.record.claim),
                self.clock.monotonic_ms(),
                self.number,
                POOL,
                each.record.host,
                offer=each.record.offer,
            )
            for name, each in sorted(self._members.items())
            if each.record.claim and not each.record.is_released
        )

    def start(self) -> None:
        """Start the thread that follows the pool."""
        self._worker.start()

    def stop(self) -> None:
        """Stop the thread after the commands that were given."""
        self._is_over.set()
        self._worker.close()
        self._worker.join(5)

    def close(self) -> None:
        """End a `connect` under way."""
        self._is_over.set()

    # ---- commands: return at once, the outcome comes as an event ----

    def request(self, number: int, host: str | None, demand: Demand = ANY) -> None:
        """Claim a process that fits on ``host``, or on any, now or when one waits; results in `RequestPlaced`."""

        def run() -> None:
            claim = f"{self.records.epoch}-{number}"
            self._pending[claim] = host
            self._demands = {each: self._demands[each] for each in self._pending if each in self._demands}
            self._demands[claim] = demand
            self.post(happened.RequestPlaced(number, _grant(claim)))

        self._worker.put(run)

    def release(self, granted: str) -> bool:
        """Give back a process or a request. Return False if it is not of a pool."""
        attempt, _, claim = granted.rpartition("/")
        if attempt != POOL:
            return False

        def run() -> None:
            self._pending.pop(claim, None)
            # The thread may have looked for it in vain, and claimed a process for the request since.
            self.owed.add(granted)

        # Added at once, because the connection may end before the command runs.
        self.owed.add(granted)
        self._worker.put(run)
        return True

    def finish(self, *, succeeded: bool, diagnostics: str) -> None:
        """Do nothing: a pool does not end with its last job."""

    # ---- the thread ----

    def _turn(self) -> None:
        self._worker.wait(self.clock.pace(_LOOK_SECONDS))
        # All requests of a turn of the leader, before the free processes are reported to it.
        self._worker.catch_up()
        if self._worker.is_closed or not self._caught_up():
            return
        self._settle_tried()
        self._give_back()
        is_gathering = self._is_gathering()
        if not is_gathering:
            self._serve()
        if not is_gathering or not self._members:
            # Also that there is none any more.
            self._offer()

    def _stale(self) -> None:
        """Cause the pool to be read again (a watch)."""
        self._is_stale.set()
        self._worker.wake()

    def _caught_up(self) -> bool:
        """Return whether the processes are known as they are recorded, after reading what may have changed."""
        try:
            if self._is_stale.is_set():
                self._is_stale.clear()
                names = self.records.names(self._stale)
                for each in self._members.keys() - names:
                    self._gone(self._members.pop(each).record)
                self._unsure |= names - self._members.keys()
            if self._unsure:
                found = self.records.read(sorted(self._unsure))
                for name in sorted(self._unsure):
                    self._seen(name, found.get(name))
                self._unsure.clear()
        except (Transient, BadConfiguration) as error:
            # Its nodes may be closed for a moment, too. There may be no watch then: it has to be read again.
            if (said := str(error)) != self._said:
                _log.warning("the pool cannot be read now: %s", said)
            self._said = said
            self._is_stale.set()
            return False
        self._said = ""
        return True

    def _seen(self, name: str, found: PoolMember | None) -> None:
        """Note a process as it is recorded now; None: it is gone, or its record cannot be read."""
        before = self._members.pop(name, None)
        if found is None:
            if before is not None:
                self._gone(before.record)
            return
        self._members[name] = found
        if before is None:
            self._came = self.clock.monotonic()
        if found.record.is_released:
            self._released.setdefault(name, self.clock.monotonic())
        if found.record.claim in self._pending:
            # The write that claimed it had succeeded although its outcome was not known.
            self._claimed(found.record)

    def _gone(self, record: MemberRecord) -> None:
        """Post the end of a process that was claimed; another is started on its host soon."""
        self._released.pop(record.container, None)
        self._ended[record.host] = (self.clock.monotonic(), record.offer)
        if not record.claim:
            return
        grant = _grant(record.claim)
        self.owed.discard(grant)
        self.post(happened.ContainerUnregistered(record.container, self.clock.monotonic_ms(), grant))

    def _is_gathering(self) -> bool:
        """Return whether nothing is claimed while processes are still coming, and fewer wait than there were before."""
        now, count = self.clock.monotonic(), len(self._members)
        if not count:
            self._gathering = now
            return True
        is_used = any(each.record.claim for each in self._members.values())
        if (
            not is_used
            and (self._most is None or count < self._most)
            and now - self._came < QUIET_SECONDS
            and now - self._gathering < MOST_QUIET_SECONDS
        ):
            return True
        self._gathering = now
        self._most = max(count, self._most or 0) if is_used else count
        return False

    def _settle_tried(self) -> None:
        """Find out what came of claims of unknown outcome: what their processes' records say, which were read since.

        A process that is gone may come back with its claim. The request must not get another one meanwhile, nor may two
        processes have the same claim: if it stays away, the request has ended as if it had been claimed.
        """
        now = self.clock.monotonic()
        for claim, (name, gone) in list(self._tried.items()):
            if name in self._members:
                del self._tried[claim]
            elif gone is None:
                self._tried[claim] = (name, now)
            elif now - gone >= RETURN_SECONDS:
                del self._tried[claim]
                if claim in self._pending:
                    del self._pending[claim]
                    self.post(happened.ContainerUnregistered(name, self.clock.monotonic_ms(), _grant(claim)))

    def _serve(self) -> None:
        """Claim processes for the requests that wait, oldest first."""
        for claim, host in list(self._pending.items()):
            if claim in self._tried:
                continue
            member = next(self._waiting(host, self._demands[claim]), None)
            if member is None:
                continue
            claimed = msgspec.structs.replace(member.record, claim=claim, job=self._demands[claim].job)
            if not self._write(member, claimed):
                # It may have been claimed, and the request must not get a second one: first it is read again.
                return
            self._claimed(claimed)

    def _waiting(self, host: str | None, demand: Demand) -> Iterator[PoolMember]:
        """Yield the processes that wait and fit, on ``host`` or on any: the best fit, then where fewest are claimed."""
        loads: dict[str, int] = {}
        for each in self._members.values():
            loads[each.record.host] = loads.get(each.record.host, 0) + bool(each.record.claim)
        found = [
            (rest(demand, each.record.offer), loads[each.record.host], each.record.host, name)
            for name, each in self._members.items()
            if name not in self._unsure
            and _is_free(each.record)
            and host in (None, each.record.host)
            and fits(demand, each.record.offer)
        ]
        for *_, name in sorted(found):
            yield self._members[name]

    def _write(self, member: PoolMember, record: MemberRecord) -> bool:
        """Return whether a process's record was changed; otherwise it is read again."""
        name = record.container
        try:
            if self.records.write(PoolMember(record, member.version)):
                self._members[name] = PoolMember(record, member.version + 1)
                return True
        except Transient as error:
            _log.warning("%s: the outcome of a change is not known: %s", name, error)
            self._tried[record.claim] = (name, None)
        except Fenced as error:
            # This candidate does not lead any more; it learns that from its lease, too.
            _log.warning("%s was not changed: %s", name, error)
            self._worker.end()
        self._unsure.add(name)
        self._worker.wake()
        return False

    def _claimed(self, record: MemberRecord) -> None:
        del self._pending[record.claim]
        _log.info("claimed %s on %s", record.container, record.host)
        self.post(happened.ContainerGranted(_grant(record.claim), self.clock.monotonic_ms(), record.offer))

    def _give_back(self) -> None:
        """Record that processes are not needed any longer; what cannot be recorded stays owed."""
        if not self.owed:
            return
        held = {_grant(each.record.claim): each for each in self._members.values() if each.record.claim}
        for granted in tuple(self.owed):
            member = held.get(granted)
            if member is None:
                # A request, or a process that is gone; unless the write that claimed one is unsettled.
                if not self._unsure and granted.removeprefix(f"{POOL}/") not in self._tried:
                    self.owed.discard(granted)
                continue
            if member.record.is_released or self._write(
                member, msgspec.structs.replace(member.record, is_released=True)
            ):
                _log.info("%s on %s is given back", member.record.container, member.record.host)
                self._released.setdefault(member.record.container, self.clock.monotonic())
                self.owed.discard(granted)

    def _offer(self) -> None:
        """Tell the leader of the hosts and processes if they have changed."""
        offered = self._look_over()
        if offered == self._offered:
            return
        self._offered = offered
        hosts, full, note, processes = offered
        at_ms = self.clock.monotonic_ms()
        self.post(
            happened.CellFound(self.number, POOL, hosts, at_ms, full=full, note=note, processes=processes)
        )

    def _look_over(self) -> _Offered:
        """Note where there is room, and which processes cannot be claimed; return it, with the processes."""
        self.hosts, self.full = self._room()
        others: dict[str, set[str]] = {}
        for each in self._members.values():
            if each.record.protocol != PROTOCOL:
                version = f"standfast {each.record.standfast} (protocol {each.record.protocol})"
                others.setdefault(version, set()).add(each.record.host)
        said = [f"{version} on {', '.join(sorted(hosts))}" for version, hosts in sorted(others.items())]
        note = f"not claimed, for this leader speaks protocol {PROTOCOL}: {'; '.join(said)}" if said else ""
        if note and note != self.note:
            _log.warning("processes are %s", note)
        self.note = note
        return self.hosts, self.full, self.note, self.processes

    @property
    def processes(self) -> tuple[PoolProcess, ...]:
        """Every process, and those that are being started again, as they were."""
        present = [
            replace(each.process, is_free=self._makes_room(each.record))
            for _, each in sorted(self._members.items())
        ]
        coming = [PoolProcess(host, offer) for host, (_, offer) in sorted(self._ended.items())]
        return (*present, *coming)

    def _room(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """Return every host, and those on which no process waits or is being started."""
        now = self.clock.monotonic()
        self._ended = {host: each for host, each in self._ended.items() if now - each[0] < RESTART_SECONDS}
        records = [each.record for each in self._members.values()]
        hosts = {*(each.host for each in records), *self._ended}
        roomy = {each.host for each in records if self._makes_room(each)}
        return tuple(sorted(hosts)), frozenset(hosts - roomy - self._ended.keys())

    def _makes_room(self, record: MemberRecord) -> bool:
        """Return whether a process waits, or was given back a moment ago and makes room as one that has ended.

        One that is dead stays registered until its session ends.
        """
        since = self._released.get(record.container)
        is_restarting = since is not None and self.clock.monotonic() - since < RESTART_SECONDS
        return _is_free(record) or is_restarting


def _grant(claim: str) -> str:
    return grant_id(POOL, claim)


def _is_free(record: MemberRecord) -> bool:
    """Return whether a process waits, and speaks the leader's protocol."""
    return not record.claim and not record.is_released and record.protocol == PROTOCOL
