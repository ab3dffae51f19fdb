"""The parent of a container's process: it observes how that process ends, and reports it (rule `fair-blame`).

A process that is killed by a signal cannot report anything. So the container's process is the only child of a small
process, its *witness*, which has no other modules loaded and only waits for it. The child records in shared memory
which code of a job it is running. When it has ended, the witness answers on the port that both have open, and ends
with the same status. The witness is gone earlier only if both were ended from outside, which is an answer as well:
the port refuses connections.

Nor can a process that is stopped report anything. While the process lives, the witness leaves connections to it. If
one waits in vain although the process has nothing else to do (`standby.process.stillness`), the witness answers in
its place that the process stands still (rule `who-is-lost`). A process that stands still for good is ended: whatever
has replaced it needs its host, its state and its place, and in a pool nobody else could end it.

If the process is in a call that holds the interpreter's lock until a disk has answered, which it has written down
before, the witness answers that it waits for its disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from standby.adapters.liveness import listen
from standby.errors import Unavailable
from standby.process.stillness import is_at_rest, is_stopped

#: How long the witness stays available: longer than a change of leaders takes, and not longer than a container on
#: the same host can wait for the memory.
_STAYS_SECONDS: Final = 5.0

#: How long it waits for a descriptor when it has none for a connection.
_PAUSE_SECONDS: Final = 0.05

_SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

#: Maximum number of answered connections without a confirmation.
_MOST_ANSWERED: Final = 256

#: The confirmation that the answer was read.
READ: Final = b"+"

#: The answer in the place of a process that stands still.
STILL: Final = b'{"stands_still":true}'

#: The answer in the place of a process that waits for its disk.
AT_DISK: Final = b'{"waits_for_disk":true}'

#: Prefix of the witness's log lines, followed by the process id. It logs its start and, after the process has ended,
#: either that it ended as asked with code 0, or the answer for the port. For a container whose port is not known,
#: the log is the only information (`standby.process.last_words`).
WRITES: Final = b"the witness of process "
BEGUN: Final = b"it has begun"
AS_ASKED: Final = b"it has ended as it was asked to"

#: Maximum size of an entry: a list of more tasks than this would not help to find the cause.
MOST_BYTES: Final = 32_000

_LENGTH: Final = struct.Struct("=I")
_SLOTS: Final = (64, 64 + _LENGTH.size + MOST_BYTES)
_SIZE: Final = _SLOTS[1] + _LENGTH.size + MOST_BYTES

#: prctl(PR_SET_PDEATHSIG): a container's process must not outlive the process that YARN knows.
_SET_PARENT_DEATH_SIGNAL: Final = 1

#: Variable with the id of the node's process that started this one: a process of a pool ends with its node.
IN_POOL: Final = "STANDFAST_POOL"

#: Forwarded to the process: YARN signals the group, people signal the process that YARN knows.
_PASSED_ON: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGUSR1})

#: How often the host's count of OOM kills is read: only recent kills are relevant.
_LOOK_SECONDS: Final = 2.0

#: How long a connection waits for the process before the witness looks at it.
_WAITS_SECONDS: Final = 0.1

#: How long a process stands still before its witness ends it: longer than a leader waits for it to come back, and than
#: ZooKeeper's session lasts by default.
STILL_SECONDS: Final = 10.0

#: Looks that are further apart prove nothing about the time between them: the witness did not run either.
_GAP_SECONDS: Final = 3.0


class WitnessNote:
    """Shared memory for the witness: contains the latest complete entry, however the process dies."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)
        self._lock = threading.Lock()
        self._disk_calls = 0

    def leave(self, entry: bytes) -> None:
        """Replace the entry; one that is too long counts as empty. Not thread-safe."""
        entry = entry if len(entry) <= MOST_BYTES else b""
        slot = 1 - self._memory[0]
        begin = _SLOTS[slot]
        self._memory[begin : begin + _LENGTH.size + len(entry)] = _LENGTH.pack(len(entry)) + entry
        # One byte, written last: if the process dies in between, the previous entry stays valid.
        self._memory[0] = slot

    def read(self) -> bytes:
        """Return the entry; empty when there is none."""
        begin = _SLOTS[self._memory[0]]
        (length,) = _LENGTH.unpack_from(self._memory, begin)
        return self._memory[begin + _LENGTH.size : begin + _LENGTH.size + length]

    @contextlib.contextmanager
    def disk_call(self) -> Iterator[None]:
        """Mark the block as a call that waits for a disk and holds the interpreter's lock. Thread-safe."""
        self._count_disk_calls(1)
        try:
            yield
        finally:
            self._count_disk_calls(-1)

    def _count_disk_calls(self, more: int) -> None:
        with self._lock:
            self._disk_calls += more
            self._memory[2] = self._disk_calls > 0

    @property
    def is_in_disk_call(self) -> bool:
        """Whether a thread of the process is in such a call, or just before or after it."""
        return bool(self._memory[2])

    def end_in_order(self) -> None:
        """Record that the process ends as requested, so that no further information is needed."""
        self._memory[1] = 1

    @property
    def has_ended_in_order(self) -> bool:
        """Whether the process ended as requested."""
        return bool(self._memory[1])


