"""When the steps of a submit are over, by the event log and the command's lines."""

from __future__ import annotations

import pytest

from benchmarks.contest import Failed
from benchmarks.submit import steps
from demo.events import Event


def status(at_ms: int, name: str) -> Event:
    return Event(at_ms, "job_status", data={"status": name})


def test_steps_are_those_of_this_submit() -> None:
    registered = [Event(at, "container_registered") for at in (500, 5_000, 6_000, 8_000)]
    events = [
        *(Event(900, "leader_elected"), status(950, "deployed"), Event(4_000, "leader_elected")),
        *(*registered, status(5_500, "deploying"), status(7_000, "deployed"), status(9_000, "deployed")),
    ]
    lines = [
        (2_000, "   1.0 s  checking YARN"),
        (3_000, "   2.0 s  submitting to YARN"),
        (3_500, "   2.5 s  submitted"),
    ]
    assert steps(events, lines, 1_000) == {
        "checked_seconds": 2.0,
        "led_seconds": 3.0,
        "registered_seconds": 5.0,
        "deployed_seconds": 6.0,
    }
    # A pool has a leader already.
    assert steps([status(4_000, "deployed")], [(3_000, "   2.0 s  submitted to the pool")], 1_000) == {
        "checked_seconds": 2.0,
        "deployed_seconds": 3.0,
    }
    with pytest.raises(Failed):
        steps([status(950, "deployed")], lines, 1_000)
