"""The witness of a container's process: what it says of an end, when it is silent, and what the log tells."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from standby.process import witness
from standby.process.last_words import LastWords, last_words
from standby.process.stillness import is_at_rest, state_of
from standby.process.witness import AT_DISK, MOST_BYTES, READ, STILL, WitnessNote
from standby.shared import exits, wire
from standby.shared.exits import ExitCause, ProcessEnd, Ran
from standby.shared.model import TaskId
from tests.meanwhile import background
from tests.patience import A_MOMENT_SECONDS, LOOK_SECONDS, PATIENCE_SECONDS, TRY_SECONDS, looks, soon

ROOT = Path(__file__).parents[4]

RAN = (Ran(TaskId("job", "main", 3), 7), Ran(TaskId("job", "main", 4)))

#: Says its port and its own pid, then what a test wants it to.
CHILD = """
import json, os, signal, sys
from standby.process.witness import fork_witness
witnessed = fork_witness(os.environ, float(os.environ.get("STILL_SECONDS", "600")))
from standby.shared.wire import encode_entry
from standby.shared.exits import Ran
from standby.shared.model import TaskId
witnessed.note.leave(encode_entry((Ran(TaskId("job", "main", 3), 7), Ran(TaskId("job", "main", 4))), None))
print(json.dumps([witnessed.port.getsockname()[1], os.getpid()]), flush=True)
exec(sys.stdin.readline())
"""


class Child:
    """A process with a witness."""

    def __init__(self, **environment: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "NM_HOST": "127.0.0.1",
                **environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.popen.stdout is not None
        self.port, self.pid = json.loads(self.popen.stdout.readline())

    def does(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def ask(self) -> ProcessEnd | None:
        """Return what its witness says of its end. On a busy machine one that is being killed stands still first."""
        for _ in looks():
            with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as asking:
                said = asking.makefile("rb").readline()
                if said.rstrip() != STILL:
                    asking.sendall(READ)
                    return wire.decode_end(said)
        raise AssertionError("its end was never reported")

    def says(self) -> bytes | None:
        """Return what its witness says; empty: it has taken the connection itself.

        None: it took the connection and was stopped before it closed it. A leader asks again then, and so does a test.
        """
        with socket.create_connection(("127.0.0.1", self.port), TRY_SECONDS) as asking:
            try:
                said = asking.makefile("rb").readline().rstrip()
            except TimeoutError:
                return None
        assert said in (STILL, AT_DISK, b"")
        return said

    def stands_still(self) -> bool | None:
        """Return whether its witness says that it stands still; None: see `says`."""
        said = self.says()
        return None if said is None else said == STILL

    def waits_for_disk(self) -> bool:
        return self.says() == AT_DISK

    def accepts(self, then: str) -> None:
        """Have it accept connections as a container does, and do something else."""
        self.does(
            "from standby.adapters.liveness import LivenessPort; "
            f"LivenessPort('127.0.0.1', witnessed.port); print(flush=True); {then}"
        )
        assert self.popen.stdout is not None
        self.popen.stdout.readline()

    def wrote(self) -> LastWords:
        """Return what the log says once process and witness are gone."""
        _, log = self.popen.communicate(timeout=PATIENCE_SECONDS)
        return last_words(log.decode().splitlines())

    def is_answered(self) -> bool:
        """Return whether somebody on its port says something; the connection may be made just before the end."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as asking:
                return bool(asking.makefile("rb").readline())
        except ConnectionError:
            return False

    def refuses(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS).close()
        except ConnectionRefusedError:
            return True
        return False


@pytest.fixture
def child() -> Iterator[Child]:
    with born() as child:
        yield child


@contextmanager
def born(**environment: str) -> Iterator[Child]:
    child = Child(**environment)
    try:
        yield child
    finally:
        child.popen.kill()
        child.popen.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_end_by_a_signal_is_reported_with_what_ran(child: Child, number: signal.Signals) -> None:
    os.kill(child.pid, number)
    end = child.ask()
    assert end is not None
    assert (end.status, end.ran, end.child) == (-number, RAN, None)
    assert child.popen.wait(PATIENCE_SECONDS) == 128 + number
    assert child.refuses(), "it has said what it knows"
    assert child.wrote() == LastWords(end.is_from_outside, str(end))


