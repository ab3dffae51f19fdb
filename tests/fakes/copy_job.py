"""A job that stores the last value of each key unchanged: for state of unusual shapes and large amounts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import prefix

#: The store of the job, as `task.stores` lists it.
STORE = "values"


def step(rows: Any, state: Any, out: Any) -> None:
    """Put each key's value, or delete the key where the record has none; nothing is emitted."""
    store = state[STORE]
    offsets = rows["_offset"].to_pylist()
    for key, value, _ in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), offsets, strict=True):
        if value is None:
            store.delete(key or b"")
        else:
            store.put(key or b"", value)


def checksum(database: Path) -> tuple[int, str]:
    """Return how many keys the closed database has, and a digest of all of them with their values, in order."""
    opened = open_database(database, Profile.SERVING)
    digest, count = hashlib.blake2b(digest_size=16), 0
    try:
        for key, value in opened.items(prefix(STORE)):
            digest.update(b"%d %d " % (len(key), len(value)) + key + value)
            count += 1
    finally:
        opened.close()
    return count, digest.hexdigest()
