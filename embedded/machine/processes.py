"""The processes of an embedded cluster: who they are, and signals that reach nobody else.

Every server is started with two environment variables, and the NodeManagers hand them on to containers:
the cluster's id, and for what runs on a host, that host. A process therefore shows whose it is for as long
as it lives, whoever started it, whether that one still lives, and whatever was written down. Those that
dropped their environment are still found by their ancestors, and by a working directory inside a host's.
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
    """A process and nobody else: its number may be used again, its number and birth may not."""

    pid: int
    #: Clock ticks from the machine's start to the process's.
    started_ticks: int


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """What ``/proc`` said of a process."""

    identity: ProcessIdentity
    parent: int
    #: One letter, as in ``ps``: T is stopped, Z is dead and not yet reaped by its parent.
    state: str
    threads: int
    has_terminal: bool
    memory_bytes: int

    @property
    def pid(self) -> int:
        """Its number."""
        return self.identity.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, to the last thread: until then its ports stay open.

        A killed process shows itself as dead as soon as its first thread is, whatever the others do.
        """
        return self.state not in "ZX" or self.threads > 1

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP holds it."""
        return self.state == "T"


def process_info(pid: int) -> ProcessInfo | None:
    """Return the process with that number, or None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the command in brackets, and may hold anything, brackets too.
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
    """Whether exactly this process still runs."""
    process = process_info(identity.pid)
    return process is not None and process.identity == identity and process.is_alive


def uptime_seconds(identity: ProcessIdentity) -> float:
    """Return how long ago the process was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - identity.started_ticks / _TICKS_PER_SECOND


def boot_id() -> str:
    """Return the id of the machine's present run; an :class:`ProcessIdentity` of another run means nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def environment_of(pid: int) -> dict[str, str]:
    """Return what the process's environment was when it began; empty when it has ended or is not ours to see."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (each.partition(b"=") for each in raw.split(b"\0") if b"=" in each)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def command_of(pid: int) -> tuple[str, ...]:
    """Return the process's arguments; empty when it has ended."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(each) for each in raw.rstrip(b"\0").split(b"\0"))


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; return whether it was there to get it."""
    try:
        handle = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        # The handle stays with the process that had the number when it was opened: looked at after that,
        # and before anything is sent, a number used again cannot slip in between.
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
    """Start a process that nobody's end or Ctrl-C ends; return who it is.

    It is a session of its own and nobody's child: a shell in between starts it and goes at once, so that
    init is the one who buries it. Its output is appended to ``log``. Raises :class:`Unavailable` when it
    cannot be started.
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
    """The processes of one cluster, by what they carry; with ``host``, only those of that host."""

    cluster_id: str
    #: The directory of each host; a container's working directory lies in it.
    host_directories: Mapping[str, Path]

    def processes(self, host: str | None = None) -> list[ProcessInfo]:
        """Return the living processes of the cluster (or of one host of it), oldest first."""
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
        """Kill every process (or those of one host) until none is left; return how many there were.

        Those in ``first`` die first, so that they can neither start others nor tell of their end. Raises
        :class:`Unavailable` when some do not go.
        """
        killed = self._until_none(host, lambda _: True, signal.SIGKILL, first, timeout_seconds)
        # A dying process drops its environment, and with it the mark, before its ports.
        deadline = time.monotonic() + timeout_seconds
        while left := [identity for identity in killed if is_alive(identity)]:
            if time.monotonic() > deadline:
                raise Unavailable(f"the processes {_numbers(left)} do not die")
            time.sleep(_POLL_SECONDS)
        return len(killed)

    def stop(self, host: str, *, first: Iterable[ProcessIdentity] = (), timeout_seconds: float = 20) -> int:
        """Hold every process of a host with SIGSTOP until none runs, and its ports; return how many there were."""
        held = self._until_none(
            host, lambda each: not each.is_stopped, signal.SIGSTOP, first, timeout_seconds
        )
        silence((each.pid for each in held), host)
        return len(held)

    def _until_none(
        self,
        host: str | None,
        concerns: Callable[[ProcessInfo], bool],
        number: signal.Signals,
        first: Iterable[ProcessIdentity],
        timeout_seconds: float,
    ) -> set[ProcessIdentity]:
        reached = {identity for identity in first if send_signal(identity, number)}
        deadline = time.monotonic() + timeout_seconds
        # Again and again, since one of them may have started another just before it was reached; and once more
        # when none is left, since one that is just becoming another program shows no environment meanwhile.
        empty_looks = 0
        while empty_looks < 2:
            left = [each.identity for each in self.processes(host) if concerns(each)]
            fresh = [identity for identity in left if identity not in reached]
            reached.update(identity for identity in fresh if send_signal(identity, number))
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
    """Whether the working directory is in one of these; a shell in which somebody looks around does not count."""
    if process.has_terminal or not directories:
        return False
    try:
        working_directory = Path(f"/proc/{process.pid}/cwd").readlink()
    except OSError:
        return False
    return f"{working_directory}/".startswith(directories)
