"""The process around a container's process: it sees how that one ends, and says so to the leader (rule `fair-blame`).

A process that a signal ends can tell nobody. So the container's process is the only child of a small one, its
*witness*, which has nothing of ours loaded and nothing to do but to wait for it. The child leaves in shared memory
what of a job's code it runs. When it has ended, the witness answers at the port that both have open, and ends with the
same status. It is gone before that only when somebody from outside ended both, which is an answer as well: the port
refuses.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from standby.adapters.liveness import listen
from standby.errors import Unavailable

#: For how long the witness stays to be asked: longer than a change of leaders takes, and no longer than a container on
#: the same host can wait for its memory.
_STAYS_SECONDS: Final = 5.0

#: So many may have been answered without having said that they read it.
_MOST_ANSWERED: Final = 256

#: What who asked says when it has read the answer.
READ: Final = b"+"

#: What it writes into the log begins with this and the process's number: that it has begun; and, when the process has
#: ended, that it did so with code 0 as it was asked to, or else what it answers at the port. Of a container that nobody
#: knew a port of, the log is all that tells (`standby.process.last_words`).
WRITES: Final = b"the witness of process "
BEGUN: Final = b"it has begun"
AS_ASKED: Final = b"it has ended as it was asked to"

#: More than this is not kept: a list of so many tasks accuses nobody.
MOST_BYTES: Final = 32_000

_LENGTH: Final = struct.Struct("=I")
_SLOTS: Final = (64, 64 + _LENGTH.size + MOST_BYTES)
_SIZE: Final = _SLOTS[1] + _LENGTH.size + MOST_BYTES

#: prctl(PR_SET_PDEATHSIG): a container's process must not outlive what YARN takes for it.
_SET_PARENT_DEATH_SIGNAL: Final = 1

#: Passed on to the process: YARN signals the group, people the process that YARN knows.
_PASSED_ON: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGUSR1})

#: How often the host's count of processes that it killed is looked at: what it did long ago is no reason.
_LOOK_SECONDS: Final = 2.0


class Note:
    """What the process leaves for its witness: the latest whole entry, however it dies."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)

    def leave(self, entry: bytes) -> None:
        """Replace the entry; one that is too long says nothing. Not from two threads at once."""
        entry = entry if len(entry) <= MOST_BYTES else b""
        slot = 1 - self._memory[0]
        begin = _SLOTS[slot]
        self._memory[begin : begin + _LENGTH.size + len(entry)] = _LENGTH.pack(len(entry)) + entry
        # One byte, written last: a process that dies in between has left the entry before.
        self._memory[0] = slot

    def read(self) -> bytes:
        """Return the entry; empty when there is none."""
        begin = _SLOTS[self._memory[0]]
        (length,) = _LENGTH.unpack_from(self._memory, begin)
        return self._memory[begin + _LENGTH.size : begin + _LENGTH.size + length]

    def end_in_order(self) -> None:
        """Take note that the process ends as it was asked to: nobody will want to know more."""
        self._memory[1] = 1

    @property
    def has_ended_in_order(self) -> bool:
        """Whether it said so."""
        return bool(self._memory[1])


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What a process has of its witness."""

    port: socket.socket | None = None
    """The port that both have open; None: there is no witness."""
    note: Note = field(default_factory=Note)


def split(environment: Mapping[str, str]) -> Witnessed:
    """Return in a new process, which goes on; this one becomes its witness, and ends when and as it does.

    To be called before anything is imported that would be of no use to a witness. Where no port can be opened nothing
    is split: what is in the way is told by whoever opens the port.
    """
    host = environment.get("NM_HOST")
    if not host:
        return Witnessed()
    try:
        port = listen(host)
    except Unavailable:
        return Witnessed()
    witnessed, witness = Witnessed(port, Note()), os.getpid()
    # Before there is a process to pass them on to, none may end this one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    child = os.fork()
    if child:
        _watch(child, port, witnessed.note)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != witness:
        os._exit(128 + signal.SIGKILL)  # it died before that was set
    return witnessed


def _watch(child: int, port: socket.socket, note: Note) -> NoReturn:
    _write(child, BEGUN)
    status, oom_kills = _await_end(child)
    answer = _answer(status, oom_kills, note.read())
    _write(child, AS_ASKED if note.has_ended_in_order and status == 0 else answer)
    if not note.has_ended_in_order:
        tell(port, answer + b"\n")
    os._exit(status if status >= 0 else 128 - status)


def _write(child: int, said: bytes) -> None:
    """Write a line into the container's log, whole, beside what others write."""
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), b"%s%d: %s\n" % (WRITES, child, said))


def _await_end(child: int) -> tuple[int, int | None]:
    """Return the child's exit code or minus its signal, and how many processes the host has killed just before."""
    earlier = kills = _oom_kills()
    while True:
        # Not the latest: the kill itself may lie before it.
        earlier, kills = kills, _oom_kills()
        come = signal.sigtimedwait({signal.SIGCHLD, *_PASSED_ON}, _LOOK_SECONDS)
        if come is None:
            continue
        if come.si_signo in _PASSED_ON:
            os.kill(child, come.si_signo)
            continue
        ended, waited = os.waitpid(child, os.WNOHANG)
        if ended:
            now = _oom_kills()
            known = None if now is None or earlier is None else now - earlier
            return os.waitstatus_to_exitcode(waited), known


def _answer(status: int, oom_kills: int | None, entry: bytes) -> bytes:
    """Return what `standby.shared.wire.decode_end` takes: made by hand, since nothing is loaded here."""
    more = b"," + entry[1:-1] if len(entry) > len(b"{}") else b""
    known = "null" if oom_kills is None else str(oom_kills)
    return b'{"status":%d,"oom_kills":%s%s}' % (status, known.encode(), more)


def tell(port: socket.socket, answer: bytes) -> None:
    """Answer until somebody has read it, or nobody did for long enough.

    Everybody is answered at once, and none is waited for: whoever connects and says nothing must not keep the leader
    from its answer.
    """
    answered: dict[int, socket.socket] = {}
    try:
        _answer_all(port, answer, answered)
    finally:
        for each in answered.values():
            each.close()


def _answer_all(port: socket.socket, answer: bytes, answered: dict[int, socket.socket]) -> None:
    until = time.monotonic() + _STAYS_SECONDS
    port.setblocking(False)
    poll = select.poll()
    poll.register(port, select.POLLIN)
    while (left := until - time.monotonic()) > 0:
        for number, _ in poll.poll(1000 * left):
            if number == port.fileno():
                for each in _accepted(port, answer):
                    answered[each.fileno()] = each
                    poll.register(each, select.POLLIN)
                continue
            if _has_read(answered[number]):
                return
            poll.unregister(number)
            answered.pop(number).close()
        while len(answered) > _MOST_ANSWERED:
            # The oldest has had its time.
            oldest = next(iter(answered))
            poll.unregister(oldest)
            answered.pop(oldest).close()


def _accepted(port: socket.socket, answer: bytes) -> list[socket.socket]:
    """Return who has connected and was answered."""
    try:
        connection, _ = port.accept()
    except OSError:
        return []
    try:
        connection.setblocking(False)
        # As long as it may be, it fits into what the kernel keeps for a connection.
        connection.sendall(answer)
    except OSError:
        connection.close()
        return []
    return [connection]


def _has_read(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == READ
    except OSError:
        return False


def _oom_kills() -> int | None:
    """Return how many processes the host's kernel has killed for want of memory; None where it does not count them."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
