"""What a process and its children use."""

from __future__ import annotations

import subprocess
import sys

from standby.adapters.processes import ChildrenTime, measure

#: Uses processor time, says so, and waits for its end.
BURN = "sum(range(2_000_000)); print(flush=True); input()"

JVM, WORKER, AGAIN = (7, 1.0), (8, 2.0), (8, 9.0)


def test_time_of_children_never_falls() -> None:
    children = ChildrenTime()
    assert children.seen({}) == 0
    assert children.seen({JVM: 5.0, WORKER: 1.0}) == 6
    assert children.seen({JVM: 7.0}) == 8, "one has ended"
    assert children.seen({JVM: None, AGAIN: None}) == 8, "they could not be looked at"
    assert children.seen({JVM: 7.5, AGAIN: 0.25}) == 8.75, "a process id is used again"
    assert children.seen({}) == 8.75


def test_child_that_ends_takes_no_time_along() -> None:
    children = ChildrenTime()
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = measure(children)
        child.kill()
    ended = measure(children)
    assert living.children == ended.children + 1
    assert 0 < living.children_cpu_seconds <= ended.children_cpu_seconds
