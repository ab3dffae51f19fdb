"""The interface through which the API uses what every candidate runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from appmaster.changes.operations import CurrentJob
from appmaster.records import ChangeRecord


class ClusterQueries(Protocol):
    """Implemented by `appmaster.changes.queue.ChangeQueue`."""

    def info(self) -> Mapping[str, Any]:
        """Return the cluster's info."""
        ...

    def leader(self) -> Mapping[str, Any] | None:
        """Return id, host and port of the leader."""
        ...

    def queue(self, operation: str, arguments: Mapping[str, Any], submitter: str, change: str) -> str:
        """Return the id of a queued change."""
        ...

    def present(self, job: str, with_tasks: bool) -> CurrentJob | None:
        """Return a job as it is now; its actives' revisions only ``with_tasks``."""
        ...

    def result(self, change: str, wait_seconds: float) -> ChangeRecord:
        """Return a change as it stands, waiting for some time until it is settled."""
        ...