@dataclass(frozen=True, slots=True)
class Witnessed:
    """A process's connection to its witness."""

    port: socket.socket | None = None
    """The port that both have open; None without a witness."""
    note: WitnessNote = field(default_factory=WitnessNote)


def fork_witness(environment: Mapping[str, str], still_seconds: float = STILL_SECONDS) -> Witnessed:
    """Fork: return in the child; this process becomes its witness, and ends when and as the child does.

    ``still_seconds``: how long the child may stand still before it is ended, from the first connection that waits.
    Must be called before importing anything that a witness does not need. If no port can be opened, nothing is
    forked: the reason is reported when the port is opened later.
    """
    if IN_POOL in environment:
        end_with(int(environment[IN_POOL]))
    host = environment.get("NM_HOST")
    if not host:
        return Witnessed()
    try:
        port = listen(host)
    except Unavailable:
        return Witnessed()
    witnessed, witness = Witnessed(port, WitnessNote()), os.getpid()
    # Block signals until there is a child to forward them to.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    child = os.fork()
    if child:
        _watch(_Watch(child, port, before, still_seconds, witnessed.note))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    end_with(witness)
    return witnessed


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its ``parent`` ends."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # it died before this was set


def _watch(watch: _Watch) -> NoReturn:
    note = watch.note
    _write(watch.child, BEGUN)
    status, oom_kills = watch.until_end()
    answer = _answer(status, oom_kills, note.read())
    _write(watch.child, AS_ASKED if note.has_ended_in_order and status == 0 else answer)
    # One that ended by a signal that was passed on did not heed signals yet: it was still starting, and no leader asks.
    if not note.has_ended_in_order and -status not in watch.passed_on:
        answer_connections(watch.port, answer + b"\n")
    os._exit(status if status >= 0 else 128 - status)


def _write(child: int, said: bytes) -> None:
    """Write a line into the container's log, atomically with respect to other writers."""
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), b"%s%d: %s\n" % (WRITES, child, said))


