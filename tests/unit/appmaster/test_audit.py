"""The audit names the caller, and refused callers cannot fill the event log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appmaster.api.audit import Auditor
from appmaster.api.server import ApiServer
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


def test_a_call_is_reported_as_what_is_done_whatever_else_it_has() -> None:
    told: list[tuple[str, object]] = []
    queue: Any = None

    def report(caller: Caller, operation: str, about: Mapping[str, Any], said: str) -> None:
        told.append((operation, about["job"]))

    server = ApiServer("c", "b", queue, lambda: True, lambda _: {"said": "done"}, report)
    call = {"operation": "handover", "job": "j1", "change": "deploy", "arguments": {"job": "j2"}}
    server(Caller(PeerRole.OPERATOR, "ann"), call)
    assert told == [("handover", "j1")]
