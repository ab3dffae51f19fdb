"""The interfaces of the leader's actions. Each folder also has its own ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from appmaster.planning.state.actions import RecordWrite
from appmaster.planning.state.model import JobModel
from appmaster.planning.state.view import Recorded
from appmaster.records import JobRecord, StatusRecord
from locality.fit import Demand
from standby.shared import wire


class LeaderRecords(Protocol):
    """Records that only the leader writes.

    Each call raises `Fenced` if another candidate leads, `Transient` if the outcome is unknown.
    """

    def write_tasks(self, changes: Sequence[RecordWrite]) -> tuple[Recorded, ...] | None:
        """Write a decision's records at once; return them with their new versions, None if one had changed."""
        ...

    def read_tasks(self, changes: Sequence[RecordWrite]) -> tuple[Recorded, ...]:
        """Return the present records of the tasks in ``changes``; those without one are left out."""
        ...

    def write_model(self, model: JobModel, stage: str) -> JobModel | None:
        """Write a job's model over its version; return it with its new version, None if it had changed."""
        ...

    def write_status(self, job: str, status: StatusRecord) -> None:
        """Write a job's status."""
        ...


class ControlPort(Protocol):
    """The streams to containers. Calls return at once; outcomes come back as events."""

    def send(self, container: str, incarnation: int, message: wire.Down) -> None:
        """Send a message to a container."""
        ...

    def learn(self, container: str, host: str, port: int) -> None:
        """Store the address at which a container answers its peers."""
        ...

    def probe(self, container: str, incarnation: int) -> None:
        """Probe a container's port to find out whether the container is alive."""
        ...


class ContainerRequests(Protocol):
    """Requests of containers from cells. Calls return at once; outcomes come back as events."""

    def request(self, number: int, host: str | None, cell: int, demand: Demand) -> None:
        """Request a container from a cell, on ``host`` if that is not None; from a pool, one that fits ``demand``."""
        ...

    def release(self, granted: str) -> None:
        """Give back a container or a request."""
        ...


class JobUpdates(Protocol):
    """Changes of jobs' records."""

    def update(self, name: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord | None:
        """Change a job's record by ``change``, retried on conflicts; return it, or None if there is no such job."""
        ...
