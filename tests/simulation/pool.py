"""A pool in place of YARN: processes wait on each host until the leader claims them, and are used once.

The end of a process shows by the end of its session alone. One that lives registers again, with its claim, once it is
within reach; a leader that took it for ended does not know it then. What a leader claims may have died a moment
before. A node starts another process a while after one has ended, if its host is up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from locality.fit import PoolProcess
from standby.control.events import Released
from standby.errors import Fenced
from standby.shared import exits
from standby.shared.model import NodeOffer
from standby.shared.naming import POOL
from tests.simulation.process import Host, Process
from tests.simulation.yarn import ENDED, REQUESTED, RUNNING, Listed, Yarn
from tests.simulation.zookeeper import SESSION_MS

#: How long a node takes to start a process that registers.
RESTART_MS = (300, 1_500)

#: For how long a host counts as one that has room after a process of it has ended.
ROOM_MS = 2_000


@dataclass
class ProcessPool(Yarn):
    """The nodes of all hosts, as one cell that is never lost."""

    epoch: Callable[[], int] = lambda: 0
    """Returns the latest epoch of a leader."""
    waiting: dict[str, int] = field(default_factory=dict)
    """Host → how many processes wait there, as far as their sessions tell."""
    _ended_ms: dict[str, int] = field(default_factory=dict)
    """Host → when a session of a process there ended."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.waiting = {name: each.capacity for name, each in self.hosts.items()}

    # ---- what the leader sees and asks ----

    def new_attempt(self, cell: int) -> str:
        """Return what stands for the attempt of a pool, which is never lost."""
        return POOL

    def master_as_told(self, attempt: str) -> str:
        """Return no host: no process is in front of a pool."""
        return ""

    def full(self) -> frozenset[str]:
        """Return the hosts on which nothing waits or is being started."""
        since = self.clock.now_ms - ROOM_MS
        return frozenset(
            each
            for each in self.hosts
            if not self.waiting[each] and self._ended_ms.get(each, -ROOM_MS) < since
        )

    def processes(self) -> tuple[PoolProcess, ...]:
        """Return the processes that are claimed, and those that wait or are being started, as far as sessions tell."""
        since = self.clock.now_ms - ROOM_MS
        claimed = Counter(
            each.host.name
            for each in self.listed.values()
            if each.host is not None and each.state_as_told == RUNNING
        )
        coming = Counter(each for each, at_ms in self._ended_ms.items() if at_ms >= since)
        return tuple(
            PoolProcess(host, NodeOffer(), is_free=is_free)
            for host in sorted(self.hosts)
            for is_free, count in ((False, claimed[host]), (True, self.waiting[host] + coming[host]))
            for _ in range(count)
        )

    def end_as_told(self, listed: Listed, now_ms: int) -> Event:
        """Return what a leader learns of the end of a process."""
        return happened.ContainerUnregistered(listed.container, now_ms, listed.skein_id)

    def add_container(self, host: str | None, cell: int, epoch: int = 0) -> str:
        """Return the claim of a new request; raises `Fenced` for a deposed leader."""
        if epoch != self.epoch():
            raise Fenced("another leader has taken over")
        self.serial += 1
        listed = Listed(f"s_{self.serial}", host, cell=cell, attempt=self.attempts[cell])
        self.listed[listed.skein_id] = listed
        self.clock.after(self.clock.between(1, 20), self._grant, listed)
        return listed.skein_id

    def kill_container(self, skein_id: str) -> None:
        """Withdraw a request, or release a process, which learns of it when it is within reach.

        What is not registered cannot be released.
        """
        listed = self.listed.get(skein_id)
        if listed is None or listed.state_as_told == ENDED:
            return
        process = listed.process
        self.end(listed, "released", was_killed=True)
        if process is not None:
            process.receive(self.clock.between(2, 60), self._release, process)

    def _release(self, process: Process) -> None:
        post = getattr(process, "post")  # noqa: B009 - only containers are launched
        post(Released())

    # ---- what happens on hosts ----

    def has_room(self, host: Host) -> bool:
        """Return whether a process seems to wait on a host."""
        return self.waiting[host.name] > 0

    def _grant(self, listed: Listed) -> None:
        if listed.state != REQUESTED:
            return
        host = self._room_for(listed)
        if host is None:
            self.clock.after(self.clock.between(50, 150), self._grant, listed)
            return
        self.waiting[host.name] -= 1
        self._start_on(host, listed)
        listed.state = RUNNING
        self.changed()

    def _start_on(self, host: Host, listed: Listed) -> None:
        self.serial += 1
        listed.container, listed.host = f"{listed.attempt}_{self.serial}", host
        self.clock.after(self.clock.between(5, 40), self._launch, listed)

    def _launch(self, listed: Listed) -> None:
        host = listed.host
        assert host is not None
        if host.is_cut or not host.is_up or listed.state != RUNNING:
            # It is dead, or will be: released before it has begun, or without a session when its host is back.
            self.clock.after(SESSION_MS, self._session_ended, listed)
            return
        listed.process = self.launch(listed)
        self.clock.tell("pool: {} is claimed on {}", listed.container, host.name)

    def process_ended(self, container: str, code: int, *, is_from_outside: bool) -> None:
        """Take note that a container's process has ended: at once if it could close its session."""
        for listed in self.listed.values():
            if listed.container == container:
                is_orderly = code in (exits.ORDERLY, exits.ORPHANED, exits.UNCLEAN)
                is_known = is_orderly or not listed.is_registered
                delay = self.clock.between(1, 30) if is_known else SESSION_MS + self.clock.between(0, 200)
                self.clock.after(delay, self._session_ended, listed)

    def session_ended(self, container: str) -> None:
        """Have a process be registered no more, alive or dead."""
        self._register(container, is_registered=False)

    def session_began(self, container: str) -> None:
        """Have a process be registered, with the claim that it had."""
        self._register(container, is_registered=True)

    def _register(self, container: str, *, is_registered: bool) -> None:
        for listed in self.listed.values():
            if listed.container == container and listed.is_registered != is_registered:
                listed.is_registered = is_registered
                if listed.host is not None and not is_registered:
                    self._ended_ms[listed.host.name] = self.clock.now_ms
                self.changed()
                self.clock.after(ROOM_MS + 1, self.changed)

    def _session_ended(self, listed: Listed) -> None:
        host = listed.host
        assert host is not None
        self._ended_ms[host.name] = self.clock.now_ms
        self.end(listed, "its session ended")
        self.changed()
        self.clock.after(ROOM_MS + 1, self.changed)
        self.clock.after(self.clock.between(*RESTART_MS), self._restart, host)

    def _restart(self, host: Host) -> None:
        held = sum(
            1
            for each in self.listed.values()
            if each.host is host and each.process is not None and each.process.is_alive
        )
        if host.is_up and self.waiting[host.name] + held < host.capacity:
            self.waiting[host.name] += 1
            self.changed()

    def node_lost(self, host: Host) -> None:
        """Lose a host with its node; its waiting processes are found out when their sessions end."""
        self.nodes.discard(host.name)
        self.clock.after(SESSION_MS, self._empty, host)

    def _empty(self, host: Host) -> None:
        if host.name not in self.nodes:
            self.waiting[host.name] = 0
            self.changed()

    def nodes_stopped(self, host: Host) -> int:
        """Have every node of a host start nothing more, and what waits there go; return how many there were."""
        capacity, host.capacity = host.capacity, 0
        self.waiting[host.name] = 0
        self.changed()
        return capacity

    def nodes_started(self, host: Host, count: int) -> None:
        """Have so many nodes of a host start a process each, beside those that still run there."""
        host.capacity = max(host.capacity, count)
        for _ in range(host.capacity):
            self.clock.after(self.clock.between(*RESTART_MS), self._restart, host)

    def node_returned(self, host: Host) -> None:
        """Have a node start its processes."""
        self.nodes.add(host.name)
        self.waiting[host.name] = 0
        for _ in range(host.capacity):
            self.clock.after(self.clock.between(*RESTART_MS), self._restart, host)
