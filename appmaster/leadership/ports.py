"""What an election and a leadership need of the world outside.

Calls to ZooKeeper may raise `Transient`, and `BadConfiguration` for what is no record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from appmaster.leadership.suspicion import Beat
from appmaster.planning.state import events as happened
from appmaster.ports import JobUpdates
from appmaster.records import CellRecord, JobRecord, Loaded, StatusRecord
from standby.shared.records import ContainerRecord, ControllerRecord

# ---- the election ----


class Electorate(Protocol):
    """What an election needs of ZooKeeper; every call may raise `Transient`."""

    epoch: int

    def controller(self, watch: Callable[[], None] | None = None) -> ControllerRecord | None:
        """Return who leads; ``watch`` is called once when that changes."""
        ...

    def lead(self, record: ControllerRecord, depose: ControllerRecord | None = None) -> int | None:
        """Return the new epoch, or None when another was quicker."""
        ...

    def confirm_lead(self) -> None:
        """Leave a beat; raise `Fenced` when another leads."""
        ...

    def beat(self, *, is_synced: bool = False) -> Beat | None:
        """Return the last beat of whoever led last, with ``is_synced`` as of now; None when there is none."""
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
    """A connection to one attempt of one cell; `appmaster.adapters.skein.SkeinCell`."""

    hosts: tuple[str, ...]
    owed: set[str]
    """What was given back and its AM has not heard of."""

    def connect(self) -> None:
        """Connect; raises `Unavailable`."""
        ...

    def expected(self) -> tuple[happened.ContainerExpected, ...]:
        """Return what runs there; raises `Unavailable`."""
        ...

    def start(self) -> None:
        """Begin to look at its containers."""
        ...

    def stop(self) -> None:
        """End that."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...

    def request(self, number: int, host: str | None) -> None:
        """Ask for a container."""
        ...

    def release(self, granted: str) -> bool:
        """Give a container back; return False when it is none of this cell's."""
        ...

    def finish(self, *, succeeded: bool, diagnostics: str) -> None:
        """End its application."""
        ...


class CellRecords(Protocol):
    """The cells as they are recorded."""

    def read_all(self, watch: Callable[[], None] | None = None) -> Mapping[int, CellRecord]:
        """Return every cell's record; ``watch`` is called when one changes."""
        ...


class OwnCellRecords(CellRecords, Protocol):
    """The cells for a candidate, which completes the record of its own."""

    def read(self, number: int, watch: Callable[[], None] | None = None) -> CellRecord | None:
        """Return a cell's record, or None; ``watch`` is called once when it changes, comes or goes."""
        ...

    def change(self, number: int, edit: Callable[[CellRecord], CellRecord | None]) -> bool:
        """Change a cell's record as ``edit`` says; return False when there is none, or ``edit`` returns None."""
        ...


# ---- containers ----


@dataclass(frozen=True, slots=True)
class Registration:
    """A container as it registered itself."""

    record: ContainerRecord
    incarnation: int
    """The transaction that created the node."""


class Registry(Protocol):
    """Who is registered; every call may raise `Transient`."""

    def registrations(self) -> Sequence[Registration]:
        """Return every registered container."""
        ...

    def container_names(self, watch: Callable[[], None] | None = None) -> frozenset[str]:
        """Return the ids of the registered containers; ``watch`` is called once when one comes or goes."""
        ...


# ---- jobs ----


class JobRecords(Protocol):
    """What is recorded of a cluster's jobs."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all jobs."""
        ...

    def read(self, name: str) -> JobRecord | None:
        """Return a job's record."""
        ...

    def status(self, job: str) -> StatusRecord | None:
        """Return how far a leader came with a job."""
        ...


class LoadedJobs(JobRecords, JobUpdates, Protocol):
    """Jobs as a leader reads and changes them."""

    def names(self, watch: Callable[[], None] | None = None) -> tuple[str, ...]:
        """Return the names of all jobs; ``watch`` is called once when a job comes or goes."""
        ...

    def load(
        self, name: str, watch: Callable[[], None] | None = None, *, has_tasks: bool = True
    ) -> Loaded | None:
        """Return everything recorded of a job; ``watch`` is called once when its own record changes.

        None when there is no such job. The tasks' records are read if ``has_tasks``.
        """
        ...


class QueuedChanges(Protocol):
    """What is asked for besides."""

    def has_queued(self) -> bool:
        """Return whether a change is asked for that no leader has settled yet."""
        ...


class DrainedHosts(Protocol):
    """The drained hosts."""

    def drained(self, watch: Callable[[], None] | None = None) -> Mapping[str, str]:
        """Return the hosts, and why; ``watch`` is called once when they change."""
        ...


class LeaderSession(Protocol):
    """What a leadership reads of ZooKeeper; `appmaster.adapters.zookeeper.session.ZooKeeper` has it."""

    @property
    def election(self) -> Epochs:
        """The epoch."""
        ...

    @property
    def registry(self) -> Registry:
        """Who is registered."""
        ...

    @property
    def jobs(self) -> LoadedJobs:
        """The jobs."""
        ...

    @property
    def changes(self) -> DrainedHosts:
        """What changes have been made of hosts."""
        ...
