"""What is recorded of containers' reports: epochs that they have seen, failures of the job's code, copies in sync."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from appmaster.planning.rules.follow_reports import follow, raise_epochs
from appmaster.planning.state.view import ClusterView
from standby.shared.model import InputFailures, Phase
from tests.unit.appmaster.planning.views import (
    FIRST,
    PROCESSOR,
    SECOND,
    Change,
    of_records,
    of_status,
    of_view,
    placed,
    policy,
    recorded,
    seen,
)

#: How far a standby in sync may be behind.
LAG_MS = 1_000


def test_an_epoch_is_raised_above_one_that_a_container_has_seen(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[int, int | None, int]] = {
        "above a higher one": (2, 3, 4),
        "not above the same": (2, 2, 2),
        "nor where none was seen": (0, None, 0),
    }
    for case, (epoch, ahead, then) in cases.items():
        known = {FIRST: 9} if ahead is None else {FIRST: 9, SECOND: ahead}
        decision = raise_epochs(*seen(whole, of_records(SECOND, epoch=epoch), of_view(ahead=known)))
        assert decision is not None, case
        written = {each.record.task: each.record.epoch for each in decision.changes}
        assert written == {FIRST: 10} | ({SECOND: then} if then != epoch else {}), case


def test_when_a_change_of_in_sync_sets_is_due(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[int, int | None, bool]] = {
        "none was written yet": (0, None, True),
        "one was written just now": (1_500, 1_001, False),
        "one was written long enough ago": (1_500, 1_000, True),
    }
    for case, (now_ms, last_ms, is_due) in cases.items():
        written = {PROCESSOR: last_ms} if last_ms is not None else {}
        turn, cohort = seen(
            whole,
            policy(in_sync_interval_ms=500),
            of_records(FIRST, in_sync=(0,)),
            of_view(now_ms=now_ms, in_sync_ms=written),
        )
        decision = follow(turn, cohort)
        assert bool(decision) is is_due, case
        assert decision is None or str([0, 1, 2]) in decision.reason.detail, case


ONCE, TWICE, ELSEWHERE = InputFailures(7, 1), InputFailures(7, 2), InputFailures(8, 1)
OTHER_REASON, OTHER_INPUT = replace(TWICE, reason="other"), replace(TWICE, topic="other")

#: The failures that are known and reported, the committed offset, and the failures that are recorded then.
FAILURES: Mapping[
    str, tuple[InputFailures | None, InputFailures | None, int | None, InputFailures | None]
] = {
    "the first": (None, ONCE, 7, ONCE),
    "one more": (ONCE, TWICE, 7, TWICE),
    "no more than before": (TWICE, OTHER_REASON, 7, TWICE),
    "fewer, by a replica that knows of no others": (TWICE, ONCE, 7, TWICE),
    "as many, of another input": (TWICE, OTHER_INPUT, 7, OTHER_INPUT),
    "fewer, but at another offset": (TWICE, ELSEWHERE, 8, ELSEWHERE),
    "none, and the committed offset is not known": (TWICE, None, None, TWICE),
    "none at the same offset": (TWICE, None, 7, TWICE),
    "none behind it": (TWICE, None, 8, None),
}


def test_the_failures_at_the_committed_offset_are_recorded(whole: ClusterView) -> None:
    for case, (known, reported, committed, then) in FAILURES.items():
        decision = follow(
            *seen(
                whole,
                of_records(FIRST, failures=known),
                of_status(0, FIRST, failures=reported, input_committed=committed),
            )
        )
        assert (recorded(decision).failures if decision is not None else known) == then, case


def test_a_decision_about_failures_tells_of_those_of_the_task_that_failed_most_often(
    whole: ClusterView,
) -> None:
    decision = follow(
        *seen(
            whole,
            of_status(0, FIRST, failures=InputFailures(7, 1, "KeyError: 1"), traceback="a.py"),
            of_status(0, SECOND, failures=InputFailures(9, 2, "ValueError: no number"), traceback="b.py"),
        )
    )
    assert decision is not None
    assert "ValueError: no number" in decision.reason.detail
    assert (decision.facts.count, decision.facts.offset, decision.facts.traceback) == (2, 9, "b.py")


def is_behind(by_ms: int) -> Change:
    return of_status(1, FIRST, lag_ms=by_ms)


LOST = placed({0: "gone"})
GONE = placed({1: "gone"})
DISPLACED = of_records(FIRST, SECOND, displaced=1)

IN_SYNC: Mapping[str, tuple[tuple[int, ...], tuple[Change, ...], tuple[int, ...]]] = {
    "in step": ((0,), (), (0, 1, 2)),
    "as far behind as it may be": ((0,), (is_behind(LAG_MS),), (0, 1, 2)),
    "too far behind": ((0, 1, 2), (is_behind(LAG_MS + 1),), (0, 2)),
    "too far behind since the active is lost": ((0, 1, 2), (is_behind(LAG_MS + 1), LOST), (0, 1, 2)),
    "in no container any more": ((0, 1, 2), (GONE,), (0, 2)),
    "restoring": ((0, 1, 2), (of_status(1, FIRST, phase=Phase.RESTORING),), (0, 2)),
    "in sync when it was displaced": ((0, 1), (DISPLACED,), (0, 1, 2)),
    "not in sync when it was displaced": ((0,), (DISPLACED,), (0, 2)),
}


def test_whether_copy_1_is_in_sync(whole: ClusterView) -> None:
    for case, (before, changes, then) in IN_SYNC.items():
        decision = follow(
            *seen(whole, policy(lag_time_ms=LAG_MS), of_records(FIRST, in_sync=before), *changes)
        )
        assert (recorded(decision).in_sync if decision is not None else before) == then, case