def test_strangers_who_say_nothing_do_not_keep_the_leader_from_the_answer(child: Child) -> None:
    strangers: list[socket.socket] = []
    try:
        # They wait to be accepted; one after the other, each would have its time before the leader's turn came.
        address = ("127.0.0.1", child.port)
        strangers += [socket.create_connection(address, PATIENCE_SECONDS) for _ in range(60)]
        os.kill(child.pid, signal.SIGKILL)
        end = child.ask()
        assert end is not None
        assert end.ran == RAN
    finally:
        for each in strangers:
            each.close()


def test_exit_of_the_jobs_code_is_reported(child: Child) -> None:
    child.does("os._exit(0)")
    end = child.ask()
    assert end is not None
    assert (end.status, end.ran, end.cause) == (0, RAN, ExitCause.ITSELF)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (exits.ORPHANED, LastWords(text=f"it ended with exit code {exits.ORPHANED}")),
        (exits.ORDERLY, LastWords(is_from_outside=True, text="it was asked to end")),
    ],
)
def test_of_an_orderly_end_only_the_log_tells(child: Child, code: int, words: LastWords) -> None:
    child.does(f"witnessed.note.end_in_order(); os._exit({code})")
    assert child.popen.wait(PATIENCE_SECONDS) == code
    assert child.refuses()
    assert child.wrote() == words


def test_process_ends_with_its_witness_and_the_reason_is_lost(child: Child) -> None:
    child.does("signal.pause()")
    child.popen.kill()
    assert child.popen.stdout is not None
    assert child.popen.stdout.read() == b"", "both have closed it"
    assert child.refuses()
    assert child.wrote() == LastWords(is_from_outside=True, text="it was ended together with its witness")


def test_witness_passes_a_signal_on_and_ends_as_the_process_does(child: Child) -> None:
    child.does("signal.signal(signal.SIGTERM, lambda *_: os._exit(6)); print(flush=True); signal.pause()")
    assert child.popen.stdout is not None
    child.popen.stdout.readline()
    child.popen.send_signal(signal.SIGTERM)
    end = child.ask()
    assert end is not None
    assert end.status == 6
    assert child.popen.wait(PATIENCE_SECONDS) == 6


def test_process_that_does_not_heed_a_signal_yet_ends_by_it_at_once(child: Child) -> None:
    child.popen.send_signal(signal.SIGTERM)
    assert child.popen.stderr is not None
    log = [child.popen.stderr.readline().decode() for _ in ("begun", "ended")]
    assert last_words(log).is_from_outside, log
    assert not child.is_answered(), "no answer for what was ended from outside before it did anything"
    assert child.popen.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM


def test_process_that_is_stopped_is_reported_until_it_runs_again(child: Child) -> None:
    child.accepts("signal.pause()")
    soon(lambda: child.stands_still() is False, "it takes connections itself")
    for _ in range(2):
        os.kill(child.pid, signal.SIGSTOP)
        soon(child.stands_still, "it is stopped")
        os.kill(child.pid, signal.SIGCONT)
        soon(lambda: child.stands_still() is False, "it takes connections itself")
    os.kill(child.pid, signal.SIGSTOP)
    os.kill(child.pid, signal.SIGKILL)
    end = child.ask()
    assert end is not None
    assert end.status == -signal.SIGKILL


#: Holds the interpreter's lock: asleep; and at work, inside of a marked call or not.
HANGS = "__import__('ctypes').PyDLL(None).sleep(100_000)"
COMPUTES = "__import__('re').match('(a+)+$', 'a' * 60 + 'b')"
AT_ITS_DISK = "call = witnessed.note.disk_call(); call.__enter__(); "


def test_process_that_hangs_is_reported(child: Child) -> None:
    child.accepts(HANGS)
    soon(child.stands_still, "no other thread of it can run")


@pytest.mark.parametrize("holds", [HANGS, COMPUTES])
def test_process_that_waits_for_its_disk_is_reported_as_such_unless_it_is_stopped(
    child: Child, holds: str
) -> None:
    child.accepts(AT_ITS_DISK + holds)
    soon(child.waits_for_disk, "it is in a call that it has marked")
    os.kill(child.pid, signal.SIGSTOP)
    soon(child.stands_still, "it is stopped")
    os.kill(child.pid, signal.SIGCONT)
    soon(child.waits_for_disk, "it is in that call still")


