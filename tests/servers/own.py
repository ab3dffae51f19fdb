"""Separate servers without a cluster, for tests that damage them.

They are children of the process that starts them, and end with the block.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from embedded.jars.cache import open_cache
from embedded.java import find_java
from embedded.probes import Patience
from embedded.servers import Blueprint, Launch
from standby.errors import Unavailable

if TYPE_CHECKING:
    from typing_extensions import Self

_TAIL_CHARACTERS = 2_000


def own_blueprint(directory: Path, jars: str | Sequence[str], ports: Mapping[str, int]) -> Blueprint:
    """Return what servers in ``directory`` are made of, which have some sets of jars and no part in a cluster."""
    cache = open_cache()
    sets = (jars,) if isinstance(jars, str) else tuple(jars)
    for each in sets:
        cache.require(each)
    return Blueprint(
        directory=directory,
        cluster_id=str(uuid.uuid4()),
        java=find_java(os.environ),
        jars={each: cache.path(each) for each in sets},
        ports=ports,
        host_memory_mb=1,
        host_vcores=1,
        environment=os.environ,
    )


def start_child(launch: Launch, log: Path) -> subprocess.Popen[bytes]:
    """Start a server as a child of this process; its output is appended to ``log``."""
    with log.open("ab") as out:
        return subprocess.Popen(
            launch.arguments,
            env=dict(launch.environment),
            cwd=launch.directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def check_lives(process: subprocess.Popen[bytes], what: str, log: Path) -> None:
    """Raise `Unavailable`, with the end of its log, when the process has ended."""
    if process.poll() is not None:
        said = log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:]
        raise Unavailable(f"{what} ended:\n{said}")


class Started(ABC):
    """What is started at the begin of a block, and killed at its end or when it does not start."""

    @abstractmethod
    def start(self) -> None:
        """Start it; return when it serves."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class OwnServer(Started):
    """One server: a single process."""

    def __init__(self, what: str, launch: Launch, log: Path, start_seconds: float) -> None:
        """``what`` it is called when it ended; ``start_seconds``: how long it may take until it serves."""
        self._what, self._launch, self._log, self._start_seconds = what, launch, log, start_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, in the state in which it was; return when it serves."""
        process = self._process = start_child(self._launch, self._log)
        self.await_service(
            Patience(
                time.monotonic() + self._start_seconds,
                lambda: check_lives(process, self._what, self._log),
                threading.Event(),
            )
        )

    @abstractmethod
    def await_service(self, patience: Patience) -> None:
        """Return when it serves."""

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
