"""A cell's Skein AM: requests for containers, their release, and what becomes of them.

One thread owns the connection: it carries out commands as they come and polls the list of containers in between, since
Skein does not push changes of containers. What it sees is posted to the inbox. RUNNING only means that YARN granted the
container, KILLED only that its end was requested.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import skein
from skein.exceptions import SkeinError
from skein.model import ContainerState

from appmaster.adapters.skein_library import ApplicationClient
from appmaster.blame import describe_error, going_on, is_of_job, traceback_of
from appmaster.leadership.cells import SILENT_SECONDS
from appmaster.leadership.port_probe import refuses
from appmaster.leadership.yarn_ids import grant_id
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import PlannerPolicy
from locality.fit import ANY, Demand, PoolProcess
from standby.errors import Unavailable
from standby.process.last_words import LastWords, last_words
from standby.shared.clock import Clock
from standby.threads.worker import Worker

_log = logging.getLogger(__name__)

#: The service that is not bound to a host.
ANYWHERE = "anywhere"

#: How often the list is read while a change is expected, and otherwise (seconds). The AM learns of changes with its
#: heartbeats, 0.2 s apart by default; the leader learns of deaths by broken streams.
_BUSY_SECONDS = 0.1
_IDLE_SECONDS = 0.5

#: A container that ends within this time of its start may never have registered; its log says why, seconds. One that
#: takes longer is given back.
_YOUNG_SECONDS: Final = PlannerPolicy().launch_timeout_ms / 1000

_NO_WORDS: Final = LastWords()

#: The states of requests and of running containers. Skein's AM keeps the lines of ended ones, too, for its lifetime:
#: withdrawn requests alone may be a hundred thousand.
_PRESENT: Final = (ContainerState.WAITING, ContainerState.REQUESTED, ContainerState.RUNNING)

#: The states of containers that ended without being asked to.
_ENDED_ITSELF: Final = (ContainerState.SUCCEEDED, ContainerState.FAILED)

#: A call that the AM does not answer within this time is tried again, seconds.
_CALL_SECONDS: Final = 1.5


def service_name(index: int) -> str:
    """Return the name of the service that is bound to the ``index``-th host."""
    return f"host-{index}"


@dataclass(frozen=True, slots=True)
class CellAddress:
    """The address of a cell's Skein AM, and its attempt."""

    number: int
    application: str
    attempt: str
    address: str
    """``host:port``."""


class _Client(ApplicationClient):  # type: ignore[misc] # skein has no types
    """Skein's client with a time-out for every call: Skein's own calls wait for ever while the AM is stalled."""

    def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        return super()._call(method, request, timeout or _CALL_SECONDS)


