"""YARN behind Skein, with the peculiarities measured on the real ones.

A request for a host that is full or down waits for ever. RUNNING comes before the process, KILLED before its death. A
host with a lost NodeManager is reported after the expiry, and its processes keep running. A grant may come although its
request was cancelled: the process still starts and is ended a moment later.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from locality.fit import PoolProcess
from standby.errors import Transient
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
    is_from_outside: bool = False
    """What its witness wrote says that somebody from outside ended it."""
    process: Process | None = None
    was_killed: bool = False
    """Ended because the master asked for it."""
    cell: int = 1
    attempt: str = ""
    """Of its cell's application; both end together."""
    is_registered: bool = True
    """Whether a process of a pool is in its list: one whose session has ended is not, alive or dead."""

    @property
    def state_as_told(self) -> str:
        """Its state as a leader sees it."""
        return self.state if self.is_registered else ENDED


@dataclass
class Yarn:
    """The cluster's NodeManagers and the cells' Skein AMs."""

    clock: Clock
    hosts: dict[str, Host]
    launch: Callable[[Listed], Process]
    """Starts a container's process."""
    changed: Callable[[], None]
    """Called when a look at the lists would show something new."""
    started: Callable[[int, str], None]
    """Called with a cell and its attempt when that one's AM has started."""
    attempts: dict[int, str] = field(default_factory=dict)
    """Cell → its present attempt, for those whose AM lives."""
    recorded: dict[int, str] = field(default_factory=dict)
    """Cell → its latest attempt, as the cells' records have it."""
    silent: set[int] = field(default_factory=set)
    """Cells whose AM stands still."""
    listed: dict[str, Listed] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    """Hosts whose NodeManager works."""
    launches_fail_on: set[str] = field(default_factory=set)
    serial: int = 0
    _unlisted: list[Listed] = field(default_factory=list)
    """Of attempts that are over."""

    def __post_init__(self) -> None:
        self.nodes = set(self.hosts)

    # ---- what the master asks ----

    def answers(self, cell: int) -> str:
        """Return the attempt of a cell whose AM answers; empty when it does not."""
        return "" if cell in self.silent else self.attempts.get(cell, "")

    def master_as_told(self, attempt: str) -> str:
        """Return the host that an attempt's master is said to be on: another one with each, by chance.

        It is not lost with that host: only the planner is to think so.
        """
        return sorted(self.hosts)[zlib.crc32(attempt.encode()) % len(self.hosts)]

    def full(self) -> frozenset[str]:
        """Return the hosts that are known to have no room: YARN does not tell."""
        return frozenset()

    def processes(self) -> tuple[PoolProcess, ...]:
        """Return the processes of a pool; YARN has none."""
        return ()

    def end_as_told(self, listed: Listed, now_ms: int) -> Event:
        """Return what a leader learns of the end of a container."""
        return happened.ContainerCompleted(listed.skein_id, listed.message, now_ms, listed.is_from_outside)

    def session_ended(self, container: str) -> None:
        """Take note that the session of a process, alive or dead, has ended: nothing to YARN."""

    def session_began(self, container: str) -> None:
        """Take note that a process has a session: nothing to YARN."""

    def add_container(self, host: str | None, cell: int, epoch: int = 0) -> str:
        """Return the id of a new request; raises `Transient` when the cell's AM does not answer."""
        attempt = self.answers(cell)
        if not attempt:
            raise Transient(f"cell {cell} does not answer")
        self.serial += 1
        listed = Listed(f"s_{self.serial}", host, cell=cell, attempt=attempt)
        self.listed[listed.skein_id] = listed
        self.clock.after(self.clock.between(150, 700), self._grant, listed)
        return listed.skein_id

    def kill_container(self, skein_id: str) -> None:
        """End a request or a container; the list says so long before it is true.

        Raises `Transient` when the AM does not answer.
        """
        listed = self.listed.get(skein_id)
        if listed is None or listed.state == ENDED:
            return
        if not self.answers(listed.cell):
            raise Transient(f"cell {listed.cell} does not answer")
        was_waiting = listed.state == REQUESTED
        self.end(listed, "killed", was_killed=True)
        if was_waiting:
            if self.clock.happens(0.15):
                self.clock.after(self.clock.between(1, 400), self._grant_late, listed)
        elif listed.process is not None and listed.host is not None and listed.host.name in self.nodes:
            self.clock.after(self.clock.between(100, 1_500), self._kill, listed)

    def end(self, listed: Listed, message: str, *, was_killed: bool = False) -> None:
        if listed.state == ENDED:
            return
        listed.state, listed.message, listed.was_killed = ENDED, message, was_killed
        self.changed()

    def _kill(self, listed: Listed) -> None:
        if listed.process is not None and listed.host is not None and listed.host.is_up:
            listed.process.kill()

    # ---- cells ----

    def new_attempt(self, cell: int) -> str:
        """Return the name of a cell's next attempt."""
        return f"c{cell}.{self.serial}"

    def start_am(self, cell: int) -> None:
        """Start the next attempt of a cell. It knows nothing of the one before, of which YARN ends what is left."""
        self.serial += 1
        attempt = self.attempts[cell] = self.recorded[cell] = self.new_attempt(cell)
        for each in self._unlisted:
            if each.cell == cell and each.host is not None and each.host.name in self.nodes:
                self.clock.after(self.clock.between(10, 300), self._kill, each)
        self.clock.tell("yarn: cell {} is attempt {}", cell, attempt)
        self.changed()
        self.started(cell, attempt)

    def lose_am(self, cell: int, *, runs_on: bool) -> None:
        """Lose a cell's AM; its containers end with it, or run on while YARN takes it for alive."""
        attempt = self.attempts.pop(cell, "")
        if not attempt:
            return
        self.clock.tell(
            "yarn: the AM of cell {} is dead, its containers {}", cell, "run on" if runs_on else "too"
        )
        for each in [each for each in self.listed.values() if each.attempt == attempt]:
            del self.listed[each.skein_id]
            self._unlisted.append(each)
            if each.state == REQUESTED:
                each.state = ENDED
            elif not runs_on:
                self.clock.after(self.clock.between(30, 250), self._kill, each)
        delay = self.clock.between(1_500, 4_000) + (EXPIRY_MS if runs_on else 0)
        self.clock.after(delay, self.start_am, cell)
        self.changed()

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
        if host is not None and self.attempts.get(listed.cell) == listed.attempt:
            self.clock.tell("yarn: {} is granted late on {}", listed.skein_id, host.name)
            self._start_on(host, listed)
            self.clock.after(self.clock.between(500, 2_500), self._kill, listed)

    def _start_on(self, host: Host, listed: Listed) -> None:
        self.serial += 1
        listed.container, listed.host = f"{listed.attempt}_{self.serial}", host
        self.clock.after(self.clock.between(60, 500), self._launch, listed)

    def _launch(self, listed: Listed) -> None:
        host = listed.host
        assert host is not None
        if host.name not in self.nodes or not host.is_up or self.attempts.get(listed.cell) != listed.attempt:
            return
        if listed.was_killed and listed.state == ENDED and self.clock.happens(0.5):
            return
        if host.name in self.launches_fail_on:
            self.clock.tell("yarn: {} fails at launch on {}", listed.container, host.name)
            self.clock.after(self.clock.between(50, 300), self.end, listed, "exit 1")
            return
        listed.process = self.launch(listed)
        self.clock.tell("yarn: {} starts on {}", listed.container, host.name)

    def process_ended(self, container: str, code: int, *, is_from_outside: bool) -> None:
        """Take note that a container's process has ended; its NodeManager tells a moment later."""
        for listed in self.listed.values():
            if listed.container == container:
                listed.is_from_outside = is_from_outside
                self.clock.after(self.clock.between(100, 600), self._tell_end, listed, code)

    def _tell_end(self, listed: Listed, code: int) -> None:
        if listed.host is not None and listed.host.is_up and listed.host.name in self.nodes:
            self.end(listed, f"exit {code}")

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