@pytest.mark.parametrize("hangs", ["signal.pause()", HANGS, AT_ITS_DISK + HANGS])
def test_process_that_stands_still_for_good_is_ended_though_nobody_asks_any_more(hangs: str) -> None:
    with born(STILL_SECONDS="1") as child:
        child.accepts(hangs)
        if "pause" in hangs:
            os.kill(child.pid, signal.SIGSTOP)
        soon(child.says, "a leader has asked")
        soon(lambda: not Path(f"/proc/{child.pid}").exists(), "it is ended")
        end = child.ask()
        assert end is not None
        assert (end.status, end.ran) == (-signal.SIGKILL, RAN)
        assert child.wrote() == LastWords(is_from_outside=True, text="it was ended by SIGKILL")


def test_process_that_runs_in_between_is_not_ended() -> None:
    with born(STILL_SECONDS="3") as child:
        child.accepts("signal.pause()")
        for _ in range(12):
            os.kill(child.pid, signal.SIGSTOP)
            soon(child.stands_still, "it is stopped")
            os.kill(child.pid, signal.SIGCONT)
            # Nobody asks it: its witness sees it by itself.
            time.sleep(A_MOMENT_SECONDS)
        assert child.popen.poll() is None


#: Has no file descriptor left, and nothing to do.
HAS_NO_DESCRIPTOR = (
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    "exec('while True:\\n try: os.dup(0)\\n except OSError: break'); print(flush=True); signal.pause()"
)


def test_process_without_descriptors_takes_connections_and_is_not_ended() -> None:
    """Whoever asked it waited, nothing of it ran meanwhile, and its witness took it for one that stands still."""
    with born(STILL_SECONDS="0.2") as child:
        child.accepts(HAS_NO_DESCRIPTOR)
        assert child.popen.stdout is not None
        child.popen.stdout.readline()
        for _ in range(10):
            assert child.says() == b""
            time.sleep(LOOK_SECONDS)
        assert child.popen.poll() is None


def test_note_tells_of_a_call_as_long_as_one_of_them_lasts() -> None:
    note = WitnessNote()
    seen = [note.is_in_disk_call]
    with note.disk_call():
        with note.disk_call():
            seen.append(note.is_in_disk_call)
        seen.append(note.is_in_disk_call)
    assert [*seen, note.is_in_disk_call] == [False, True, True, False]


def test_note_keeps_the_last_entry_and_nothing_that_is_too_long() -> None:
    note = WitnessNote()
    assert note.read() == b""
    for entry in (b"one", b"another", b"x" * MOST_BYTES):
        note.leave(entry)
        assert note.read() == entry
    note.leave(b"x" * (MOST_BYTES + 1))
    assert note.read() == b""


def test_verdict_is_made_from_numbers() -> None:
    for end, cause in (
        (ProcessEnd(-signal.SIGSEGV), ExitCause.ITSELF),
        (ProcessEnd(-signal.SIGABRT, oom_kills=1), ExitCause.ITSELF),
        (ProcessEnd(7), ExitCause.ITSELF),
        (ProcessEnd(-signal.SIGKILL, oom_kills=0), ExitCause.OUTSIDE),
        (ProcessEnd(-signal.SIGKILL, oom_kills=2), ExitCause.UNCERTAIN),
        (ProcessEnd(-signal.SIGKILL), ExitCause.UNCERTAIN),
        (ProcessEnd(-signal.SIGTERM), ExitCause.OUTSIDE),
        (ProcessEnd(exits.BROKEN), ExitCause.UNCERTAIN),
        (ProcessEnd(exits.STUCK), ExitCause.UNCERTAIN),
        (ProcessEnd(exits.BROKEN, child=-signal.SIGKILL, oom_kills=0), ExitCause.OUTSIDE),
        (ProcessEnd(exits.BROKEN, child=-signal.SIGSEGV), ExitCause.UNCERTAIN),
        (ProcessEnd(exits.BROKEN, child=3), ExitCause.UNCERTAIN),
    ):
        assert end.cause is cause, end
        assert end.is_from_outside is (cause is ExitCause.OUTSIDE), end


def test_end_in_words() -> None:
    assert str(ProcessEnd(-11)) == "it was ended by SIGSEGV"
    assert str(ProcessEnd(-99)) == "it was ended by signal 99"
    assert str(ProcessEnd(exits.BROKEN, child=3)) == "its JVM ended with exit code 3"


def test_a_process_of_a_pool_and_its_witness_end_with_their_node() -> None:
    node = (
        "import os, subprocess, sys; "
        "subprocess.run([sys.executable, '-c', sys.argv[1]], env={**os.environ, 'STANDFAST_POOL': str(os.getpid())})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", node, CHILD],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "NM_HOST": "127.0.0.1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.kill()
        assert not process.stdout.read(), "nothing holds it open any more"


