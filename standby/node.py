"""A node of a pool: it keeps one process for tasks running on its host, with a new id at each start.

The process waits in the pool until the leader claims it. Once it is given back, or has ended in any other way, nothing
of it may be used again: the node starts another one in a new directory. State stays in the node's state directory,
which belongs to this node alone for as long as it runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from standby import cluster as cluster_file
from standby.cluster import ClusterConfig
from standby.errors import BadConfiguration, Unavailable
from standby.kernel.store.directories import kept_in_use, make_private
from standby.process.lives import GOOD_LIFE_SECONDS, NOT_STARTED, backoff_seconds
from standby.process.witness import IN_POOL
from standby.security import credentials
from standby.security.credentials import Bootstrap
from standby.security.private_files import write_private
from standby.shared import exits
from standby.shared.clock import REAL, Clock
from standby.shared.model import NodeOffer
from standby.shared.naming import escape, member_id
from standby.shared.records import encode_offer
from standby.threads.latch import Latch

_log: Final = logging.getLogger("standby.node")

#: The program of a process.
PROGRAM: Final = (sys.executable, "-m", "standby")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node has been given."""

    cluster: ClusterConfig
    """Its state directories are this node's own."""
    bootstrap: Bootstrap
    host: str
    """By which the other processes reach this one."""
    offer: NodeOffer = field(default_factory=NodeOffer)
    """What it offers to jobs."""

    @property
    def places(self) -> tuple[Path, ...]:
        """The directories of the cluster's state; beside the state is what belongs to the node itself."""
        return tuple(Path(each) / escape(self.cluster.name) for each in self.cluster.state_dirs)

    @property
    def work(self) -> Path:
        """The directory below which each process gets one of its own."""
        return self.places[0] / f"{escape(self.host)}.work"


def run(settings: NodeSettings, program: Sequence[str] = PROGRAM, clock: Clock = REAL) -> int:
    """Keep a process running until SIGTERM or SIGINT, and until that process has ended; return its exit status.

    Raises `BadConfiguration` if another node uses one of the state directories, and `Unavailable` or OSError if they
    cannot be used at the start.
    """
    ending = Latch()
    process: subprocess.Popen[bytes] | None = None

    def end(signum: int, frame: FrameType | None) -> None:
        ending.set()
        if process is not None:
            process.send_signal(signum)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, end)
    status, short_lives, is_first = exits.ORDERLY, 0, True
    what = f"node of cluster {settings.cluster.name} on {settings.host}"
    with locked(settings.places, f"{escape(settings.host)}.lock", what) as locks:
        shutil.rmtree(settings.work, ignore_errors=True)
        while not ending.is_set():
            begun = clock.monotonic()
            unique = uuid.uuid4().hex[:12]
            directory = settings.work / unique
            try:
                _fill(directory, settings)
                process = subprocess.Popen(
                    program,
                    cwd=directory,
                    env=_environment(settings, member_id(settings.host, unique), directory, os.environ),
                    pass_fds=locks,
                    # Ctrl-C ends the node, which then ends the process.
                    start_new_session=True,
                )
            except (OSError, Unavailable) as error:
                if is_first:
                    raise  # nothing has run yet, and whoever has started the node learns why
                # The host may be out of memory, processes or disk for the moment.
                _log.error("the process could not be started: %s", error)
                status = NOT_STARTED
            else:
                if ending.is_set():
                    # The signal came just before the process was there.
                    process.send_signal(signal.SIGTERM)
                status = process.wait()
            shutil.rmtree(directory, ignore_errors=True)
            lived = clock.monotonic() - begun
            if status == BadConfiguration.exit_status and is_first and lived < GOOD_LIFE_SECONDS:
                break  # the next one would end in the same way; later, files may be being replaced just then
            is_first = False
            short_lives = 0 if lived > GOOD_LIFE_SECONDS or status == exits.ORDERLY else short_lives + 1
            if not ending.is_set():
                pause = backoff_seconds(short_lives - 1) if short_lives else 0.0
                _log.info("the process ended with status %d; starting another in %.1f s", status, pause)
                if ending.wait(clock.pace(pause)):
                    status = exits.ORDERLY  # nothing ran: how the last one ended has been logged
    return status


def _fill(directory: Path, settings: NodeSettings) -> None:
    """Make the working directory of a process, with what a container of YARN finds in its own."""
    make_private(directory, "--state")
    for name, content in (
        (cluster_file.FILE, cluster_file.dump(settings.cluster)),
        (credentials.FILE, credentials.encode(settings.bootstrap)),
    ):
        write_private(directory / name, content)


def _environment(
    settings: NodeSettings, container: str, directory: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    return {
        **environment,
        **cluster_file.VARIABLES,
        "CONTAINER_ID": container,
        # Spark takes the id for YARN's, and then puts its files only where YARN says.
        "LOCAL_DIRS": str(directory),
        "NM_HOST": settings.host,
        IN_POOL: str(os.getpid()),
        cluster_file.OFFER: encode_offer(settings.offer),
    }


@contextmanager
def locked(places: Sequence[Path], name: str, what: str) -> Iterator[tuple[int, ...]]:
    """Yield the open locks, of files called ``name``, of directories that only one such process may use at a time.

    A child that inherits them has the directories in use until it has ended, too. Raises `BadConfiguration` naming
    ``what`` uses one of them.
    """
    opened: list[int] = []
    try:
        for each in places:
            make_private(each, "--state")
            if (kept := kept_in_use(each)) is not None:
                opened.append(kept)
            path = each / name
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            opened.append(lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BadConfiguration(
                    f"{each.parent}: another {what} uses this state directory ({path} is locked); end it, or give this "
                    "one another --state"
                ) from error
        yield tuple(opened)
    finally:
        for each_lock in opened:
            os.close(each_lock)
