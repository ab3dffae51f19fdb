"""Writes to a store as fast as possible: ``python -m tests.fakes.store_child DIRECTORY PROFILE``, to be killed.

Batch n sets every key to the value n, at position n; each written batch is reported on standard output.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Profile
from standby.kernel.probes import no_probe
from standby.kernel.store.store import TaskStore
from standby.replica.store.origin import Origin
from tests.fakes.stores import open_store

#: Large enough for a batch to take some milliseconds, and for a memtable to be full after a few.
KEYS = 20_000
VALUE_BYTES = 100

ORIGIN = Origin("job", "main", 0, "run", "changelog", "id", 3_600_000)
NOW_MS = 1_700_000_000_000

#: The changelog's end, which decides on the profile: far enough for the one for loading.
FAR = 1_000_000_000


def key(number: int) -> bytes:
    """Return a key as stores have them."""
    return b"k%08d" % number


def value(batch: int) -> bytes:
    """Return what every key has after a batch."""
    return b"%d" % batch * (VALUE_BYTES // len(b"%d" % batch))


def opened(directory: Path, profile: Profile) -> TaskStore:
    """Return the store as a replica opens it, or begins it."""
    return open_store(
        directory,
        ORIGIN,
        (0, FAR if profile is Profile.LOADING else 100_000),
        NOW_MS,
        open_database,
        no_probe,
    )


def main() -> None:
    """Go on from the position until somebody kills this process, flushing beside it all the time."""
    store = opened(Path(sys.argv[1]), Profile(sys.argv[2]))

    def flush() -> None:
        while True:
            store.flush()

    threading.Thread(target=flush, daemon=True).start()
    batch = store.position.offset
    while True:
        batch += 1
        store.apply(((key(each), value(batch)) for each in range(KEYS)), batch, NOW_MS)
        sys.stdout.write(f"{batch}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
