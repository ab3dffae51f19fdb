"""When a process counts as standing still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from standby.process.stillness import is_at_rest
from tests.patience import soon


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


def test_stopped_process_is_at_rest_though_it_has_work_to_do() -> None:
    with program("while True: pass") as pid:
        assert not is_at_rest(pid)
        os.kill(pid, signal.SIGSTOP)
        soon(lambda: is_at_rest(pid), "it is stopped")


def test_process_is_at_rest_that_holds_its_lock_asleep() -> None:
    hangs = """
import ctypes, threading
threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
ctypes.PyDLL(None).sleep(100_000)
"""
    with program(hangs) as pid:
        soon(lambda: is_at_rest(pid), "one thread sleeps, the other one waits for the lock")


@pytest.mark.parametrize(
    "works", ["import re; re.match('(a+)+$', 'a' * 60 + 'b')", "import os; os.waitpid(os.fork(), 0) or 0"]
)
def test_process_that_has_work_to_do_or_is_not_there_is_not_at_rest(works: str) -> None:
    with program(works) as pid:
        if "fork" not in works:
            assert not any(is_at_rest(pid) for _ in range(10)), "it holds its lock, and computes"
    assert not is_at_rest(pid)
