"""Removes the state of a deleted job from the host that it runs on: ``python -m standby.sweep``.

The job and the directories are in the file ``sweep.json`` of the working directory, as `Sweep` has them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from standby.kernel.store.leftovers import purge_run

FILE: Final = "sweep.json"


class Sweep(msgspec.Struct, frozen=True):
    """What is to be removed."""

    directories: tuple[str, ...]
    cluster: str
    job: str
    run: str


def main() -> None:
    """Remove what the file names, on the host that YARN says this is."""
    wanted = msgspec.json.decode(Path(FILE).read_bytes(), type=Sweep)
    directories = [Path(each) for each in wanted.directories]
    purge_run(directories, wanted.cluster, os.environ["NM_HOST"], wanted.job, wanted.run)


if __name__ == "__main__":
    main()
