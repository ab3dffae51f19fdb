"""YARN behind Skein, with the quirks that were measured on the real ones.

A request for a host that is full or down waits for ever. RUNNING comes before the process, KILLED before its death.
A host whose NodeManager is lost is reported after the expiry, and what runs there runs on. A grant may come
although its request was taken back: the process starts all the same and is ended a moment later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.clock import Clock
from tests.simulation.process import Host, Process

#: After which YARN takes a NodeManager for lost.
EXPIRY_MS = 3_000

REQUESTED, RUNNING, ENDED = "REQUESTED", "RUNNING", "ENDED"


@dataclass
class Listed:
    """One line of Skein's list of containers."""

    skein_id: str
    wanted_host: str | None
    state: str = REQUESTED
    container: str = ""
    """YARN's id, once granted."""
    host: Host | None = None
    message: str = ""
    process: Process | None = None
    was_killed: bool = False
    """Ended because the master asked for it."""


@dataclass
class Yarn:
    """The cluster's NodeManagers and the cell's Skein AM."""

    clock: Clock
    hosts: dict[str, Host]
    launch: Callable[[Listed], Process]
    """Starts a container's process."""
    changed: Callable[[], None]
    """Called when a look at the list would show something new."""
    listed: dict[str, Listed] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    """Hosts whose NodeManager works."""
    launches_fail_on: set[str] = field(default_factory=set)
    serial: int = 0

    def __post_init__(self) -> None:
        self.nodes = set(self.hosts)

    # ---- what the master asks ----

    def add_container(self, host: str | None) -> str:
        """Return the id of a new request."""
        self.serial += 1
        listed = Listed(f"s_{self.serial}", host)
        self.listed[listed.skein_id] = listed
        self.clock.after(self.clock.between(150, 700), self._grant, listed)
        return listed.skein_id

    def kill_container(self, skein_id: str) -> None:
        """End a request or a container; the list says so long before it is true."""
        listed = self.listed.get(skein_id)
        if listed is None or listed.state == ENDED:
            return
        was_waiting = listed.state == REQUESTED
        self.end(listed, "killed", was_killed=True)
        if was_waiting:
            if self.clock.happens(0.15):
                self.clock.after(self.clock.between(1, 400), self._grant_late, listed)
        elif listed.process is not None and listed.host is not None and listed.host.name in self.nodes:
            self.clock.after(self.clock.between(100, 1_500), self._kill, listed)

    def end(self, listed: Listed, message: str, *, was_killed: bool = False) -> None:
        """Mark a line as ended."""
        if listed.state == ENDED:
            return
        listed.state, listed.message, listed.was_killed = ENDED, message, was_killed
        self.changed()

    def _kill(self, listed: Listed) -> None:
        if listed.process is not None and listed.host is not None and listed.host.is_up:
            listed.process.kill()

    # ---- what YARN does ----

    def has_room(self, host: Host) -> bool:
        """Return whether a container would be granted on ``host`` now."""
        held = sum(1 for each in self.listed.values() if each.state == RUNNING and each.host is host)
        return host.name in self.nodes and held < host.capacity

    def _grant(self, listed: Listed) -> None:
        if listed.state != REQUESTED:
            return
        host = self._room_for(listed)
        if host is None:
            self.clock.after(self.clock.between(300, 700), self._grant, listed)
            return
        self._start_on(host, listed)
        listed.state = RUNNING
        self.changed()

    def _room_for(self, listed: Listed) -> Host | None:
        if listed.wanted_host is not None:
            host = self.hosts[listed.wanted_host]
            return host if self.has_room(host) else None
        roomy = [each for each in self.hosts.values() if self.has_room(each)]
        return self.clock.chance.choice(roomy) if roomy else None

    def _grant_late(self, listed: Listed) -> None:
        host = self._room_for(listed)
        if host is not None:
            self.clock.tell("yarn: {} is granted late on {}", listed.skein_id, host.name)
            self._start_on(host, listed)
            self.clock.after(self.clock.between(500, 2_500), self._kill, listed)

    def _start_on(self, host: Host, listed: Listed) -> None:
        self.serial += 1
        listed.container, listed.host = f"c_{self.serial}", host
        self.clock.after(self.clock.between(60, 500), self._launch, listed)

    def _launch(self, listed: Listed) -> None:
        host = listed.host
        assert host is not None
        if host.name not in self.nodes or not host.is_up:
            return
        if listed.was_killed and listed.state == ENDED and self.clock.happens(0.5):
            return
        if host.name in self.launches_fail_on:
            self.clock.tell("yarn: {} fails at launch on {}", listed.container, host.name)
            self.clock.after(self.clock.between(50, 300), self.end, listed, "exit 1")
            return
        listed.process = self.launch(listed)
        self.clock.tell("yarn: {} starts on {}", listed.container, host.name)

    def process_ended(self, container: str, code: int) -> None:
        """Take note that a container's process has ended; its NodeManager tells a moment later."""
        for listed in self.listed.values():
            if listed.container == container and listed.host is not None and listed.host.name in self.nodes:
                self.clock.after(self.clock.between(100, 600), self.end, listed, f"exit {code}")

    def node_lost(self, host: Host) -> None:
        """Lose a NodeManager, with or without its host."""
        self.nodes.discard(host.name)
        self.clock.after(EXPIRY_MS, self._expire, host)

    def _expire(self, host: Host) -> None:
        if host.name in self.nodes:
            return
        for listed in self.listed.values():
            if listed.host is host and listed.state == RUNNING:
                self.end(listed, "Container released on a *lost* node")

    def node_returned(self, host: Host) -> None:
        """Have an empty NodeManager register; what the former one ran is lost to YARN."""
        for listed in self.listed.values():
            if listed.host is host and listed.state == RUNNING:
                self.end(listed, "Container released on a *lost* node")
        self.nodes.add(host.name)
