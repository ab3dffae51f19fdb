"""What becomes of an error that comes on one of a leader's threads."""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import appmaster
from appmaster.adapters.zookeeper.watched_tree import WatchedTree
from appmaster.blame import going_on
from standby.errors import BrokenInvariant
from standby.threads.worker import Worker
from tests.patience import PATIENCE_SECONDS
from tests.unit.appmaster.conftest import Died


def workers() -> Iterator[tuple[str, ast.Call]]:
    """Yield where each worker of a leader is made, and the call that makes it."""
    root = Path(appmaster.__file__).parent
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Worker":
                yield f"{file.relative_to(root)}:{node.lineno}", node


def test_every_worker_of_a_leader_says_what_becomes_of_an_error() -> None:
    found = dict(workers())
    assert len(found) > 3
    silent = [place for place, call in found.items() if "failed" not in {each.arg for each in call.keywords}]
    assert not silent, "give it `failed`: `fatal`, `going_on`, or a rule of its own"


def test_thread_goes_on_unless_the_error_breaks_something(
    died: Died, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [ValueError("planted"), BrokenInvariant("planted too")]

    def break_off() -> None:
        raise errors.pop(0)

    worker = Worker("tested", failed=going_on(logging.getLogger("tested").error, "tested"))
    worker.put(break_off)
    worker.start()
    assert worker.flush(PATIENCE_SECONDS)
    assert [each.getMessage() for each in caplog.records] == ["tested: an unexpected error"]
    worker.put(break_off)
    assert isinstance(died.get(timeout=PATIENCE_SECONDS).exc_value, BrokenInvariant)


class Broken:
    """A client of which every request fails unexpectedly."""

    def add_listener(self, listener: Callable[[str], None]) -> None: ...

    def remove_listener(self, listener: Callable[[str], None]) -> None: ...

    def get_async(self, path: str, watch: Callable[[Any], None]) -> Any:
        raise LookupError("planted")


def test_unexpected_error_ends_the_thread_and_so_the_candidate(died: Died) -> None:
    """One that went on would answer clients from an old picture for ever."""
    tree = WatchedTree(Broken(), "/root", ["controller"])
    tree.start()
    thread = died.get(timeout=PATIENCE_SECONDS).thread
    assert thread is not None
    assert thread.name == "tree"
    tree.close()


_PROGRAM = """
import threading, time
from appmaster.__main__ import end_with_thread

def die():
    raise LookupError("planted")

threading.excepthook = end_with_thread
threading.Thread(target=die, name="records").start()
time.sleep(60)
"""


def test_a_thread_that_dies_ends_the_candidate() -> None:
    said = said_of_broken(_PROGRAM)
    assert "records: unexpected error" in said
    assert "planted" in said


def said_of_broken(program: str) -> str:
    """Return what a program that ends with the status of a broken candidate says of it."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr


_LOGGING = """
import logging, sys
logging.basicConfig(stream=sys.stdout)
"""


def test_a_thread_that_dies_ends_the_candidate_also_if_the_disk_of_its_log_is_full() -> None:
    """The flush of what could not be written raised, and the leader went on without that thread."""
    # With it, nothing would be kept to be flushed; a master that is not YARN's does not have it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", _LOGGING + _PROGRAM],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr


_STUCK = """
import logging, threading
import appmaster.__main__ as root

logging.basicConfig()
(handler,) = logging.getLogger().handlers
handler.acquire()
root._LAST_SECONDS = 0.1
threading.Thread(target=root.end_stuck).start()
threading.Event().wait()
"""


def test_a_leader_that_is_stuck_in_its_log_ends_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", _STUCK], timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 1


def test_a_leader_that_is_stuck_says_where() -> None:
    program = _STUCK.replace("handler.acquire()", "").replace("0.1", str(PATIENCE_SECONDS))
    said = said_of_broken(program)
    assert "the leader's loop stands still" in said
    assert "MainThread:" in said
    assert "threading.Event().wait()" in said or 'File "<string>"' in said
