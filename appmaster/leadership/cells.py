"""The leader's side of all cells: which cells exist, whose Skein AM answers, and where requests are sent.

The cells' records in ZooKeeper contain the address of each Skein AM; a record changes with every attempt of its
application. A lost connection is tried again while its record stands, because an AM that only stalled answers again.
Everything that happens is posted to the inbox as an event.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.blame import describe_error, is_of_job, is_of_record
from appmaster.leadership.port_probe import host_of, refuses
from appmaster.leadership.ports import CellConnection, CellRecords
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.records import CellRecord
from locality.fit import ANY, Demand
from standby.errors import Fenced, Transient, Unavailable
from standby.shared.clock import Clock

_log = logging.getLogger(__name__)

#: How often a cell that does not answer is tried again, seconds.
_AGAIN_SECONDS: Final = 1.0

#: How long a new leader waits for AMs that do not answer, seconds.
_ANSWER_SECONDS: Final = 0.5

#: How long the first leader of a cluster waits for cells whose candidates have not started yet, seconds.
_PATIENCE_SECONDS: Final = 15.0

#: How long an AM whose port accepts may be silent before it counts as gone, seconds.
SILENT_SECONDS: Final = 6.0

#: How often cells that are starting are looked at without news, seconds.
_LOOK_SECONDS: Final = 0.2


#: Makes a connection for a cell's number and record; the last argument is called with the reason when it is lost.
ConnectCell = Callable[[int, CellRecord, Callable[[str], None]], CellConnection]


@dataclass
class _Held:
    """A cell's present attempt, and the state of the connection to its AM."""

    record: CellRecord
    since: float
    """When the connection was first tried, monotonic seconds."""
    connection: CellConnection | None = None
    """None: the AM does not answer, or not yet."""
    trying: CellConnection | None = None
    """One that is being made."""
    is_trying: bool = False
    """A thread is connecting."""
    is_lost: bool = False
    """The AM does not answer, and the loss was posted."""


