"""A job's modules on their way to ZooKeeper, and out of it."""

from __future__ import annotations

from pathlib import Path

from appmaster.adapters.kazoo import ZooKeeper
from appmaster.records import JobRecord
from appmaster.revising import codes, dropped_code
from standby.bundles import MOST_BYTES, Bundle, pack


def bundle_of(code: Path) -> Bundle | None:
    """Return the job's modules as they go to ZooKeeper; None when they are too large for it.

    Containers then run what YARN ships with the application, and the code of the running job cannot change.
    """
    size = sum(each.stat().st_size for each in code.rglob("*") if each.is_file())
    return pack(code) if size < MOST_BYTES else None


def forget_code(zookeeper: ZooKeeper, before: JobRecord, after: JobRecord) -> None:
    """Remove the bundles of revisions that nobody can return to any more, and that no other job uses."""
    dropped = dropped_code(before, after)
    if not dropped:
        return
    others = (zookeeper.job(each) for each in zookeeper.jobs())
    used = {code for record in others if record is not None for code in codes(record)}
    for each in sorted(dropped - used):
        zookeeper.delete_code(each)
