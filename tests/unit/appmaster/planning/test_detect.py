"""Which containers are lost, when the leader doubts itself instead, and which ports are probed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.containers.detect import losses, policy_of, probes
from appmaster.planning.state.actions import DeclareLost, DoubtSelf, ProbePort
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.reasons import Loss
from appmaster.planning.state.view import ClusterView, EndingContainer, Presence
from standby.shared.model import Fault, Phase
from tests.unit.appmaster.planning.views import (
    FIRST,
    HELD,
    SECOND,
    Change,
    free,
    of_container,
    of_status,
    of_view,
    policy,
    turned,
)

NOW: Final = 200_000

SILENT, NO_STREAM, NEVER_CAME = Loss.SILENT, Loss.NO_STREAM, Loss.NEVER_CAME


def calm(view: ClusterView, *changes: Change) -> ClusterView:
    """Return the view at ``NOW``, with three containers that are heard, and the changes of that."""
    for name in HELD:
        view = of_container(name, since_ms=1_000, heard_ms=NOW)(view)
    timed = policy(heartbeat_timeout_ms=2_000, host_timeout_ms=1_000)
    return turned(replace(view, now_ms=NOW), timed, *changes).view


def lost(view: ClusterView, *changes: Change) -> dict[str, Loss]:
    """Return the containers that count as lost, and why; each may come back."""
    found = list(losses(calm(view, *changes)))
    kinds = {
        each.container: each.reason.kind
        for each in found
        if isinstance(each, DeclareLost) and each.may_return
    }
    assert len(kinds) == len(found)
    return kinds


def silent(ms: int, name: str = "c5", **changes: Any) -> Change:
    """Have a container be silent for so long; one probe of its port has completed."""
    return of_container(name, **{"heard_ms": NOW - ms, "looks": 1, **changes})


def expected(ms: int, name: str = "c5", **changes: Any) -> Change:
    """Have a container be expected for so long; one probe of its port has completed."""
    since = {"presence": Presence.EXPECTED, "since_ms": NOW - ms, "heard_ms": 0}
    return of_container(name, **{**since, "looks": 1, "probed_ms": NOW - 100, **changes})


# ---- a live container, or a broken stream ----

#: Of `silent`: no answer of its host to the last two probes, or to one.
UNANSWERED: Final[Mapping[str, Any]] = {"looks": 2, "unanswered": 2}
ONE_UNANSWERED: Final[Mapping[str, Any]] = {"looks": 2, "unanswered": 1}

LIVE: Mapping[str, tuple[Loss | None, tuple[Change, ...]]] = {
    "it is heard": (None, ()),
    "it is silent within the time-out": (None, (silent(2_000),)),
    "it is silent for longer": (SILENT, (silent(2_001),)),
    "no probe has completed": (None, (silent(2_001, looks=0),)),
    "its host is silent within the time-out": (None, (silent(1_000, **UNANSWERED),)),
    "its host is silent for longer": (SILENT, (silent(1_001, **UNANSWERED),)),
    "it did not answer once": (None, (silent(1_001, **ONE_UNANSWERED),)),
    "it answered before": (None, (silent(1_001, answered_ms=NOW - 1_000, **UNANSWERED),)),
    "its process stands still": (SILENT, (silent(1_001, still_ms=750),)),
    "it stands still within the time-out": (None, (silent(1_000, still_ms=750),)),
    "it has moved lately": (None, (silent(1_001, still_ms=749),)),
    "it waits for its disk": (None, (silent(4_000, at_disk_ms=NOW - 1_000),)),
    "it waits for its disk for longer": (SILENT, (silent(4_001, at_disk_ms=NOW),)),
    "it waits for its disk no more": (SILENT, (silent(2_001, at_disk_ms=NOW - 1_001),)),
    "its host died with its disk": (SILENT, (silent(1_001, at_disk_ms=NOW - 1, **UNANSWERED),)),
    "it was stopped before its disk answered": (SILENT, (silent(1_001, at_disk_ms=NOW, still_ms=750),)),
    "there is no job": (SILENT, (silent(1_001, **UNANSWERED), of_view(jobs={}))),
    "its host may be silent for longer than itself": (
        SILENT,
        (policy(heartbeat_timeout_ms=500, host_timeout_ms=1_000), silent(501)),
    ),
    "its stream broke just now": (
        None,
        (of_container("c5", presence=Presence.BROKEN, since_ms=NOW - 1_000),),
    ),
    "its stream broke": (NO_STREAM, (of_container("c5", presence=Presence.BROKEN, since_ms=NOW - 1_001),)),
    "it is suspected": (None, (silent(2_001, presence=Presence.SUSPECT),)),
}


@pytest.mark.parametrize(("kind", "changes"), LIVE.values(), ids=LIVE)
def test_when_a_container_is_lost(whole: ClusterView, kind: Loss | None, changes: tuple[Change, ...]) -> None:
    assert lost(whole, *changes) == ({} if kind is None else {"c5": kind})


def test_what_is_said_of_a_silent_container(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[bool, str, dict[str, Any]]] = {
        "for how long": (True, "2001 ms", {}),
        "no answer": (True, "not answer", {}),
        "no answer since it was heard": (True, "not answer", {"answered_ms": NOW - 2_001}),
        "nor since it came": (True, "not answer", {"answered_ms": NOW - 9, "since_ms": NOW - 9}),
        "an answer": (False, "not answer", {"answered_ms": NOW - 2_000}),
        "it stands still": (True, "still", {"still_ms": 1}),
        "it may not": (False, "still", {}),
        "it waits for its disk": (True, "disk", {"at_disk_ms": NOW - 1_500, "answered_ms": NOW - 1_500}),
        "it waited for it": (False, "disk", {"at_disk_ms": NOW - 1_500, "answered_ms": NOW}),
        "nobody says any more whether it waits for it": (
            False,
            "disk",
            {"at_disk_ms": NOW - 1_500, "answered_ms": NOW - 1_500, "unanswered": 1},
        ),
    }
    for case, (is_said, word, changes) in cases.items():
        (action,) = losses(calm(whole, silent(2_001, **changes)))
        assert isinstance(action, DeclareLost), case
        assert (word in str(action.reason)) is is_said, case


def without_first(view: ClusterView) -> ClusterView:
    return replace(view, records={SECOND: view.records[SECOND]})


FAILED: Final = (of_container("c5", has_ended=True), of_status(1, FIRST, phase=Phase.FAILED))
FENCED: Final = (of_container("c5", has_ended=True), of_status(1, FIRST, phase=Phase.FENCED))

ENDED: Mapping[str, tuple[Loss | None, tuple[Change, ...]]] = {
    "its replica failed": (Loss.REPLICA_FAILED, FAILED),
    "on poison": (None, (*FAILED, of_status(1, FIRST, fault=Fault.POISON))),
    "it was fenced": (Loss.REPLICA_FENCED, FENCED),
    "by a newer owner": (None, (*FENCED, of_status(1, FIRST, epoch=0))),
    "it is fenced ahead of its record": (Loss.REPLICA_FENCED, (*FENCED, of_status(1, FIRST, epoch=2))),
    "it is not to be there": (None, (*FAILED, of_view(records={}))),
    "only the other is to be there": (
        Loss.REPLICA_FAILED,
        (*FAILED, of_status(1, SECOND, phase=Phase.FAILED), without_first),
    ),
    "another container was heard before": (Loss.REPLICA_FAILED, (*FAILED, silent(100, "c4"))),
    "its stream broke just now": (
        None,
        (*FAILED, of_container("c5", presence=Presence.BROKEN, since_ms=NOW)),
    ),
}


def test_when_a_container_is_given_up(whole: ClusterView) -> None:
    for case, (kind, changes) in ENDED.items():
        assert lost(whole, *changes) == ({} if kind is None else {"c5": kind}), case


# ---- a new leader ----

STARTING: Final = (free("c9", "h4"), expected(5_001, "c9", incarnation=0, looks=0))

EXPECTED: Mapping[str, tuple[dict[str, Loss], tuple[Change, ...]]] = {
    "its process answers": ({}, (expected(5_000, responded_ms=NOW - 2_000),)),
    "it does not answer": ({"c5": SILENT}, (expected(2_001),)),
    "it does not answer any more": ({"c5": SILENT}, (expected(5_000, responded_ms=NOW - 2_001),)),
    "it does not answer within the time-out": ({}, (expected(2_000),)),
    "no probe has completed": ({}, (expected(5_000, looks=0),)),
    "its host does not answer": ({"c5": SILENT}, (expected(1_001, **UNANSWERED),)),
    "nor within the time-out": ({}, (expected(1_000, **UNANSWERED),)),
    "its process stands still": ({"c5": SILENT}, (expected(1_001, still_ms=750),)),
    "it stands still within the time-out": ({}, (expected(1_000, still_ms=750),)),
    "it waits for its disk": ({}, (expected(5_000, responded_ms=NOW - 4_000, at_disk_ms=NOW - 1_000),)),
    "it waits for its disk for longer": ({"c5": SILENT}, (expected(4_001, at_disk_ms=NOW),)),
    "the leader has yet to read": ({}, (expected(2_001), of_view(listening_until_ms=NOW + 1))),
    "it has read": ({"c5": SILENT}, (expected(2_001), of_view(listening_until_ms=NOW))),
    "none answers": ({}, tuple(expected(2_001, name) for name in HELD)),
    "those that it is connected to do not count": (
        {"c4": SILENT},
        (expected(2_001, "c4"), *(silent(500, name, probed_ms=NOW) for name in HELD[1:])),
    ),
    "it answers, but does not come": ({"c5": NEVER_CAME}, (expected(5_001, responded_ms=NOW),)),
    "none comes": (dict.fromkeys(HELD, NEVER_CAME), tuple(expected(5_001, name) for name in HELD)),
    "it is not late where silence may last longer": (
        {},
        (policy(heartbeat_timeout_ms=6_000), expected(6_000)),
    ),
    "it is being launched": ({}, STARTING),
    "its launch takes too long": ({"c9": NEVER_CAME}, (*STARTING, of_container("c9", since_ms=NOW - 90_001))),
    "it has registered": ({"c9": NEVER_CAME}, (*STARTING, of_container("c9", incarnation=9))),
    "a record names it": ({"c5": NEVER_CAME}, (expected(5_001, incarnation=0, looks=0),)),
}


def test_when_a_container_that_a_new_leader_expects_is_lost(whole: ClusterView) -> None:
    for case, (found, changes) in EXPECTED.items():
        assert lost(whole, *changes) == found, case


# ---- the leader's doubt in itself ----


def crowd(*hosts: str, of: int) -> Change:
    """Have that many containers, of which those on ``hosts`` are silent."""

    def change(view: ClusterView) -> ClusterView:
        found = {}
        for each in range(of):
            host = hosts[each] if each < len(hosts) else "h9"
            heard = NOW - 2_001 if each < len(hosts) else NOW
            found[f"c{each}"] = replace(
                view.containers["c4"], id=f"c{each}", host=host, heard_ms=heard, looks=1
            )
        return replace(view, containers=found)

    return change


ALL: Final = crowd("h1", "h1", "h2", of=4)

DOUBTS: Mapping[str, tuple[bool, int, tuple[Change, ...]]] = {
    "most are silent": (True, 0, (crowd("h1", "h2", "h3", of=5),)),
    "on two hosts": (True, 0, (crowd("h1", "h1", "h2", of=5),)),
    "on one host": (False, 3, (crowd("h1", "h1", "h1", of=5),)),
    "two are": (False, 2, (crowd("h1", "h2", of=3),)),
    "half are": (False, 3, (crowd("h1", "h2", "h3", of=6),)),
    "most of the live are": (
        True,
        0,
        (crowd("h1", "h2", "h3", of=6), of_container("c5", presence=Presence.BROKEN, since_ms=NOW)),
    ),
    "one is": (False, 1, (crowd("h1", of=5),)),
    "none is": (False, 0, (crowd(of=5),)),
    "it doubts itself": (False, 0, (ALL, of_view(self_doubt_until_ms=NOW + 1))),
    "it has yet to read": (False, 0, (ALL, of_view(listening_until_ms=NOW + 1))),
    "it has doubted itself": (False, 3, (ALL, of_view(self_doubt_until_ms=NOW))),
    "it has read": (True, 0, (ALL, of_view(listening_until_ms=NOW))),
    "it doubted itself lately": (False, 3, (ALL, of_view(self_doubt_until_ms=NOW - 60_000))),
    "it doubted itself long ago": (True, 0, (ALL, of_view(self_doubt_until_ms=NOW - 60_001))),
}


def test_the_leader_doubts_itself_if_most_containers_fall_silent(whole: ClusterView) -> None:
    for case, (is_doubt, count, changes) in DOUBTS.items():
        view = calm(whole, *changes)
        found = list(losses(view))
        if is_doubt:
            assert found == [
                DoubtSelf(3, sum(each.presence is Presence.LIVE for each in view.containers.values()))
            ], case
        else:
            assert [each.container for each in found if isinstance(each, DeclareLost)] == [
                f"c{n}" for n in range(count)
            ], case
            assert len(found) == count, case


# ---- probes ----


def probed(ago_ms: int, presence: Presence = Presence.LIVE) -> Change:
    return silent(1_000, presence=presence, probed_ms=NOW - ago_ms)


BROKEN, AWAITED = Presence.BROKEN, Presence.EXPECTED
LAST: Final = of_container("c6", presence=BROKEN)


def ending(probed_ms: int, until_ms: int = NOW + 1) -> Change:
    return of_view(ending={"c9": EndingContainer(9, NOW - 900, until_ms, probed_ms)})


PROBES: Mapping[str, tuple[list[str], tuple[Change, ...]]] = {
    "it is heard": ([], ()),
    "it is heard, another is not": (["c6"], (LAST,)),
    "it is silent for a quarter of the time-out": ([], (silent(250),)),
    "it is silent for longer": (["c5"], (silent(251),)),
    "nor is there a job": ([], (of_view(jobs={}), silent(250))),
    "it is silent, and was just probed": ([], (probed(99),)),
    "it is silent, and was probed": (["c5"], (probed(100),)),
    "its stream broke, and it was just probed": ([], (probed(49, BROKEN),)),
    "its stream broke, and it was probed": (["c5"], (probed(50, BROKEN),)),
    "it is expected, and was just probed": ([], (probed(249, AWAITED),)),
    "it is expected, and was probed": (["c5"], (probed(250, AWAITED),)),
    "it was never probed": (["c5"], (of_view(now_ms=9), of_container("c5", presence=BROKEN))),
    "it is being probed": (["c6"], (silent(1_000, is_probing=True), LAST)),
    "its registration is not known": (["c6"], (silent(1_000, incarnation=0), LAST)),
    "it is suspected": (["c6"], (silent(1_000, presence=Presence.SUSPECT), LAST)),
    "it was given back": (["c9"], (ending(NOW - 50),)),
    "it was given back, and just probed": ([], (ending(NOW - 49),)),
    "it was given back, has come again and is silent": (
        ["c9"],
        (ending(NOW - 50), free("c9", "h4"), of_container("c9", heard_ms=NOW - 1_999)),
    ),
    "the same, and just probed": (
        [],
        (ending(NOW - 49), free("c9", "h4"), of_container("c9", heard_ms=NOW - 1_999)),
    ),
    "it counts as dead": ([], (ending(NOW - 50, NOW),)),
}


@pytest.mark.parametrize(("names", "changes"), PROBES.values(), ids=PROBES)
def test_which_ports_are_probed(whole: ClusterView, names: list[str], changes: tuple[Change, ...]) -> None:
    found = list(probes(calm(whole, *changes)))
    assert [each.container for each in found if isinstance(each, ProbePort)] == names


# ---- whose policy ----

OTHER: Final = PlannerPolicy(heartbeat_timeout_ms=7_000)


def with_first(view: ClusterView) -> ClusterView:
    job = view.jobs["job"]
    return replace(view, jobs={"first": replace(job, name="first", policy=OTHER), "job": job})


def test_the_policy_that_applies_to_a_container(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[int, str, Change]] = {
        "its job's": (2_000, "c5", with_first),
        "the first job's": (7_000, "c9", with_first),
        "the usual one": (PlannerPolicy().heartbeat_timeout_ms, "c9", of_view(jobs={})),
    }
    for case, (timeout_ms, name, changes) in cases.items():
        view = calm(whole, free("c9", "h4", None), changes)
        assert policy_of(view, view.containers[name]).heartbeat_timeout_ms == timeout_ms, case
