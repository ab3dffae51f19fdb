"""The interfaces through which an election and a leadership use the outside world.

Calls to ZooKeeper may raise `Transient`, and `BadConfiguration` for invalid records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from appmaster.leadership.suspicion import Beat
from appmaster.planning.state import events as happened
from appmaster.ports import JobUpdates
from appmaster.records import CellRecord, JobRecord, Loaded, StatusRecord
from locality.fit import Demand, PoolProcess
from standby.errors import BadConfiguration
from standby.shared.records import ContainerRecord, ControllerRecord, MemberRecord
from standby.shared.wire import PROTOCOL

# ---- the election ----


class Electorate(Protocol):
    """What an election needs of ZooKeeper; every call may raise `Transient`."""

    epoch: int

    def controller(self, watch: Callable[[], None] | None = None) -> ControllerRecord | None:
        """Return the leader; ``watch`` is called once when that changes."""
        ...

    def lead(
        self, record: ControllerRecord, depose: ControllerRecord | None = None, last: Beat | None = None
    ) -> int | None:
        """Return the new epoch; None if another candidate was quicker, or the leader left a beat after ``last``."""
        ...

    def confirm_lead(self) -> None:
        """Leave a beat; raise `Fenced` if another candidate leads."""
        ...

    def beat(self) -> Beat | None:
        """Return the last beat of the latest leader, None if there is none; a server that lags behind may answer."""
        ...

    def resign_lead(self) -> None:
        """End this session's leadership, if it has it."""
        ...


class Epochs(Protocol):
    """The epoch of the leaders."""

    def raise_epoch(self, seen: int) -> None:
        """Have the next leader's epoch be above ``seen``, and end this leadership; raises `Fenced`, `Transient`."""
        ...


# ---- cells ----


class CellConnection(Protocol):
    """A connection to one attempt of one cell; `appmaster.adapters.skein.SkeinCell`.

    Or to a pool, which stands for a cell that is never lost; `appmaster.adapters.pool.PoolCell`.
    """

    hosts: tuple[str, ...]
    full: frozenset[str]
    """Those of the hosts on which nothing can be requested now, as far as is known."""
    note: str
    """What of it cannot be used, and why; empty: nothing."""
    owed: set[str]
    """What was given back without its AM being informed."""

    @property
    def processes(self) -> tuple[PoolProcess, ...]:
        """The processes of a pool; empty on YARN."""
        ...

    def connect(self) -> None:
        """Connect; raises `Unavailable`."""
        ...

    def expected(self) -> tuple[happened.ContainerExpected, ...]:
        """Return the containers that run there; raises `Unavailable`."""
        ...

    def start(self) -> None:
        """Start watching its containers."""
        ...

    def stop(self) -> None:
        """Stop watching."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...

    def request(self, number: int, host: str | None, demand: Demand) -> None:
        """Ask for a container; a pool, for one that fits ``demand``."""
        ...

    def release(self, granted: str) -> bool:
        """Give a container back; return False if it does not belong to this cell."""
        ...

    def finish(self, *, succeeded: bool, diagnostics: str) -> None:
        """End its application."""
        ...


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A process of a pool as it is recorded."""

    record: MemberRecord
    version: int
    """Of its node; each claim and each release raises it."""

    @property
    def process(self) -> PoolProcess:
        """Return what matters of it for a choice; one that is given back makes room for its successor."""
        record = self.record
        is_free = not record.claim or record.is_released
        return PoolProcess(record.host, record.offer, is_free, record.protocol != PROTOCOL)


class PoolRecords(Protocol):
    """The processes of a pool, for the leader. Every call may raise `Transient`."""

    @property
    def epoch(self) -> int:
        """The leader's epoch."""
        ...

    def names(self, watch: Callable[[], None]) -> frozenset[str]:
        """Return the ids of the registered processes; ``watch`` is called once when one comes or goes."""
        ...

    def read(self, names: Sequence[str]) -> Mapping[str, PoolMember]:
        """Return those of the processes that are still registered."""
        ...

    def write(self, member: PoolMember) -> bool:
        """Write a process's record over its version; return False if it has another one, or is gone.

        Raises `Fenced` if another candidate leads, `Transient` if the outcome is unknown.
        """
        ...


class CellRecords(Protocol):
    """The recorded cells."""

    def read_each(
        self, watch: Callable[[], None] | None = None
    ) -> Mapping[int, CellRecord | BadConfiguration]:
        """Return every cell's record, or why it is invalid; ``watch`` is called when one changes."""
        ...


class OwnCellRecords(CellRecords, Protocol):
    """The recorded cells for a candidate, which completes the record of its own."""

    def read(self, number: int, watch: Callable[[], None] | None = None) -> CellRecord | None:
        """Return a cell's record, or None; ``watch`` is called once when it changes, comes or goes."""
        ...

    def change(self, number: int, edit: Callable[[CellRecord], CellRecord | None]) -> bool:
        """Change a cell's record by ``edit``; return False if there is none, or if ``edit`` returns None."""
        ...


# ---- containers ----


@dataclass(frozen=True, slots=True)
class RegisteredContainer:
    """A container as it registered itself."""

    record: ContainerRecord
    incarnation: int
    """The transaction that created the node."""


class Registry(Protocol):
    """The registered containers; every call may raise `Transient`."""

    def registrations(self) -> Sequence[RegisteredContainer]:
        """Return every registered container."""
        ...

    def container_names(self, watch: Callable[[], None] | None = None) -> frozenset[str]:
        """Return the ids of the registered containers; ``watch`` is called once when one comes or goes."""
        ...


# ---- jobs ----


class JobRecords(Protocol):
    """The records of a cluster's jobs."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all jobs."""
        ...

    def read(self, name: str) -> JobRecord | None:
        """Return a job's record."""
        ...

    def status(self, job: str) -> StatusRecord | None:
        """Return a job's status as last written by a leader."""
        ...


class LoadedJobs(JobRecords, JobUpdates, Protocol):
    """Jobs, for a leader that reads and changes them."""

    def names(self, watch: Callable[[], None] | None = None) -> tuple[str, ...]:
        """Return the names of all jobs; ``watch`` is called once when a job comes or goes."""
        ...

    def load(
        self, name: str, watch: Callable[[], None] | None = None, *, has_tasks: bool = True
    ) -> Loaded | None:
        """Return everything recorded of a job; ``watch`` is called once when its own record changes.

        None if there is no such job. The tasks' records are read if ``has_tasks``.
        """
        ...


class QueuedChanges(Protocol):
    """The queue of changes."""

    def has_queued(self) -> bool:
        """Return whether there is a change that no leader has settled yet."""
        ...


class DrainedHosts(Protocol):
    """The drained hosts."""

    def drained(self, watch: Callable[[], None] | None = None) -> Mapping[str, str]:
        """Return the hosts, and why; ``watch`` is called once when they change."""
        ...


class LeaderSession(Protocol):
    """What a leadership reads of ZooKeeper; implemented by `appmaster.adapters.zookeeper.session.ZooKeeper`."""

    @property
    def election(self) -> Epochs:
        """The epoch."""
        ...

    @property
    def registry(self) -> Registry:
        """The registered containers."""
        ...

    @property
    def jobs(self) -> LoadedJobs:
        """The jobs."""
        ...

    @property
    def changes(self) -> DrainedHosts:
        """The drained hosts."""
        ...
