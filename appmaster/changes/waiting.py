"""The queued changes, and the state of a single one, from a tree of nodes with ``changes/*``."""

from __future__ import annotations

from contextlib import suppress

from appmaster import records as bodies
from appmaster.changes import operations
from appmaster.changes.ports import Nodes
from appmaster.records import ChangeRecord
from standby.errors import BadConfiguration


def queued_changes(nodes: Nodes) -> tuple[tuple[str, str], ...]:
    """Return id and job of the waiting changes, oldest first.

    The job is empty for a change that is about none, or that this version does not know.
    """
    return tuple((name, _job_of(record)) for name, _, record in _changes(nodes) if record.state == "queued")


def _job_of(record: ChangeRecord) -> str:
    if record.operation in operations.JOB_CHANGES:
        with suppress(BadConfiguration):
            return operations.job_of(record.operation, record.arguments)
    return ""


def expired_changes(nodes: Nodes) -> tuple[tuple[str, int], ...]:
    """Return id and version of the settled changes that are beyond the number to keep."""
    done = [(name, version) for name, version, record in _changes(nodes) if record.state != "queued"]
    return tuple(done[: max(0, len(done) - operations.KEPT)])


def change_of(nodes: Nodes, change: str) -> ChangeRecord | None:
    """Return a change as it stands; None if there is none of this id."""
    path = f"changes/{change}"
    node = nodes.get(path)
    return bodies.decode(node.data, path, ChangeRecord) if node is not None else None


def _changes(nodes: Nodes) -> list[tuple[str, int, ChangeRecord]]:
    found = []
    for path, node in nodes.items():
        parent, _, name = path.partition("/")
        if parent == "changes":
            with suppress(BadConfiguration):
                found.append((node.created, name, node.version, bodies.decode(node.data, path, ChangeRecord)))
    return [(name, version, record) for _, name, version, record in sorted(found, key=lambda each: each[0])]
