"""What becomes of an error that comes on one of a leader's threads."""

from __future__ import annotations

import ast
import logging
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import appmaster
from appmaster.blame import going_on
from standby.errors import BrokenInvariant
from standby.threads.worker import Worker
from tests.patience import PATIENCE_SECONDS


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


def test_thread_goes_on_after_an_error_that_breaks_nothing_and_dies_of_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    died: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", died.put)
    errors = [ValueError("planted"), BrokenInvariant("planted too")]

    def break_off() -> None:
        raise errors.pop(0)

    worker = Worker("tested", failed=going_on(logging.getLogger("tested").error, "tested"))
    worker.put(break_off)
    worker.start()
    assert worker.flush(PATIENCE_SECONDS)
    assert [each.message for each in caplog.records] == ["tested: an unexpected error"]
    worker.put(break_off)
    assert isinstance(died.get(timeout=PATIENCE_SECONDS).exc_value, BrokenInvariant)