class _Watch:
    """Waits for the end of a child, answers in its place while it stands still, and ends it if that lasts."""

    def __init__(
        self,
        child: int,
        port: socket.socket,
        blocked: Iterable[int],
        still_seconds: float,
        note: WitnessNote,
    ) -> None:
        """Signals arrive in a pipe, so that one wait is for them and for the port; ``blocked`` are those of before."""
        self.child = child
        self.port = port
        self.note = note
        self.passed_on: set[int] = set()
        """The signals that the child was sent."""
        self._still_seconds = still_seconds
        self._still: tuple[float, float] | None = None
        """Since when, and when last, the child was seen standing still, monotonic seconds; None: it runs.

        One that waits for its disk and is not at rest does so from that moment on, at the earliest.
        """
        self._signals, written = os.pipe()
        for end in (self._signals, written):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_PASSED_ON):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._poll = select.poll()
        self._poll.register(self._signals, select.POLLIN)

    def until_end(self) -> tuple[int, int | None]:
        """Return the child's exit code or negated signal number, and the number of recent OOM kills on the host."""
        earlier = kills = _oom_kills()
        counted = time.monotonic()
        while True:
            if self._wait():
                for number in self._come():
                    if number in _PASSED_ON:
                        self.passed_on.add(number)
                        os.kill(self.child, number)
                ended, waited = os.waitpid(self.child, os.WNOHANG)
                if ended:
                    now = _oom_kills()
                    known = None if now is None or earlier is None else now - earlier
                    return os.waitstatus_to_exitcode(waited), known
            if time.monotonic() - counted >= _LOOK_SECONDS:
                # Use the reading before the latest: the kill may have happened before the latest one.
                earlier, kills, counted = kills, _oom_kills(), time.monotonic()

    def _come(self) -> bytes:
        """Return the numbers of the signals that have come."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self._signals, 4096)
        return b""

    def _wait(self) -> bool:
        """Wait for a signal until something else is due; return whether one has come."""
        if self._still is not None:
            return self._ask()
        come = self._polled(_LOOK_SECONDS, self.port)
        if come == {self.port.fileno()}:
            # A process that runs accepts the connection meanwhile.
            come = self._polled(_WAITS_SECONDS)
            if not come:
                self._look()
        return bool(come)

    def _ask(self) -> bool:
        """Connect to the child that stood still, as nobody else may any more; return whether a signal has come."""
        try:
            own = self._knock()
        except OSError:
            self._still = None  # the host is out of something, and what cannot be asked is not ended
            return False
        with own:
            come = self._polled(_WAITS_SECONDS, own)
            if own.fileno() in come:
                self._still = None  # however shortly it runs, it accepts and closes what waits
            elif not come:
                self._look()
            return bool(come - {own.fileno()})

    def _polled(self, seconds: float, *more: socket.socket) -> set[int]:
        """Return which has something to read within a time: the pipe of the signals, or ``more``."""
        for each in more:
            self._poll.register(each, select.POLLIN)
        come = {number for number, _ in self._poll.poll(1000 * seconds)}
        for each in more:
            self._poll.unregister(each)
        return come

    def _knock(self) -> socket.socket:
        """Return a connection to the port, which waits to be accepted."""
        connection = socket.socket(self.port.family, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.connect_ex(self.port.getsockname())
        return connection

    def _look(self) -> None:
        """Look at the child if a connection waits for it; if it stands still, answer in its place, or end it.

        One that waits for its disk is answered for, too. It is ended like every other one if all of it is at rest, as
        it is if the disk is another program's.
        """
        waiting = select.poll()
        waiting.register(self.port, select.POLLIN)
        if not waiting.poll(0):
            self._still = None
            return
        now, rests = time.monotonic(), is_at_rest(self.child)
        # A stop by a signal is one, whatever the process was waiting for.
        is_at_disk = self.note.is_in_disk_call and not is_stopped(self.child)
        if is_at_disk or rests:
            self._answer(AT_DISK if is_at_disk else STILL)
        if not rests:
            # The answer took the connection, and there may be no other one.
            self._still = (now, now) if is_at_disk else None
            return
        since, last = self._still or (now, now)
        self._still = (since if now - last <= _GAP_SECONDS else now, now)
        if now - self._still[0] >= self._still_seconds:
            _write(self.child, b"it has stood still for %d s, and is ended" % self._still_seconds)
            os.kill(self.child, signal.SIGKILL)

    def _answer(self, said: bytes) -> None:
        """Answer each connection that waits."""
        while connections := _accepted(self.port, said + b"\n"):
            for each in connections:
                each.close()


def _answer(status: int, oom_kills: int | None, entry: bytes) -> bytes:
    """Return the input of `standby.shared.wire.decode_end`: built by hand, because nothing is imported here."""
    more = b"," + entry[1:-1] if len(entry) > len(b"{}") else b""
    known = "null" if oom_kills is None else str(oom_kills)
    return b'{"status":%d,"oom_kills":%s%s}' % (status, known.encode(), more)


def answer_connections(port: socket.socket, answer: bytes) -> None:
    """Answer connections until one has confirmed it, or the time is up.

    Every connection is answered at once, without waiting: a silent client must not delay the answer to the leader.
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

    def drop_oldest() -> None:
        oldest = next(iter(answered))
        poll.unregister(oldest)
        answered.pop(oldest).close()

    def make_room() -> None:
        """Without a descriptor for what waits, which may be the leader: the oldest one may be a stranger's."""
        if answered:
            drop_oldest()
        time.sleep(_PAUSE_SECONDS)

    while (left := until - time.monotonic()) > 0:
        for number, _ in poll.poll(1000 * left):
            if number == port.fileno():
                for each in _accepted(port, answer, make_room):
                    answered[each.fileno()] = each
                    poll.register(each, select.POLLIN)
                continue
            if number not in answered:
                continue  # dropped just now
            if _has_read(answered[number]):
                return
            poll.unregister(number)
            answered.pop(number).close()
        while len(answered) > _MOST_ANSWERED:
            drop_oldest()


def _accepted(
    port: socket.socket, answer: bytes, make_room: Callable[[], object] = lambda: None
) -> list[socket.socket]:
    """Return the connection that was accepted and answered, if any; ``make_room`` if there is no descriptor for it."""
    try:
        connection, _ = port.accept()
    except OSError as error:
        if error.errno in _SHORT:
            make_room()
        return []
    try:
        connection.setblocking(False)
        # Even the longest answer fits into the kernel's send buffer.
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
    """Return how many processes the host's kernel has killed for lack of memory; None if it is not counted."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
