"""The cell's Skein AM: asking for containers, giving them back, and what becomes of them.

One thread owns the connection: it carries out commands as they come and looks at the list of
containers in between (Skein pushes nothing for containers). What it sees goes into the inbox.
RUNNING only means that YARN granted the container, KILLED only that it was asked to die.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import skein
from skein.exceptions import SkeinError
from skein.model import ContainerState

from appmaster.planning import events as happened
from appmaster.planning.events import Event
from standby.errors import Unavailable

_log = logging.getLogger(__name__)

#: The service without a host of its own.
ANYWHERE = "anywhere"

#: How often the list is read while something is expected to change, and else (seconds). The AM learns
#: of changes with its heartbeats, 0.2 s apart by default; deaths reach the leader by broken streams.
_BUSY_SECONDS = 0.1
_IDLE_SECONDS = 0.5


def service_name(index: int) -> str:
    """Return the name of the service that is bound to the ``index``-th host."""
    return f"host-{index}"


@dataclass
class _Command:
    run: Callable[[], None]


@dataclass
class SkeinCell:
    """The connection to one cell's Skein AM, from inside the application."""

    post: Callable[[Event], None]
    now_ms: Callable[[], int]
    is_broken: Callable[[str], None]
    """Called when the AM does not answer any more: this process is about to end with it."""
    #: Hosts that can be asked for by name; known after `connect`.
    hosts: tuple[str, ...] = ()
    _client: Any = None
    _services: dict[str | None, str] = field(default_factory=dict)
    _commands: queue.SimpleQueue[_Command | None] = field(default_factory=queue.SimpleQueue)
    _known: dict[str, str] = field(default_factory=dict)
    _pending: set[str] = field(default_factory=set)
    _thread: threading.Thread | None = None

    def connect(self) -> None:
        """Connect to the application this process runs in."""
        try:
            self._client = skein.ApplicationClient.from_current()
            specification = self._client.get_specification()
        except SkeinError as error:
            raise Unavailable(f"the Skein application master does not answer: {error}") from error
        for name, service in specification.services.items():
            self._services[service.nodes[0] if service.nodes else None] = name
        self.hosts = tuple(sorted(host for host in self._services if host is not None))

    def expected(self) -> tuple[happened.ContainerExpected, ...]:
        """Return the containers that live already: left by a candidate before this one."""
        found = []
        for each in self._client.get_containers(states=[ContainerState.RUNNING]):
            self._known[each.id] = "RUNNING"
            found.append(happened.ContainerExpected(each.yarn_container_id, each.id, self.now_ms()))
        for each in self._client.get_containers(states=[ContainerState.REQUESTED, ContainerState.WAITING]):
            # A request of a former candidate: nobody remembers what for.
            self._client.kill_container(each.id)
        return tuple(found)

    def start(self) -> None:
        """Start the thread that talks to the AM."""
        self._thread = threading.Thread(target=self._run, name="skein", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the commands that were given."""
        self._commands.put(None)
        if self._thread is not None:
            self._thread.join(timeout=5)

    # ---- commands: return at once, the outcome comes as an event ----

    def request(self, number: int, host: str | None) -> None:
        """Ask for a container on ``host``, or on any; gives `RequestPlaced` or `RequestRefused`."""

        def run() -> None:
            service = self._services.get(host)
            if service is None:
                self.post(
                    happened.RequestRefused(
                        number, f"{host} has no service in this application", self.now_ms()
                    )
                )
                return
            try:
                container = self._client.add_container(service)
            except SkeinError as error:
                self.post(happened.RequestRefused(number, str(error), self.now_ms()))
                return
            self._pending.add(container.id)
            self.post(happened.RequestPlaced(number, container.id))

        self._commands.put(_Command(run))

    def release(self, skein_id: str) -> None:
        """Give a container, or a request, back."""

        def run() -> None:
            self._pending.discard(skein_id)
            try:
                self._client.kill_container(skein_id)
            except SkeinError as error:
                # It ended by itself in the meantime, which is as good.
                _log.info("releasing %s: %s", skein_id, error)

        self._commands.put(_Command(run))

    def finish(self, *, succeeded: bool, diagnostics: str) -> None:
        """End the whole application with its final status.

        A failed job ends as KILLED with the reason in the diagnostics: after FAILED, Skein leaves the
        application registered and YARN starts the next attempt, which would only fail again.
        """
        self._client.shutdown(status="SUCCEEDED" if succeeded else "KILLED", diagnostics=diagnostics)

    # ---- the thread ----

    def _run(self) -> None:
        failures = 0
        while True:
            try:
                command = self._commands.get(timeout=_BUSY_SECONDS if self._pending else _IDLE_SECONDS)
                if command is None:
                    return
                command.run()
                continue  # the rest of the commands first, then one look
            except queue.Empty:
                pass
            try:
                self._look()
                failures = 0
            except SkeinError as error:
                failures += 1
                _log.warning("the Skein application master does not answer: %s", error)
                if failures >= 10:
                    self.is_broken(str(error))
                    return

    def _look(self) -> None:
        containers = self._client.get_containers(states=list(ContainerState))
        for each in containers:
            state = str(each.state)
            before = self._known.get(each.id)
            if state == before:
                continue
            self._known[each.id] = state
            if state == "RUNNING":
                self._pending.discard(each.id)
                self.post(happened.ContainerGranted(each.id, self.now_ms()))
            elif state in ("SUCCEEDED", "FAILED", "KILLED", "STOPPED"):
                self._pending.discard(each.id)
                message = each.exit_message or state.lower()
                self.post(happened.ContainerCompleted(each.id, _first_line(message), self.now_ms()))


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
