"""The leader's status as values; what can be killed next, and whether the job is whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from standby.errors import Unavailable
from standby.shared.model import Phase, Role


class TaskName(msgspec.Struct, frozen=True):
    """Which task."""

    job: str
    stage: str
    partition: int


class Replica(msgspec.Struct, frozen=True):
    """One copy of a task."""

    copy: int
    role: str = ""
    phase: str | None = None
    container: str | None = None
    host: str | None = None
    pid: int | None = None
    in_sync: bool = False
    applied: int | None = None
    lag_records: int | None = msgspec.field(default=None, name="changelog_lag_records")
    input_committed: int | None = None
    input_end: int | None = None
    skipped: int = 0
    dead_lettered: int = 0
    warm: bool = False
    detail: str = ""

    @property
    def is_active(self) -> bool:
        """Whether it processes its input now."""
        return self.role == Role.ACTIVE.value and self.phase == Phase.ACTIVE.value


class Task(msgspec.Struct, frozen=True):
    """A task with all its copies."""

    task: TaskName
    epoch: int
    active: int | None = None
    in_sync: tuple[int, ...] = ()
    replicas: tuple[Replica, ...] = ()

    @property
    def partition(self) -> int:
        """Return its input partition."""
        return self.task.partition

    @property
    def active_replica(self) -> Replica | None:
        """Return the copy that the record names as active, if it is placed."""
        return next(
            (each for each in self.replicas if each.copy == self.active and each.container is not None), None
        )


class Container(msgspec.Struct, frozen=True):
    """A container that the leader knows."""

    container: str
    host: str = ""
    pid: int | None = None
    state: str = ""
    warm: bool = False
    rss_bytes: int | None = None


class Leader(msgspec.Struct, frozen=True):
    """The leader."""

    candidate: str = ""
    host: str = ""
    epoch: int = 0


class Spread(msgspec.Struct, frozen=True):
    """How a job's actives are spread over hosts."""

    hosts: Mapping[str, int] = {}
    """Host → active processors."""
    is_even: bool = True
    """Whether that is as even as the standbys in sync permit."""

    @property
    def text(self) -> str:
        """Return the number of active processors per host, in words."""
        return ", ".join(f"{host} {count}" for host, count in sorted(self.hosts.items()))


class Spares(msgspec.Struct, frozen=True):
    """A job's spare containers."""

    wanted: int = 0
    held: int = 0
    ready: int = 0
    """Those of them whose pipeline is warm."""


class Job(msgspec.Struct, frozen=True):
    """A job as the leader reports it."""

    name: str
    run: str
    status: str = ""
    reasons: tuple[str, ...] = ()
    spread: Spread = Spread()
    spares: Spares = Spares()


class Cell(msgspec.Struct, frozen=True):
    """A cell that the leader has seen."""

    cell: int
    is_up: bool = False


class Status(msgspec.Struct, frozen=True):
    """The whole cluster at one moment."""

    cluster: str = ""
    leader: Leader | None = None
    jobs: tuple[Job, ...] = ()
    tasks: tuple[Task, ...] = ()
    containers: tuple[Container, ...] = ()
    cells: tuple[Cell, ...] = ()
    settled: bool = False
    """Whether nothing is being moved; a cell that is found later changes that."""


def parse(status: Mapping[str, Any]) -> Status:
    """Return the status in a candidate's answer; raises `Unavailable` if it is not a status."""
    try:
        return msgspec.convert(status, Status)
    except msgspec.ValidationError as error:
        raise Unavailable(f"the application master's status cannot be read: {error}") from error


def what_is_missing(status: Status, tasks: int, copies: int) -> str:
    """Return in words why the job is not whole; empty if every copy of every task is in sync."""
    if len(status.tasks) < tasks:
        return f"{len(status.tasks)} of {tasks} tasks known"
    replicas = [each for task in status.tasks for each in task.replicas]
    placed = sum(each.container is not None for each in replicas)
    active = sum(task.active_replica is not None and task.active_replica.is_active for task in status.tasks)
    in_sync = sum(len(task.in_sync) for task in status.tasks)
    if placed < tasks * copies:
        return f"{placed} of {tasks * copies} replicas placed"
    if active < tasks:
        return f"{active} of {tasks} tasks active"
    if in_sync < tasks * copies:
        return f"{in_sync} of {tasks * copies} replicas in sync"
    return ""


def is_warm(status: Status) -> bool:
    """Return whether every placed replica could be promoted without waiting for class loading.

    Spare containers are to be as ready: what replaces a lost copy must be as warm as any other time.
    """
    are_ready = all(each.spares.ready >= each.spares.wanted for each in status.jobs)
    return are_ready and all(each.warm or each.is_active for task in status.tasks for each in task.replicas)


def is_spread(status: Status) -> bool:
    """Return whether the actives of every job are spread over hosts as evenly as their standbys permit."""
    return all(each.spread.is_even for each in status.jobs)


def shared_hosts(status: Status) -> tuple[str, ...]:
    """Return each violation of the same-host rule: copies of one task on one host, in words."""
    found = []
    for task in status.tasks:
        by_host: dict[str, list[int]] = {}
        for each in task.replicas:
            if each.container is not None and each.host:
                by_host.setdefault(each.host, []).append(each.copy)
        found += [
            f"task {task.partition}: copies {copies} on {host}"
            for host, copies in by_host.items()
            if len(copies) > 1
        ]
    return tuple(found)


def victim_process(status: Status, avoid: Iterable[str] = ()) -> Replica | None:
    """Return an active whose container process can be killed, except those in containers in ``avoid``.

    An active on the master's host is preferred: after it has moved away, some active certainly runs on a host that
    can be lost without losing the master.
    """
    unwanted = set(avoid)
    actives = [each for each in _actives(status) if each.pid is not None and each.container not in unwanted]
    master = status.leader.host if status.leader is not None else ""
    return next((each for each in actives if each.host == master), next(iter(actives), None))


def victim_host(status: Status, avoid: Iterable[int] = (), masters: Iterable[str] = ()) -> str | None:
    """Return a host with an active and without the leader; if possible, one without an active of ``avoid``.

    ``masters`` are the hosts of all masters: if possible none of them is chosen, as a cell is lost with its master.
    """
    master = status.leader.host if status.leader is not None else ""
    spared, with_master = set(avoid), set(masters)
    hosts: dict[str, set[int]] = {}
    for task in status.tasks:
        active = task.active_replica
        if active is not None and active.host and active.host != master:
            hosts.setdefault(active.host, set()).add(task.partition)
    # First no whole cell, then the fewest tasks to avoid, then the fewest tasks at all.
    return min(
        hosts,
        key=lambda host: (host in with_master, len(hosts[host] & spared), len(hosts[host]), host),
        default=None,
    )


def placement(status: Status) -> dict[tuple[int, int], str]:
    """Return (partition, copy) → the container that holds it, for each copy that has one."""
    return {
        (task.partition, each.copy): each.container
        for task in status.tasks
        for each in task.replicas
        if each.container is not None
    }


def active_on(status: Status, *, container: str | None = None, host: str | None = None) -> tuple[int, ...]:
    """Return the partitions whose actives are in the container, or on the host."""
    return tuple(
        task.partition
        for task in status.tasks
        if (active := task.active_replica) is not None
        and (container is None or active.container == container)
        and (host is None or active.host == host)
    )


def _actives(status: Status) -> list[Replica]:
    return [active for task in status.tasks if (active := task.active_replica) is not None]
