"""Finds the processes of an embedded cluster, and sends signals to them only.

Servers are started with the cluster's id in an environment variable; a second one has the host, for processes of a
host. NodeManagers pass both on to their containers. They identify a process for as long as it lives, without a
record and even if its parent has died. A process that dropped its environment is found by its ancestors, and by a
working directory inside that of a host.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embedded.machine.silence import silence
from standby.errors import Unavailable

CLUSTER_MARK: Final = "STANDFAST_LOCAL_CLUSTER"
HOST_MARK: Final = "STANDFAST_LOCAL_HOST"

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies one process: a process id may be reused, but not together with the start time."""

    pid: int
    #: Clock ticks from the machine's boot to the start of the process.
    started_ticks: int


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process according to ``/proc``."""

    identity: ProcessIdentity
    parent: int
    #: One letter, as in ``ps``: T is stopped, Z is dead and not yet reaped by its parent.
    state: str
    threads: int
    has_terminal: bool
    memory_bytes: int

    @property
    def pid(self) -> int:
        """The process id."""
        return self.identity.pid

    @property
    def is_alive(self) -> bool:
        """Whether any of its threads still exists; until the last one ends, its ports stay open.

        ``/proc`` shows a killed process as dead as soon as its main thread has ended.
        """
        return self.state not in "ZX" or self.threads > 1

    @property
    def is_stopped(self) -> bool:
        """Whether it is suspended by SIGSTOP."""
        return self.state == "T"


def process_info(pid: int) -> ProcessInfo | None:
    """Return the process with that id, or None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the command in parentheses; it may itself contain parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessInfo(
        identity=ProcessIdentity(pid, int(fields[19])),
        parent=int(fields[1]),
        state=fields[0],
        threads=int(fields[17]),
        has_terminal=fields[4] != "0",
        memory_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether exactly this process is still running."""
    process = process_info(identity.pid)
    return process is not None and process.identity == identity and process.is_alive


def uptime_seconds(identity: ProcessIdentity) -> float:
    """Return how long ago the process was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - identity.started_ticks / _TICKS_PER_SECOND


def boot_id() -> str:
    """Return the id of the machine's current boot; an :class:`ProcessIdentity` is valid only within one boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def environment_of(pid: int) -> dict[str, str]:
    """Return the process's initial environment; empty if it has ended or may not be read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (each.partition(b"=") for each in raw.split(b"\0") if b"=" in each)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def command_of(pid: int) -> tuple[str, ...]:
    """Return the process's arguments; empty if it has ended."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(each) for each in raw.rstrip(b"\0").split(b"\0"))


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; return whether it still existed."""
    try:
        handle = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        # The handle refers to the process that had the id when it was opened. The identity is checked after that and
        # before the signal is sent, so the signal cannot reach a process that reuses the id.
        process = process_info(identity.pid)
        if process is None or process.identity != identity:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def start_detached(
    arguments: Sequence[str], *, environment: Mapping[str, str], directory: Path, log: Path
) -> ProcessIdentity:
    """Start a process that outlives this one and ignores its Ctrl-C; return its identity.

    It has its own session. An intermediate shell starts it and exits at once, so that init becomes its parent and
    reaps it. Its output is appended to ``log``. Raises :class:`Unavailable` if it cannot be started.
    """
    try:
        with log.open("ab") as output:
            shell = subprocess.run(
                ["sh", "-c", 'exec 3>&1; "$@" >&2 3>&- & echo $! >&3', "sh", *arguments],
                env=dict(environment),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                check=True,
                timeout=30,
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{arguments[0]} cannot be started: {error}") from error
    process = process_info(int(shell.stdout))
    if process is None:
        raise Unavailable(f"{arguments[0]} ended at once: see {log}")
    return process.identity


@dataclass(frozen=True, slots=True)
class Owned:
    """The processes of one cluster, by their marks; with ``host``, only those of that host."""

    cluster_id: str
    #: The directory of each host; it contains the working directories of the host's containers.
    host_directories: Mapping[str, Path]

    def processes(self, host: str | None = None) -> list[ProcessInfo]:
        """Return the live processes of the cluster, or of one host, oldest first."""
        alive = {each.pid: each for each in _all() if each.is_alive}
        hosts = [host] if host is not None else list(self.host_directories)
        local = tuple(f"{self.host_directories[each]}/local/" for each in hosts)
        owned = {pid for pid, each in alive.items() if self._is_marked(pid, host) or _works_in(each, local)}
        children: dict[int, list[int]] = {}
        for each in alive.values():
            children.setdefault(each.parent, []).append(each.pid)
        waiting = list(owned)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child not in owned:
                    owned.add(child)
                    waiting.append(child)
        owned.discard(os.getpid())
        return sorted((alive[pid] for pid in owned), key=lambda each: each.identity.started_ticks)

    def kill(
        self, host: str | None = None, *, first: Iterable[ProcessIdentity] = (), timeout_seconds: float = 20
    ) -> int:
        """Kill every process (or those of one host) until none is left; return their number.

        Those in ``first`` are killed first, so that they can neither start others nor report their end. Raises
        :class:`Unavailable` if some do not end.
        """
        killed = self._until_none(host, lambda _: True, signal.SIGKILL, first, timeout_seconds)
        # A dying process loses its environment, and with it the mark, before it releases its ports.
        deadline = time.monotonic() + timeout_seconds
        while left := [identity for identity in killed if is_alive(identity)]:
            if time.monotonic() > deadline:
                raise Unavailable(f"the processes {_numbers(left)} do not end")
            time.sleep(_POLL_SECONDS)
        return len(killed)

    def stop(self, host: str, *, first: Iterable[ProcessIdentity] = (), timeout_seconds: float = 20) -> int:
        """Suspend every process of a host with SIGSTOP, and silence its ports; return the number of processes."""

        def cut_off(held: Iterable[ProcessIdentity]) -> None:
            silence((each.pid for each in held), host)

        return len(
            self._until_none(
                host, lambda each: not each.is_stopped, signal.SIGSTOP, first, timeout_seconds, cut_off
            )
        )

    def _until_none(
        self,
        host: str | None,
        concerns: Callable[[ProcessInfo], bool],
        number: signal.Signals,
        first: Iterable[ProcessIdentity],
        timeout_seconds: float,
        then: Callable[[Iterable[ProcessIdentity]], None] = lambda _: None,
    ) -> set[ProcessIdentity]:
        """Return the processes that a signal was sent to; ``then`` is called with them, at once."""
        reached = {identity for identity in first if send_signal(identity, number)}
        then(reached)
        deadline = time.monotonic() + timeout_seconds
        # Repeated, since a process may have started another one just before the signal reached it; and once more
        # when none is left, since a process shows no environment during ``exec``.
        empty_looks = 0
        while empty_looks < 2:
            left = [each.identity for each in self.processes(host) if concerns(each)]
            unreached = [identity for identity in left if identity not in reached]
            fresh = [identity for identity in unreached if send_signal(identity, number)]
            reached.update(fresh)
            then(fresh)
            empty_looks = 0 if left else empty_looks + 1
            if left and time.monotonic() > deadline:
                raise Unavailable(f"the processes {_numbers(left)} do not react to {number.name}")
            if not fresh:
                time.sleep(_POLL_SECONDS)
        return reached

    def _is_marked(self, pid: int, host: str | None) -> bool:
        environment = environment_of(pid)
        return environment.get(CLUSTER_MARK) == self.cluster_id and (
            host is None or environment.get(HOST_MARK) == host
        )


def _numbers(identities: Iterable[ProcessIdentity]) -> str:
    return ", ".join(str(each.pid) for each in identities)


def _all() -> Iterator[ProcessInfo]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = process_info(int(name))
            if process is not None:
                yield process


def _works_in(process: ProcessInfo, directories: tuple[str, ...]) -> bool:
    """Whether the working directory is in one of these; False for a process with a terminal, like a user's shell."""
    if process.has_terminal or not directories:
        return False
    try:
        working_directory = Path(f"/proc/{process.pid}/cwd").readlink()
    except OSError:
        return False
    return f"{working_directory}/".startswith(directories)
