"""What the leader's actions and a rotation of credentials need of the world outside; each room has ports of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from appmaster.planning.state.actions import Change
from appmaster.planning.state.model import JobModel
from appmaster.planning.state.view import Recorded
from appmaster.records import JobRecord, StatusRecord
from standby.security.credentials import Credentials
from standby.shared import wire
from standby.shared.roles import PeerRole

# ---- a leader's actions ----


class LeaderRecords(Protocol):
    """Records that only the leader writes.

    Each call raises `Fenced` when another leads, `Transient` when the outcome is unknown.
    """

    def write_tasks(self, changes: Sequence[Change]) -> tuple[Recorded, ...] | None:
        """Write a decision's records at once; return them with their new versions, None when one had changed."""
        ...

    def read_tasks(self, changes: Sequence[Change]) -> tuple[Recorded, ...]:
        """Return the present records of the tasks in ``changes``; those without one are left out."""
        ...

    def write_model(self, model: JobModel, stage: str) -> JobModel | None:
        """Write a job's model in place of its version; return it with its new one, None when it had changed."""
        ...

    def write_status(self, job: str, status: StatusRecord) -> None:
        """Record how far a job is."""
        ...


class ControlPort(Protocol):
    """The streams to containers. Calls return at once; what becomes of them comes back as an event."""

    def send(self, container: str, incarnation: int, message: wire.Down) -> None:
        """Send a message to a container."""
        ...

    def learn(self, container: str, host: str, port: int) -> None:
        """Take note of where a container answers its peers."""
        ...

    def probe(self, container: str, incarnation: int) -> None:
        """Ask at a container's port whether it lives."""
        ...


class ContainerRequests(Protocol):
    """Containers asked of cells. Calls return at once; what becomes of them comes back as an event."""

    def request(self, number: int, host: str | None, cell: int) -> None:
        """Ask a cell for a container, on ``host`` if there is one named."""
        ...

    def release(self, granted: str) -> None:
        """Give a container, or a request, back."""
        ...


class JobUpdates(Protocol):
    """Jobs' records, as they are changed."""

    def update(self, name: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord | None:
        """Change a job's record, as ``change`` says, whoever else changes it; return it, None without such a job."""
        ...


# ---- a rotation ----


class Pair(Protocol):
    """A certificate and its key, in PEM."""

    @property
    def certificate(self) -> str:
        """The certificate."""
        ...

    @property
    def key(self) -> str:
        """The key."""
        ...


class Ring(Protocol):
    """An operator's credentials of one cluster; `appmaster.adapters.credentials.keyring.Keyring`."""

    @property
    def number(self) -> int:
        """The number of what it holds, as it was given out last."""
        ...

    def pair(self, role: PeerRole) -> Pair:
        """Return the certificate of a role."""
        ...

    def authorities(self) -> str:
        """Return the certificates of the authorities that are trusted, in PEM."""
        ...

    def next(self) -> Ring:
        """Return what everybody is to have in the end; made at the first call, and the same until `finish`."""
        ...

    def finish(self, number: int) -> None:
        """Have it be as `next` says, given out last with ``number``."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class Process:
    """A candidate or a container, and where it answers its peers."""

    role: PeerRole
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name} on {self.host}"


class Processes(Protocol):
    """Every process of the cluster that runs, as ZooKeeper has it."""

    def given(self, role: PeerRole) -> Credentials | None:
        """Return what was given out to a role last."""
        ...

    def give(self, role: PeerRole, credentials: Credentials) -> None:
        """Give it out."""
        ...

    def running(self) -> tuple[Process, ...]:
        """Return those that are registered."""
        ...
