"""Removes the state of a deleted job from the host on which it runs: ``python -m standby.sweep``.

The job and the directories are in the file ``sweep.json`` in the working directory, in the form of `Sweep`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from standby.kernel.store.leftovers import purge_run

FILE: Final = "sweep.json"


class Sweep(msgspec.Struct, frozen=True):
    """The state to remove."""

    directories: tuple[str, ...]
    cluster: str
    job: str
    run: str


def main() -> int:
    """Remove the state described by the file; return 1 if some of it is left. The host's name is given by YARN."""
    wanted = msgspec.json.decode(Path(FILE).read_bytes(), type=Sweep)
    directories = [Path(each) for each in wanted.directories]
    return 0 if purge_run(directories, wanted.cluster, os.environ["NM_HOST"], wanted.job, wanted.run) else 1


if __name__ == "__main__":
    sys.exit(main())