@dataclass
class SkeinCell:
    """The connection to one cell's Skein AM, from wherever the leader is.

    ``certificate`` and ``key`` are the pair with which the AMs of this cluster's applications were submitted.
    """

    cell: CellAddress
    certificate: bytes
    key: bytes
    post: Callable[[Event], None]
    clock: Clock
    is_lost: Callable[[str], None]
    """Called once, on the connection's thread, when the AM is gone or no longer answers."""
    last_lines: Callable[[str, str], Sequence[str]] = lambda node, container: ()
    """Returns the last lines of a container's output, given the address of its NodeManager's pages and its id; none if
    they are not available."""
    may_act: Callable[[], bool] = lambda: True
    """Returns whether the leader's lease is valid; asked before each request and each kill (rule `epoch-check`)."""
    #: Hosts that can be requested by name; known after `connect`.
    hosts: tuple[str, ...] = ()
    #: Not known: YARN does not tell where there is room.
    full: frozenset[str] = frozenset()
    #: Nothing is known of it.
    note: str = ""
    processes: tuple[PoolProcess, ...] = ()
    #: Containers that were given back without the AM being informed.
    owed: set[str] = field(default_factory=set)
    _client: Any = None
    _services: dict[str | None, str] = field(default_factory=dict)
    _known: dict[str, Any] = field(default_factory=dict)
    """Skein's id → its last line, for requests and containers that have not ended."""
    _pending: set[str] = field(default_factory=set)
    _running_since: dict[str, float] = field(default_factory=dict)
    """Skein's id → monotonic seconds, for containers whose grant was seen."""
    _answered: float = 0.0
    """Monotonic seconds."""
    _looked: float = 0.0

    def __post_init__(self) -> None:
        name = f"skein-{self.cell.number}"
        self._worker = Worker(name, self._turn, failed=going_on(_log.error, name))

    def connect(self) -> None:
        """Connect; raises `Unavailable` if the AM does not answer."""
        cell = self.cell
        try:
            self._client = _Client(
                cell.address,
                cell.application,
                security=skein.Security(cert_bytes=self.certificate, key_bytes=self.key),
            )
            specification = self._client.get_specification()
        except SkeinError as error:
            raise Unavailable(f"the Skein AM of cell {cell.number} at {cell.address}: {error}") from error
        for name, service in specification.services.items():
            self._services[service.nodes[0] if service.nodes else None] = name
        self.hosts = tuple(sorted(host for host in self._services if host is not None))

    def expected(self) -> tuple[happened.ContainerExpected, ...]:
        """Return the containers that run already: those of an earlier leader, or of an earlier connection.

        Requests of a former leader are withdrawn, because their purpose is not known any more; without a lease they may
        be the next leader's. Raises `Unavailable` if the AM does not answer.
        """
        found = []
        cell = self.cell
        try:
            for each in self._client.get_containers(states=[ContainerState.RUNNING]):
                self._known[each.id] = each
                granted = self._granted(each.id)
                found.append(
                    happened.ContainerExpected(
                        each.yarn_container_id, granted, self.clock.monotonic_ms(), cell.number, cell.attempt
                    )
                )
            for each in self._client.get_containers(
                states=[ContainerState.REQUESTED, ContainerState.WAITING]
            ):
                if self.may_act():
                    self._client.kill_container(each.id)
        except SkeinError as error:
            raise Unavailable(f"the Skein AM of cell {cell.number} at {cell.address}: {error}") from error
        return tuple(found)

    def start(self) -> None:
        """Start the thread that communicates with the AM."""
        self._answered = self._looked = self.clock.monotonic()
        self._worker.start()

    def stop(self) -> None:
        """Stop the thread after the commands that were given."""
        self._worker.close()
        self._worker.join(5)

    def close(self) -> None:
        """Release the connection; call after `stop`."""
        if self._client is not None:
            self._client.close()

    # ---- commands: return at once, the outcome comes as an event ----

    def request(self, number: int, host: str | None, demand: Demand = ANY) -> None:
        """Request a container on ``host``, or on any; results in `RequestPlaced` or `RequestRefused`.

        ``demand`` is of no use here: the application was submitted with the size of its containers.
        """

        def run() -> None:
            if not self.may_act():
                reason = "the leader has no valid lease"
                self.post(happened.RequestRefused(number, reason, self.clock.monotonic_ms()))
                return
            service = self._services.get(host)
            if service is None:
                reason = f"{host} has no service in cell {self.cell.number}"
                self.post(happened.RequestRefused(number, reason, self.clock.monotonic_ms()))
                return
            try:
                container = self._client.add_container(service)
            except Exception as error:  # noqa: BLE001 - a request without an outcome would wait for ever
                said = str(error) if isinstance(error, SkeinError) else describe_error(error)
                self.post(happened.RequestRefused(number, said, self.clock.monotonic_ms()))
                return
            self._known[container.id] = container
            self._pending.add(container.id)
            self.post(happened.RequestPlaced(number, self._granted(container.id)))

        self._worker.put(run)

    def release(self, granted: str) -> bool:
        """Give back a container or a request; ``granted`` is its `grant_id`. Return False if it is another cell's.

        If the AM cannot be informed, or there is no lease, the container stays in `owed`.
        """
        attempt, _, skein_id = granted.rpartition("/")
        if attempt != self.cell.attempt:
            return False

        # Added at once, because the connection may be lost before the command runs.
        self.owed.add(granted)
        self._worker.put(lambda: self._give_back(granted, skein_id))
        return True

    def _give_back(self, granted: str, skein_id: str) -> bool:
        """Return whether the AM has heard of it; if not, the container stays in `owed`."""
        self._pending.discard(skein_id)
        if not self.may_act():
            return False
        try:
            self._client.kill_container(skein_id)
        except (skein.exceptions.ConnectionError, skein.exceptions.TimeoutError):
            return False
        except SkeinError as error:
            # It has ended by itself in the meantime, which has the same effect.
            _log.info("releasing %s: %s", granted, error)
        # Any other error leaves it owed.
        self.owed.discard(granted)
        return True

    def finish(self, *, succeeded: bool, diagnostics: str) -> None:
        """End the whole application with its final status.

        The application of a failed job ends as KILLED with the reason in the diagnostics: after FAILED, Skein leaves
        the application registered and YARN starts the next attempt, which would only fail again.
        """
        try:
            self._client.shutdown(status="SUCCEEDED" if succeeded else "KILLED", diagnostics=diagnostics)
        except SkeinError as error:
            _log.warning("cell %d could not be ended: %s", self.cell.number, error)

    def _granted(self, skein_id: str) -> str:
        return grant_id(self.cell.attempt, skein_id)

    # ---- the thread ----

    def _turn(self) -> None:
        has_run = self._worker.wait(self.clock.pace(_BUSY_SECONDS if self._pending else _IDLE_SECONDS))
        if self._worker.is_closed:
            return
        if has_run and self.clock.monotonic() - self._looked < _IDLE_SECONDS:
            return  # the remaining commands first, then one look
        # Also between commands: with a stalled AM each command waits, is refused, and is given again. Without this look
        # there would be no end to them, and the AM would never be judged.
        self._looked = self.clock.monotonic()
        try:
            self._look()
            self._answered = self.clock.monotonic()
            for granted in tuple(self.owed):
                # An AM that stands still again costs one call's time, not one for each container.
                if not self._give_back(granted, granted.rpartition("/")[2]):
                    break
        except Exception as error:
            if not is_of_job(error):
                raise
            # An answer that cannot be read counts as none; the other cells are led.
            exc_info = traceback_of(error, SkeinError)
            _log.warning("the Skein AM of cell %d: %s", self.cell.number, error, exc_info=exc_info)
            if refuses(self.cell.address):
                self._lose("its AM is dead: its port refuses")
            elif self.clock.monotonic() - self._answered > SILENT_SECONDS:
                self._lose(f"its AM does not answer: {error}")

    def _lose(self, reason: str) -> None:
        self._worker.end()
        self.is_lost(reason)

    def _look(self) -> None:
        present = {each.id: each for each in self._client.get_containers(states=_PRESENT)}
        ended = self._lines_of([each for each in self._known if each not in present])
        for skein_id, each in present.items():
            before = self._known.get(skein_id)
            if before is None and str(each.state) != "RUNNING":
                # The answer to its request came too late: the request counts as refused, and is made again. Without a
                # lease it may be the next leader's.
                self._give_back(self._granted(skein_id), skein_id)
                continue
            self._known[skein_id] = each
            if str(each.state) == "RUNNING" and (before is None or str(before.state) != "RUNNING"):
                self._pending.discard(skein_id)
                self._running_since[skein_id] = self.clock.monotonic()
                self.post(happened.ContainerGranted(self._granted(skein_id), self.clock.monotonic_ms()))
        for skein_id, line in ended.items():
            self._tell_end(self._known.pop(skein_id), line)

    def _lines_of(self, ended: list[str]) -> dict[str, Any]:
        """Return Skein's id → last line of containers that have ended; None for one that was ended from outside."""
        services = sorted({self._known[each].service_name for each in ended})
        if not services:
            return {}
        listed = self._client.get_containers(states=_ENDED_ITSELF, services=services)
        lines = {each.id: each for each in listed}
        return {each: lines.get(each) for each in ended}

    def _tell_end(self, before: Any, line: Any) -> None:
        """Post the end of a container; ``before`` is its line before it ended."""
        self._pending.discard(before.id)
        state = str(line.state) if line is not None else "KILLED"
        last = line if line is not None else before
        ended = _Ended(
            self._granted(before.id),
            (_first_line(line.exit_message) if line is not None else "") or state.lower(),
            last.yarn_container_id,
            last.yarn_node_http_address,
            self.clock.monotonic_ms(),
        )
        lived = self.clock.monotonic() - self._running_since.pop(before.id, 0.0)
        if line is not None and (str(before.state) != "RUNNING" or lived < _YOUNG_SECONDS):
            # Its log says why. If it had registered, its broken stream has been noticed meanwhile.
            threading.Thread(target=self._tell, args=(ended,), daemon=True).start()
        else:
            self.post(ended.completed())

    def _tell(self, ended: _Ended) -> None:
        """Post the end of a container that ended at its start, with what its log says about it, if available."""
        words = _NO_WORDS
        try:
            words = last_words(self.last_lines(ended.node, ended.container))
        except Exception as error:
            if not is_of_job(error):
                raise
            _log.error("the log of %s could not be read", ended.container, exc_info=error)
        self.post(ended.completed(words))


@dataclass(frozen=True, slots=True)
class _Ended:
    """A container that has ended."""

    granted: str
    message: str
    container: str
    """YARN's id, which leads to the log; Skein's own text is always the same."""
    node: str
    """``host:port`` of the NodeManager's pages."""
    at_ms: int

    def completed(self, words: LastWords = _NO_WORDS) -> happened.ContainerCompleted:
        said = f"{self.message} ({self.container}{f': {words.text}' if words.text else ''})"
        return happened.ContainerCompleted(self.granted, said, self.at_ms, words.is_from_outside)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
