"""The audit names the caller, and refused callers cannot fill the event log."""

from __future__ import annotations

from typing import Any

from appmaster.api.audit import Auditor
from standby.shared.roles import Caller, PeerRole
from tests.fakes.clock import held


def test_what_containers_are_refused_is_reported_once_in_ten_seconds_and_operators_each_time() -> None:
    told: list[dict[str, Any]] = []
    clock = held()
    audit = Auditor(told.append, clock, lambda: 5, "candidate", "h1")
    for passed in (0, 1, 8, 1, 1):
        clock.advance(passed)
        audit(Caller(PeerRole.CONTAINER, "c"), "undeploy", {"job": "j"}, "refused: its role may not")
    assert [(each["at_ms"], each["data"].get("before")) for each in told] == [
        (clock.now_ms() - 11_000, 0),
        (clock.now_ms() - 1_000, 2),
    ]
    for _ in range(2):
        audit(Caller(PeerRole.OPERATOR, "ann"), "undeploy", {"job": "j"}, "done")
    assert [each["data"]["caller"] for each in told[2:]] == ["ann", "ann"]