# ---- what the log of a container that never registered tells of its end ----


WITNESS = "the witness of process 7:"
BEGUN = f"{WITNESS} it has begun"


class ScarcePort(socket.socket):
    """A port with so many descriptors for the connections that are accepted there."""

    left, refusals = 0, 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, if there is a descriptor for it."""
        if self.left == 0:
            self.refusals += 1
            raise OSError(errno.EMFILE, "Too many open files")
        self.left -= 1
        return super().accept()


@pytest.fixture
def scarce() -> Iterator[ScarcePort]:
    with ScarcePort(socket.AF_INET, socket.SOCK_STREAM) as port:
        port.bind(("127.0.0.1", 0))
        port.listen()
        yield port


def test_a_witness_without_descriptors_does_not_spin(
    scarce: ScarcePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "_STAYS_SECONDS", 3 * A_MOMENT_SECONDS)
    monkeypatch.setattr(witness, "_PAUSE_SECONDS", A_MOMENT_SECONDS, raising=False)
    with socket.create_connection(scarce.getsockname()):
        witness.answer_connections(scarce, b"answer")
    assert 1 <= scarce.refusals <= 4


def test_a_witness_without_descriptors_answers_the_newest_and_drops_the_oldest(scarce: ScarcePort) -> None:
    scarce.left = 1
    with (
        socket.create_connection(scarce.getsockname()) as stranger,
        socket.create_connection(scarce.getsockname()) as leader,
    ):
        answering = background(lambda: witness.answer_connections(scarce, b"answer"))
        assert stranger.recv(10) == b"answer"
        soon(lambda: scarce.refusals > 0, "it has a descriptor")
        assert stranger.recv(10) == b""
        scarce.left = 1
        assert leader.recv(10) == b"answer"
        leader.sendall(witness.READ)
        answering.result(PATIENCE_SECONDS)


def test_last_words() -> None:
    for lines, words in (
        ((), LastWords()),
        (("bash: python: No such file",), LastWords(text="bash: python: No such file")),
        (
            (BEGUN, f'{WITNESS} {{"status":-9,"oom_kills":0}}'),
            LastWords(is_from_outside=True, text="it was ended by SIGKILL"),
        ),
        (
            (BEGUN, f'{WITNESS} {{"status":-9,"oom_kills":1}}'),
            LastWords(text="it was ended by SIGKILL"),
        ),
        (
            (BEGUN, "no port", f'{WITNESS} {{"status":2,"oom_kills":0}}'),
            LastWords(text="no port; it ended with exit code 2"),
        ),
        (
            (BEGUN, f'cut off{WITNESS} {{"status":-11,"oom_kills":0}}'),
            LastWords(text="cut off; it was ended by SIGSEGV"),
        ),
        (
            (BEGUN, "importing"),
            LastWords(is_from_outside=True, text="importing; it was ended together with its witness"),
        ),
        (
            (BEGUN, "bye", f"{WITNESS} it has ended as it was asked to"),
            LastWords(is_from_outside=True, text="bye; it was asked to end"),
        ),
        ((BEGUN, f'{WITNESS} {{"stat'), LastWords()),
    ):
        assert last_words(lines) == words, lines


# ---- when a process counts as standing still ----


@contextmanager
def program(text: str) -> Iterator[int]:
    """Yield the id of a process that has said that it is about to run the last line of a program."""
    *before, last = text.strip().splitlines()
    lines = "\n".join((*before, "print(flush=True)", last))
    popen = subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE)
    assert popen.stdout is not None
    try:
        popen.stdout.readline()
        yield popen.pid
    finally:
        popen.kill()
        popen.communicate()


@pytest.mark.parametrize(
    ("stat", "state"), [(b"7 (java) S 1 7", b"S"), (b"7 (a) R (b) D 1 7", b"D"), (b"7 () T 1 7\n", b"T")]
)
def test_state_of_a_thread_is_what_follows_its_name(stat: bytes, state: bytes) -> None:
    assert state_of(stat) == ord(state)


@pytest.mark.parametrize(
    "works", ["import re; re.match('(a+)+$', 'a' * 60 + 'b')", "import os; os.waitpid(os.fork(), 0) or 0"]
)
def test_process_that_has_work_to_do_or_is_not_there_is_not_at_rest(works: str) -> None:
    with program(works) as pid:
        if "fork" not in works:
            assert not any(is_at_rest(pid) for _ in range(10)), "it holds its lock, and computes"
    assert not is_at_rest(pid)
