"""What a job's own code, or its input, makes an active suffer: in the job's status, in the event log, and in tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from appmaster.api.snapshot import snapshot
from appmaster.cli.reading.observe import describe, tasks_table
from appmaster.planning.state import actions as todo
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.troubles import present_troubles, troubles_of
from appmaster.planning.state.view import ClusterView, Presence, Trouble, TroubleKind
from standby.shared.model import Fault, GivenUp, InputFailures, LeftOut, Phase, ReplicaId, ReplicaStatus, Role
from tests.fakes.yarn import FakeCluster
from tests.unit.appmaster.planning.views import (
    FIRST,
    SECOND,
    Change,
    changed,
    of_holder,
    of_records,
    of_view,
    placed,
    unchanged,
)

TRACEBACK = 'Traceback (most recent call last):\n  File "flights.py", line 7, in step\nValueError: no number'
FAILURES = InputFailures(10, 4, "input in[0], offsets [10, 11): ValueError: no number")


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(tasks=2, containers=2)
    cluster.run(15_000)
    assert cluster.view.jobs["job"].reasons == ()
    return cluster


def report(cluster: FakeCluster, **changes: Any) -> None:
    """Have the active of task 0 report so from now on."""
    cluster.active_process(0).report(0, **changes)
    cluster.run(1_000)


def job_of(cluster: FakeCluster) -> Mapping[str, Any]:
    (job,) = snapshot(cluster.view, "cluster", {})["jobs"]
    return job  # type: ignore[no-any-return]


def test_a_deployed_job_whose_code_fails_says_so_with_the_traceback(cluster: FakeCluster) -> None:
    report(cluster, failures=FAILURES, traceback=TRACEBACK)
    job = job_of(cluster)
    assert (job["status"], job["traceback"]) == ("deployed", TRACEBACK)
    assert job["reasons"] == [f"job/main.0: the job's code fails, and is tried again: {FAILURES.reason}"]
    (decided,) = cluster.news("decided_failures")
    assert decided.data["traceback"] == TRACEBACK
    written = len(cluster.did(todo.WriteStatus))
    report(cluster, failures=replace(FAILURES, count=5))
    assert len(cluster.did(todo.WriteStatus)) == written
    report(cluster, failures=None, traceback="", input_committed=11)
    assert (job_of(cluster)["reasons"], job_of(cluster)["traceback"]) == ([], "")


def test_the_traceback_of_a_failed_job_is_told() -> None:
    cluster = FakeCluster(tasks=2, containers=2, policy=PlannerPolicy(fails_on_error=True))
    cluster.run(15_000)
    detail = f"poison: {FAILURES.reason}"
    report(
        cluster, phase=Phase.FAILED, detail=detail, fault=Fault.POISON, failures=FAILURES, traceback=TRACEBACK
    )
    (failed,) = cluster.news("replica_failed")
    assert failed.data["traceback"] == TRACEBACK
    told = [each for each in cluster.news("job_status") if each.data["status"] == "failed"]
    assert [each.data["traceback"] for each in told] == [TRACEBACK]


def given_up(offset: int, how: LeftOut = LeftOut.SKIPPED) -> GivenUp:
    return GivenUp("in", offset, how, "ValueError", "no number", at_ms=1_700_000_000_000 + offset)


def test_each_record_that_is_given_up_is_reported_once(cluster: FakeCluster) -> None:
    report(cluster, skipped=1, given_up=(given_up(4),))
    report(cluster, skipped=2, dead_lettered=1, given_up=(given_up(4), given_up(9, LeftOut.DEAD_LETTER)))
    report(cluster, given_up=(given_up(9, LeftOut.DEAD_LETTER),))
    first, second = cluster.news("record_given_up")
    assert (first.job, str(first.task), first.reason) == ("job", "job/main.0", "ValueError: no number")
    assert first.data == {
        "topic": "in",
        "partition": 0,
        "offset": 4,
        "offsets": 1,
        "how": "skipped",
        "error": "ValueError",
        "given_up_ms": 1_700_000_000_004,
    }
    assert (second.data["offset"], second.data["how"]) == (9, "dead-letter")


def test_of_more_than_a_report_names_the_number_is_reported(cluster: FakeCluster) -> None:
    report(cluster, skipped=1, given_up=(given_up(0),))
    report(cluster, skipped=101, given_up=tuple(map(given_up, range(93, 101))))
    told = cluster.news("record_given_up")
    assert [each.data["offset"] for each in told] == [0, *range(93, 101)]
    assert [each.data.get("unnamed") for each in told] == [None, 92, *[None] * 7]


def test_what_was_given_up_without_a_leader_is_reported_by_the_next_leader(cluster: FakeCluster) -> None:
    report(cluster, skipped=1, given_up=(given_up(4),))
    cluster.elect(2)
    report(cluster, skipped=1, given_up=(given_up(4),))
    told = cluster.news("record_given_up")
    assert [each.data["offset"] for each in told] == [4, 4], "by both, for the first may not have come to it"


def test_the_table_of_tasks_tells_changelog_and_input_apart(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    report(
        cluster,
        applied=8,
        end=10,
        input_end=400,
        input_lag_ms=7,
        input_rate=12.34,
        skipped=5,
        dead_lettered=2,
        failures=FAILURES,
        detail="what it waits for",
    )
    status = snapshot(cluster.view, "cluster", {})
    replica = next(
        each for each in status["tasks"][0]["replicas"] if each["copy"] == status["tasks"][0]["active"]
    )
    names = (
        "changelog_lag_records",
        "input_lag_records",
        "input_lag_ms",
        "input_rate",
        "failures",
        "skipped",
    )
    assert [replica[each] for each in names] == [2, 390, 7, 12.3, 4, 3]
    assert replica["dead_lettered"] == 2
    tasks_table(status, "job")
    heading, *lines = capsys.readouterr().out.splitlines()
    for name in ("CHANGELOG LAG", "INPUT LAG", "INPUT/S", "FAILURES", "SKIPPED", "DEAD LETTERS"):
        assert name in heading
    (line,) = (each for each in lines if each.startswith("job/main.0") and " active " in each)
    assert line.split()[6:12] == ["2", "390", "12.3", "4", "3", "2"]
    assert lines[-1] == f"job/main.0#{replica['copy']}: what it waits for", "below the table"


def test_an_entry_of_the_event_log_is_shown_with_its_traceback() -> None:
    entry = {"at_ms": 0, "kind": "replica_failed", "reason": "poison", "data": {"traceback": TRACEBACK}}
    shown = describe({**dict.fromkeys(("job", "task", "copy", "container", "host", "task_epoch")), **entry})
    line, *indented = shown.splitlines()
    assert re.match(r"(1970-01-01|1969-12-31) \d\d:\d\d:00\.000  replica failed: poison$", line)
    assert indented == [f"  {each}" for each in TRACEBACK.splitlines()]


# ---- the single steps ----

REPLICA, OTHER = ReplicaId(FIRST, 0), ReplicaId(SECOND, 0)
FAILING = Trouble(REPLICA, TroubleKind.FAILING, FAILURES.reason)
BEHIND = Trouble(REPLICA, TroubleKind.BEHIND)


@pytest.mark.parametrize(
    ("before", "status", "expected"),
    [
        ((), {}, ()),
        ((), {"failures": FAILURES}, (FAILING,)),
        ((), {"failures": FAILURES, "phase": Phase.FAILED}, ()),
        ((), {"input_lag_ms": 29_999}, ()),
        ((), {"input_lag_ms": 30_000}, (BEHIND,)),
        ((), {"input_lag_ms": 30_000, "phase": Phase.CLAIMING}, (BEHIND,)),
        ((), {"input_lag_ms": 30_000, "failures": FAILURES}, (FAILING, BEHIND)),
        ((BEHIND,), {"input_lag_ms": 15_000}, (BEHIND,)),
        ((BEHIND,), {"input_lag_ms": 14_999}, ()),
        ((BEHIND,), {"input_lag_ms": None}, ()),
        ((FAILING,), {"input_lag_ms": 15_000}, ()),
        ((replace(BEHIND, replica=OTHER),), {"input_lag_ms": 15_000}, ()),
    ],
)
def test_an_active_is_in_trouble_that_fails_on_its_input_or_is_far_behind_it(
    before: tuple[Trouble, ...], status: dict[str, Any], expected: tuple[Trouble, ...]
) -> None:
    active = ReplicaStatus(REPLICA, Role.ACTIVE, Phase.ACTIVE, 1)
    assert troubles_of([replace(active, **status)], before) == expected


@pytest.mark.parametrize(
    ("case", "change", "found"),
    [
        ("as recorded", unchanged, True),
        ("its stream is broken", of_holder(0, presence=Presence.BROKEN), True),
        ("it is suspected", of_holder(0, presence=Presence.SUSPECT), False),
        ("it has none", of_holder(0, troubles=()), False),
        ("another copy is active", of_records(FIRST, active=1), False),
        ("the copy is elsewhere", placed({0: "c9"}), False),
        ("the task is not known", of_view(records={}), False),
    ],
)
def test_a_trouble_is_that_of_the_active_of_the_record_in_its_container(
    whole: ClusterView, case: str, change: Change, found: bool
) -> None:
    view = changed(whole, of_holder(0, troubles=(BEHIND,)), change)
    assert present_troubles(view) == ({"job": [BEHIND]} if found else {}), case


def test_troubles_are_sorted_by_task_and_kind(whole: ClusterView) -> None:
    theirs = [replace(each, replica=OTHER) for each in (BEHIND, FAILING)]
    view = changed(whole, of_holder(0, troubles=(*theirs, FAILING, BEHIND)))
    assert present_troubles(view) == {"job": [BEHIND, FAILING, *theirs]}