@dataclass
class Cells:
    """The cells of a leader; `request` and `release` return at once, on any thread."""

    records: CellRecords
    connect: ConnectCell
    post: Callable[[Event], None]
    clock: Clock
    own: int
    """The cell of this candidate; its application ends last, because that ends this process, too."""
    is_dead: Callable[[str], bool] = refuses
    """Returns whether an AM's port refuses."""
    may_act: Callable[[], bool] = lambda: True
    """Returns whether the leader's lease is valid: without it no application is ended (rule `epoch-check`)."""
    _held: dict[int, _Held] = field(default_factory=dict)
    _owed: set[str] = field(default_factory=set)
    """Grants that were given back while no connection could take them."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wake: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _present: Mapping[int, CellRecord] = field(default_factory=dict)
    _is_fresh: bool = False
    """Whether no record has changed since the last read."""
    _unreadable: str = ""
    """The error of the last read, as it was logged; empty: it succeeded."""
    _begun: float = 0.0
    _collected: dict[int, list[Event]] | None = None
    """During a take-over: the events found, by cell. None: events are posted to the inbox."""

    def begin(self) -> None:
        """Begin to connect to all cells at once; raises `Transient` if their records cannot be read.

        May be repeated during a take-over: what has been found so far is kept, like the connections.
        """
        with self._lock:
            self._collected = self._collected or {}
        self._begun = self.clock.monotonic()
        self._read()
        self._try_all()

    def take_over(self) -> list[Event]:
        """Return a new leader's first events, some time after `begin`: the cells that answer, and what runs in them.

        Cells whose AM is silent are not waited for: they are awaited (`CellAwaited`), and judged later like any silent
        AM. So are those whose application waits in YARN's queue, until it starts. The connections watch their
        containers from now on; their events are behind these in the inbox. A cluster in which nothing runs yet waits a
        little longer for its cells: whatever is placed before they come would have to move later.
        """
        while (pause := self._to_wait()) > 0:
            self._wake.wait(self.clock.pace(min(pause, _LOOK_SECONDS)))
            self._wake.clear()
            if not self._is_fresh:
                # Otherwise no cell is tried again, or a dead AM would be waited for like a silent one.
                self._look()
        with self._lock:
            found, self._collected = self._collected or {}, None
            silent = {number: each.record for number, each in self._held.items() if not found.get(number)}
        silent |= {number: each for number, each in self._present.items() if not each.attempt}
        events = [event for _, each in sorted(found.items()) for event in each]
        for number, record in sorted(silent.items()):
            _log.warning("cell %d does not answer yet: going on without it", number)
            events.append(
                happened.CellAwaited(
                    number, record.attempt, self.clock.monotonic_ms(), host_of(record.address)
                )
            )
        return events

    def _to_wait(self) -> float:
        """Return how much longer a take-over may wait, seconds; 0 or less: it has all it needs, or time is over."""
        with self._lock:
            is_trying = any(each.is_trying for each in self._held.values())
            runs = any(
                isinstance(event, happened.ContainerExpected)
                for each in (self._collected or {}).values()
                for event in each
            )
        waited = self.clock.monotonic() - self._begun
        if is_trying and waited < _ANSWER_SECONDS:
            return _ANSWER_SECONDS - waited
        if runs or all(each.attempt for each in self._present.values()):
            return 0
        return _PATIENCE_SECONDS - waited

    def start(self) -> None:
        """Follow the cells from now on, on a separate thread."""
        self._thread = threading.Thread(target=self._run, name="cells", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following them, and close every connection after the commands that were given to it."""
        self._over.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        with self._lock:
            trying = [each.trying for each in self._held.values() if each.trying is not None]
        for each in (*self._connections(), *trying):
            each.stop()

    def finish(self, *, succeeded: bool, diagnostics: str) -> None:
        """End every cell's application, its own last; a cell that does not answer is left to the command line.

        Raises `Fenced` if the lease is over: the next leader may have a new job.
        """
        with self._lock:
            held = sorted(self._held.items(), key=lambda each: each[0] == self.own)
        for _, each in held:
            if not self.may_act():
                raise Fenced("the lease was over before every application was ended")
            if each.connection is not None:
                each.connection.finish(succeeded=succeeded, diagnostics=diagnostics)

    def request(self, number: int, host: str | None, cell: int, demand: Demand = ANY) -> None:
        """Request a container from a cell; results in `RequestPlaced` or `RequestRefused`."""
        with self._lock:
            held = self._held.get(cell)
            connection = held.connection if held is not None else None
        if connection is None:
            # The planner has not heard of it yet; its next event about the cell drops the request in any case.
            self.post(
                happened.RequestRefused(number, f"cell {cell} does not answer", self.clock.monotonic_ms())
            )
            return
        connection.request(number, host, demand)

    def release(self, granted: str) -> None:
        """Give back a container or a request; if its cell does not answer now, as soon as it does."""
        with self._lock:
            # In one section, or a connection could be made or lost in between without hearing of it.
            held = [each.connection for each in self._held.values() if each.connection is not None]
            if not any(each.release(granted) for each in held):
                self._owed.add(granted)

    def _connections(self) -> list[CellConnection]:
        with self._lock:
            return [each.connection for each in self._held.values() if each.connection is not None]

    # ---- the thread ----

    def _run(self) -> None:
        while not self._over.is_set():
            self._wake.wait(self.clock.pace(_AGAIN_SECONDS))
            self._wake.clear()
            if not self._over.is_set():
                self._look()

    def _look(self) -> None:
        """Connect to the cells that changed or did not answer."""
        if not self._is_fresh:
            try:
                self._read()
            except Transient as error:
                _log.warning("the cells could not be read: %s", error)
        self._try_all()

    def _read(self) -> None:
        """Read the records; a cell whose record is invalid stays as it was, which no repetition can fix.

        Raises `Transient`.
        """
        self._is_fresh = True
        try:
            found = self.records.read_each(self._stale)
        except Exception as error:
            self._is_fresh = False
            if not is_of_record(error):
                raise
            self._complain("the cells could not be read: those last known are led", error)
            return
        former, self._present = self._present, {}
        for number, each in found.items():
            if isinstance(each, CellRecord):
                self._present[number] = each
            elif number in former:
                self._present[number] = former[number]
        wrong = [each for each in found.values() if not isinstance(each, CellRecord)]
        if wrong:
            self._complain("a cell is led as last known, or not at all if it was not", *wrong)
        else:
            self._unreadable = ""

    def _complain(self, consequence: str, *errors: Exception) -> None:
        """Log why records cannot be read, unless that was logged last."""
        said = "; ".join(describe_error(each) for each in errors)
        if said != self._unreadable:
            self._unreadable = said
            _log.error("%s: %s", consequence, said, exc_info=errors[0])

    def _stale(self) -> None:
        """Cause the records to be read again (a watch)."""
        self._is_fresh = False
        self._wake.set()

    def _try_all(self) -> None:
        """Begin to connect to every cell without a connection, each on its own thread, because one may be silent."""
        for number, record in self._present.items():
            if not record.attempt:
                continue  # its candidate has not started yet
            with self._lock:
                former = held = self._held.get(number)
                if held is None or held.record.attempt != record.attempt:
                    held = self._held[number] = _Held(record, self.clock.monotonic())
                elif held.connection is not None or held.is_trying:
                    continue
                held.is_trying = True
            if former is not None and former is not held:
                self._end(number, former)
            threading.Thread(
                target=self._try, args=(number, held), name=f"cell-{number}", daemon=True
            ).start()

    def _end(self, number: int, former: _Held) -> None:
        """End the connection to an attempt that was superseded by another."""
        if former.connection is not None:
            former.connection.stop()
            former.connection.close()
        with self._lock:
            self._forget_owed(former.record.attempt)
            self._tell_loss(number, former, "its application has another attempt")

    def _forget_owed(self, attempt: str) -> None:
        self._owed = {each for each in self._owed if each.rpartition("/")[0] != attempt}

    def _try(self, number: int, held: _Held) -> None:
        """Connect to a cell's AM, and post what came of it."""
        try:
            self._connect_to(number, held)
        finally:
            with self._lock:
                held.is_trying, held.trying = False, None
            if self._collected is not None:
                # Only a take-over waits for this. The thread that follows the cells would otherwise try again at once,
                # endlessly.
                self._wake.set()

    def _tell(self, number: int, events: list[Event]) -> None:
        """Post what became of a cell.

        Called with the lock, in the section that makes it so: several threads tell of a cell, and if its loss came
        before the news that it answers, it would be considered up for good.
        """
        if self._collected is not None:
            self._collected.setdefault(number, []).extend(events)
            return
        for each in events:
            self.post(each)

    def _tell_loss(self, number: int, held: _Held, why: str) -> None:
        """Post the loss of a cell unless it was posted; called with the lock."""
        if not held.is_lost:
            held.is_lost = True
            self._tell(
                number, [happened.CellLost(number, held.record.attempt, why, self.clock.monotonic_ms())]
            )

    def _connect_to(self, number: int, held: _Held) -> None:
        """Connect to a cell's AM; if it answers, post that, and watch its containers from then on."""
        record = held.record
        connection: CellConnection | None = None
        try:
            connection = self.connect(number, record, lambda why: self._lost(number, held, why))
            with self._lock:
                held.trying = connection
                if self._over.is_set():
                    return
            connection.connect()
            expected = connection.expected()
        except Exception as error:
            if not is_of_job(error):
                raise
            if not isinstance(error, Unavailable):
                _log.error("cell %d cannot be connected to", number, exc_info=error)
            if connection is not None:
                connection.close()
            self._silent(number, held, describe_error(error))
            return
        with self._lock:
            if self._held.get(number) is not held or self._over.is_set():
                connection.close()
                return  # superseded by another attempt meanwhile, or stopped
            held.connection, held.is_lost = connection, False
            given_back = self._owed.intersection(each.skein_id for each in expected)
            # Whatever else was owed to this attempt has ended, or was withdrawn as a request.
            self._forget_owed(record.attempt)
            found = happened.CellFound(
                number,
                record.attempt,
                connection.hosts,
                self.clock.monotonic_ms(),
                host_of(record.address),
                connection.full,
                connection.note,
                connection.processes,
            )
            self._tell(number, [found, *(each for each in expected if each.skein_id not in given_back)])
        for each in given_back:
            # It was given back while the AM could not be informed.
            connection.release(each)
        connection.start()
        _log.info("cell %d answers: attempt %s at %s", number, record.attempt, record.address)

    def _silent(self, number: int, held: _Held, why: str) -> None:
        """Post the loss of a cell once its AM's port refuses or it has been silent for long enough."""
        if held.is_lost:
            return
        if self.clock.monotonic() - held.since < SILENT_SECONDS and not self.is_dead(held.record.address):
            return
        with self._lock:
            self._tell_loss(number, held, why)

    def _lost(self, number: int, held: _Held, why: str) -> None:
        """Note the loss of a connection (on that connection's thread)."""
        with self._lock:
            if self._held.get(number) is not held or held.connection is None:
                return
            connection, held.connection = held.connection, None
            self._owed |= connection.owed
            self._tell_loss(number, held, why)
        connection.close()
        self._wake.set()
