"""What the queue of changes needs of ZooKeeper. Calls may raise `Transient`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from appmaster.changes.operations import CurrentJob
from appmaster.records import ChangeRecord


@dataclass(frozen=True, slots=True)
class Znode:
    """A znode."""

    data: bytes
    version: int
    created: int
    """Transaction that created it: orders nodes by age."""


Nodes = Mapping[str, Znode]
"""Path below the root, without a leading slash → its node."""


class ClusterTree(Protocol):
    """The part of a cluster's tree that is kept fresh by watches."""

    def listen(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called, on the tree's thread, after each change. Call before `start`."""
        ...

    def start(self) -> None:
        """Start reading."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...

    @property
    def nodes(self) -> Nodes:
        """The nodes as last read; any thread may use this."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether everything has been read and ZooKeeper has been reachable since."""
        ...

    def fresh(self, timeout_seconds: float) -> Nodes:
        """Return the nodes, read again after a sync."""
        ...

    def wait(self, is_so: Callable[[Nodes], bool], timeout_seconds: float) -> bool:
        """Return whether ``is_so`` became true of the nodes in time."""
        ...


class ChangeRecords(Protocol):
    """The queue of changes in ZooKeeper."""

    def present(self, job: str, *, with_tasks: bool = False) -> CurrentJob | None:
        """Return a job as it is now, read with a sync; its actives' revisions only ``with_tasks``."""
        ...

    def put(self, change: str, record: ChangeRecord) -> None:
        """Queue a change; the same id again is the same change."""
        ...

    def settle(self, change: str, epoch: int) -> None:
        """Make a queued change; raises `Fenced` if another candidate leads, `NotYet` if the change has to wait."""
        ...

    def hold_up(self, change: str, epoch: int, why: str) -> None:
        """Say in a queued change why it could not be made; raises `Fenced` when another leads."""
        ...

    def forget(self, change: str, version: int) -> None:
        """Remove a settled change."""
        ...
