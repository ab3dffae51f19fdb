"""The records of a cluster's cells in ZooKeeper: made by whoever submits, completed by the cell's candidate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from appmaster import records as bodies
from appmaster.records import CellRecord
from standby import naming


def read(client: Any, cluster: str, number: int, watch: Callable[..., None] | None) -> CellRecord | None:
    """Return a cell's record, or None; ``watch`` is called once when it changes, comes or goes."""
    path = naming.cell_path(cluster, number)
    while True:
        if client.exists(path, watch=watch) is None:
            return None
        try:
            data, _ = client.get(path)
        except NoNodeError:
            continue  # it went between the two reads
        return bodies.decode(data, path, CellRecord)


def read_all(client: Any, cluster: str, watch: Callable[..., None] | None) -> dict[int, CellRecord]:
    """Return every cell's record; ``watch`` is called when a cell comes or goes, or a record changes."""
    try:
        names = client.get_children(naming.cells_path(cluster), watch=watch)
    except NoNodeError:
        return {}
    found = {int(each): read(client, cluster, int(each), watch) for each in names}
    return {number: each for number, each in sorted(found.items()) if each is not None}


def claim(client: Any, cluster: str, number: int, record: CellRecord, replaces: CellRecord | None) -> bool:
    """Create a cell's record, or put it in place of ``replaces``; return False when another has been quicker."""
    path = naming.cell_path(cluster, number)
    if replaces is None:
        try:
            client.create(path, bodies.encode(record), makepath=True)
        except NodeExistsError:
            return False
        return True
    return change(client, cluster, number, lambda present: record if present == replaces else None)


def change(client: Any, cluster: str, number: int, edit: Callable[[CellRecord], CellRecord | None]) -> bool:
    """Change a cell's record as ``edit`` says; return False when there is none, or ``edit`` returns None."""
    path = naming.cell_path(cluster, number)
    while True:
        try:
            data, stat = client.get(path)
            changed = edit(bodies.decode(data, path, CellRecord))
            if changed is None:
                return False
            client.set(path, bodies.encode(changed), version=stat.version)
        except BadVersionError:
            continue
        except NoNodeError:
            return False
        return True
