"""A change that cannot be made keeps nobody else's from being made."""

from __future__ import annotations

import queue as queues
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from appmaster import records as bodies
from appmaster.changes.ports import Node
from appmaster.changes.queue import ChangeQueue
from appmaster.records import ChangeRecord
from standby.errors import BadConfiguration, BrokenInvariant, Fenced
from tests.patience import PATIENCE_SECONDS


class Tree:
    """Three queued changes, of two jobs; complete from the beginning."""

    is_complete = True

    def __init__(self) -> None:
        changes = {"c1": "bad", "c2": "bad", "c3": "good"}
        self.nodes: Mapping[str, Node] = {
            f"changes/{name}": Node(bodies.encode(ChangeRecord("undeploy", {"job": job})), 0, at, 0)
            for at, (name, job) in enumerate(changes.items())
        }

    def listen(self, heard: Callable[[], None]) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


class Records:
    """Settles every change but the first, which fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.held_up: list[tuple[str, str]] = []
        self.settled: list[str] = []
        self.has_settled = threading.Event()

    def settle(self, change: str, epoch: int) -> None:
        if change == "c1":
            raise self.error
        self.settled.append(change)
        self.has_settled.set()

    def hold_up(self, change: str, epoch: int, why: str) -> None:
        self.held_up.append((change, why))


@pytest.mark.parametrize("error", [ValueError("planted"), KeyError("planted"), BadConfiguration("planted")])
def test_change_that_fails_holds_up_those_of_its_job_alone(error: Exception) -> None:
    tree: Any = Tree()
    records: Any = Records(error)
    queue = ChangeQueue(tree, records, "cluster", "me", lambda: 0, lambda _: None)
    queue.start()
    queue.lead(1)
    assert records.has_settled.wait(PATIENCE_SECONDS)
    queue.rest()
    queue.close()
    assert set(records.settled) == {"c3"}
    (change, why), *_ = records.held_up
    assert change == "c1"
    assert "planted" in why, "whoever asks is told"


@pytest.mark.parametrize("error", [MemoryError("planted"), BrokenInvariant("planted")])
def test_process_that_cannot_be_relied_on_ends(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    died: queues.SimpleQueue[threading.ExceptHookArgs] = queues.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", died.put)
    tree: Any = Tree()
    records: Any = Records(error)
    queue = ChangeQueue(tree, records, "cluster", "me", lambda: 0, lambda _: None)
    queue.start()
    queue.lead(1)
    assert died.get(timeout=PATIENCE_SECONDS).exc_value is error
    assert not records.settled
    assert not records.held_up


def test_change_that_is_nested_too_deep_to_be_read_stops_nobody_and_is_refused_at_the_door() -> None:
    tree: Any = Tree()
    deep = b'{"operation":"undeploy","arguments":{"job":"bad","reason":' + b"[" * 9_999 + b"]" * 9_999 + b"}}"
    tree.nodes = {
        "changes/c1": Node(deep, 0, 0, 0),
        **{f"changes/{each}": tree.nodes[f"changes/{each}"] for each in ("c2", "c3")},
    }
    records: Any = Records(ValueError("it is not tried"))
    queue = ChangeQueue(tree, records, "cluster", "me", lambda: 0, lambda _: None)
    queue.start()
    queue.lead(1)
    assert records.has_settled.wait(PATIENCE_SECONDS)
    with pytest.raises(BadConfiguration, match="not a record"):
        queue.seen("c1")
    reason: list[Any] = []
    for _ in range(20):
        reason = [reason]
    with pytest.raises(BadConfiguration, match="more than 16 deep"):
        queue.queue("undeploy", {"job": "bad", "reason": reason})
    queue.rest()
    queue.close()
    assert set(records.settled) == {"c2", "c3"}


def test_another_leader_ends_it() -> None:
    tree: Any = Tree()
    records: Any = Records(Fenced("another leads"))
    fenced: list[str] = []
    queue = ChangeQueue(tree, records, "cluster", "me", lambda: 0, fenced.append)
    queue.start()
    queue.lead(1)
    queue.rest()
    queue.close()
    assert fenced[0] == "another leads"
    assert records.settled == []
