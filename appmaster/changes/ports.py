"""What the queue of changes needs of ZooKeeper. Calls may raise `Transient`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from appmaster.changes.operations import Present
from appmaster.records import ChangeRecord


@dataclass(frozen=True, slots=True)
class Node:
    """A znode."""

    data: bytes
    version: int
    created: int
    """Transaction that created it: orders nodes by age."""
    owner: int
    """Session that it ends with; 0: none."""


Nodes = Mapping[str, Node]
"""Path below the root, without a leading slash → its node."""


class ClusterTree(Protocol):
    """The part of a cluster's tree that watches keep fresh."""

    def listen(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called, on the tree's thread, after each change; before `start`."""
        ...

    def start(self) -> None:
        """Begin to read."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...

    @property
    def nodes(self) -> Nodes:
        """The nodes as they were read last; any thread may read it."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether everything has been read, and ZooKeeper could be reached since."""
        ...

    def fresh(self, timeout_seconds: float) -> Nodes:
        """Return the nodes, read again after a sync."""
        ...

    def wait(self, is_so: Callable[[Nodes], bool], timeout_seconds: float) -> bool:
        """Return whether the nodes came to be as ``is_so`` says, in time."""
        ...


class ChangeRecords(Protocol):
    """Changes as they are queued and made."""

    def present(self, job: str, *, with_tasks: bool = False) -> Present | None:
        """Return a job as it is now, read with a sync; its actives' revisions ``with_tasks`` only."""
        ...

    def put(self, change: str, record: ChangeRecord) -> None:
        """Queue a change; once more under the same id is the same change."""
        ...

    def settle(self, change: str, epoch: int) -> None:
        """Make a queued change; raises `Fenced` when another leads, `NotYet` when it has to wait."""
        ...

    def hold_up(self, change: str, epoch: int, why: str) -> None:
        """Say in a queued change why it could not be made; raises `Fenced` when another leads."""
        ...

    def forget(self, change: str, version: int) -> None:
        """Remove a settled change."""
        ...
