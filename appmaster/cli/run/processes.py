"""The master and the nodes of a run: started, started again when they end, and ended with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import psutil

from appmaster.cli.clusters.standalone import COMMAND, RUN
from appmaster.cli.run.servers import RunPlace
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.process.lives import GOOD_LIFE_SECONDS, backoff_seconds
from standby.shared.clock import REAL, Clock
from standby.threads.latch import Latch
from standby.threads.worker import Worker, fatal

T = TypeVar("T")

#: How long masters or nodes may take to end after they were asked to, seconds.
_END_SECONDS: Final = 10.0

#: A process that has ended this often, each time soon after its start, ends the run.
_MOST_SHORT_LIVES: Final = 3

#: Lines of a log that are shown.
_SHOWN_LINES: Final = 12

#: Variables that would direct a process to a YARN.
_NOT_INHERITED: Final = ("HADOOP_CONF_DIR",)


def environment_of(place: RunPlace, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of everything that a run starts."""
    inherited = {name: value for name, value in environment.items() if name not in _NOT_INHERITED}
    return {**inherited, **place.variables, **place.mark, "PYTHONUNBUFFERED": "1"}


@dataclass
class RunProcess:
    """A master or a node, started again whenever it ends."""

    name: str
    """Such as "node 2"."""
    arguments: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    say: Callable[[str], None]
    clock: Clock = REAL
    _process: subprocess.Popen[bytes] | None = None
    _begun: float = 0.0
    _again: float = 0.0
    """When it is to be started again."""
    _short_lives: int = 0

    @property
    def pid(self) -> int | None:
        """The process's id; None between two lives."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it; raises `Unavailable`."""
        self._begun = self.clock.monotonic()
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*COMMAND, *self.arguments],
                    env={**self.environment, RUN: str(os.getpid())},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C is for the run alone, which ends them in order.
                    start_new_session=True,
                )
        except OSError as error:
            raise Unavailable(f"{self.name} cannot be started: {error}") from error

    def look(self) -> None:
        """Start it again if it has ended; raises `StandfastError` if that is of no use."""
        now = self.clock.monotonic()
        if self._process is None:
            if now >= self._again:
                self.start()
            return
        status = self._process.poll()
        if status is None:
            return
        self._process = None
        lived = now - self._begun
        is_first = self._short_lives == 0
        self._short_lives = self._short_lives + 1 if lived < GOOD_LIFE_SECONDS else 0
        ended = f"{self.name} ended with {_in_words(status)}"
        if status == BadConfiguration.exit_status and is_first and self._short_lives:
            raise BadConfiguration(f"{ended}; {self._tail()}")
        if self._short_lives >= _MOST_SHORT_LIVES:
            raise StandfastError(f"{ended}, {self._short_lives} times in a row; {self._tail()}")
        self._again = now + backoff_seconds(self._short_lives)
        self.say(f"{ended}; starting it again (log: {self.log})")

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def has_ended(self) -> bool:
        """Return whether it does not run."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """Kill it, and all that it has started."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self._process.pid)
            for each in (own, *own.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        self._process.wait()

    def _tail(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
        except OSError:
            lines = []
        return "\n  ".join([f"the end of its log, {self.log}:", *lines])


class RunProcesses:
    """The master and the nodes of a run, each on a loopback address of its own."""

    def __init__(self, processes: Sequence[RunProcess], say: Callable[[str], None]) -> None:
        """The first one is the master."""
        self._processes = tuple(processes)
        self._say = say

    def start(self) -> None:
        """Start all of them; raises `Unavailable`."""
        for each in self._processes:
            each.start()

    def look(self) -> None:
        """Start again what has ended; raises `StandfastError` if that is of no use."""
        for each in self._processes:
            each.look()

    def end(self, hurried: Latch) -> None:
        """End the nodes, then the master; what has not ended in time, or is ``hurried``, is killed."""
        master, *nodes = self._processes
        for group, what in ((nodes, "the nodes"), ([master], "the master")):
            self._say(f"ending {what}")
            for each in group:
                each.ask_to_end()
            if not ended_in_time(lambda group=group: all(each.has_ended() for each in group), hurried):  # type: ignore[misc]
                late = ", ".join(each.name for each in group if not each.has_ended())
                self._say(f"killing {late}")
            for each in group:
                each.kill()


def ended_in_time(
    has_ended: Callable[[], bool],
    hurried: Latch,
    seconds: float = _END_SECONDS,
    clock: Clock = REAL,
) -> bool:
    """Return whether something ended within ``seconds``, and before its end was hurried."""
    give_up = clock.monotonic() + seconds
    while not has_ended():
        if hurried.wait(clock.pace(0.05)) or clock.monotonic() > give_up:
            return False
    return True


def in_time(
    work: Callable[[], T],
    what: str,
    seconds: float,
    hurried: Latch | None = None,
    clock: Clock = REAL,
) -> T:
    """Return the result of ``work``, which is done on a thread of its own, since it may wait without end.

    Raises what it raises, and `Unavailable` if ``what`` has not answered within ``seconds``, or before it was hurried.
    """
    asking = Worker(f"asking {what}", failed=fatal).start()
    result = asking.submit(work)
    asking.close()
    if not ended_in_time(result.done, hurried or Latch(), seconds, clock):
        raise Unavailable(f"{what} has not answered")
    return result.result()


def _in_words(status: int) -> str:
    if status < 0:
        return f"signal {-status} ({signal.Signals(-status).name})"
    return f"status {status}"
