"""A change that cannot be made keeps nobody else's from being made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from appmaster import records as bodies
from appmaster.changes.ports import Node
from appmaster.changes.queue import ChangeQueue
from appmaster.records import ChangeRecord
from standby.errors import BadConfiguration, Fenced
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

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.settled: list[str] = []
        self.has_settled = threading.Event()

    def settle(self, change: str, epoch: int) -> None:
        if change == "c1":
            raise self.error
        self.settled.append(change)
        self.has_settled.set()


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
