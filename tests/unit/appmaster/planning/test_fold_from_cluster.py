"""What the view learns from YARN, from the containers, and from their connections, in any order and twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appmaster.planning.fold.apply import apply
from appmaster.planning.state import events as happened
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.model import Slot, SpareSlotId
from appmaster.planning.state.reasons import Loss, Setback, SetbackKind
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    Container,
    ContainerRequest,
    EndingContainer,
    LostActive,
    Presence,
    ReplicaProgress,
    RequestKind,
    RequestState,
    Trouble,
    TroubleKind,
)
from standby.shared.exits import ProcessEnd
from standby.shared.model import (
    Leftover,
    NodeOffer,
    Phase,
    ProcessorId,
    ReplicaId,
    ReplicaStatus,
    Role,
    SlotId,
)
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    MIXED,
    PROCESSOR,
    SECOND,
    SLOT,
    Change,
    changed,
    free,
    of_container,
    of_holder,
    of_view,
    policy,
    suspected,
    unchanged,
    without_container,
)

AT_MS = 12_000
OTHER = ANOTHER.processor
OFFER = NodeOffer(tasks=4)
SPARE = SpareSlotId("job", 0)
#: A slot that has no container.
VACANT = SlotId(PROCESSOR, 3)


def awaited(**changes: Any) -> Change:
    """Have a container be requested, which is to come under the id "s_c9", and another for another slot."""
    request = ContainerRequest(
        4, VACANT, "h4", RequestKind.NAMED, RequestState.WAITING, 500, "s_c9", offer=OFFER
    )
    rest = ContainerRequest(5, ANOTHER, None, RequestKind.ANY, RequestState.ASKING, 500)
    return of_view(requests={4: replace(request, **changes), 5: rest})


def registers(container: str = "c9", **changes: Any) -> happened.ContainerRegistered:
    """Return the first message of a container without replicas."""
    event = happened.ContainerRegistered(
        container, f"s_{container}", 9, "h4", 77, 88, (), (), AT_MS, {"job": 1}, 2, "first"
    )
    return replace(event, **changes)


# ---- requests ----


def test_a_request_that_was_accepted_waits_under_its_id(whole: ClusterView) -> None:
    view = awaited(skein_id="", state=RequestState.ASKING)(whole)
    after = apply(view, happened.RequestPlaced(4, "s_7"))
    assert after.requests == {
        **view.requests,
        4: replace(view.requests[4], skein_id="s_7", state=RequestState.WAITING),
    }


def test_a_slot_waits_after_a_request_that_was_refused_and_spends_no_budget(whole: ClusterView) -> None:
    after = apply(awaited()(whole), happened.RequestRefused(4, "queue full", AT_MS))
    assert after.requests.keys() == {5}
    last = Setback(SetbackKind.REFUSED, "h4", detail="queue full")
    assert after.attempts == {VACANT: Attempts((), AT_MS + 500, 1, last)}


def test_no_standby_is_displaced_after_a_reservation_in_vain(whole: ClusterView) -> None:
    """Nor does the displaced one wait for it any more."""
    view = changed(
        whole, policy(samehost_timeout_ms=0, request_timeout_ms=600), awaited(kind=RequestKind.RESERVATION)
    )
    cases: Mapping[str, happened.Event] = {
        "refused": happened.RequestRefused(4, "no such host", AT_MS),
        "ended at launch": happened.ContainerCompleted("s_c9", "exit 1", AT_MS),
        "ended before it connected": happened.ContainerUnregistered("c9", AT_MS, "s_c9"),
    }
    for case, event in cases.items():
        after = apply(view, event)
        assert after.requests.keys() == {5}, case
        assert after.no_displacing == {VACANT.processor: AT_MS + 2_400}, case


def test_a_granted_request_waits_for_its_container_from_then_on(whole: ClusterView) -> None:
    view = awaited(offer=None)(whole)
    after = apply(view, happened.ContainerGranted("s_c9", AT_MS, OFFER))
    granted = replace(view.requests[4], state=RequestState.GRANTED, since_ms=AT_MS, offer=OFFER)
    assert after.requests == {**view.requests, 4: granted}


def test_a_container_that_came_before_its_grant_is_given_its_offer(whole: ClusterView) -> None:
    view = free("c9", "h4")(whole)
    after = apply(view, happened.ContainerGranted("s_c9", AT_MS, OFFER))
    assert after.containers == {**view.containers, "c9": replace(view.containers["c9"], offer=OFFER)}


#: News that comes too late, or twice.
LATE: Mapping[str, tuple[Change, happened.Event]] = {
    "accepted, but withdrawn": (unchanged, happened.RequestPlaced(4, "s_7")),
    "refused, but withdrawn": (unchanged, happened.RequestRefused(4, "queue full", AT_MS)),
    "granted, but withdrawn": (unchanged, happened.ContainerGranted("s_c9", AT_MS, OFFER)),
    "granted, and has connected": (free("c9", "h4"), happened.ContainerGranted("s_c9", AT_MS)),
    "granted again": (awaited(state=RequestState.GRANTED), happened.ContainerGranted("s_c9", AT_MS)),
    "completed, and gone": (unchanged, happened.ContainerCompleted("s_c9", "exit 1", AT_MS)),
    "unregistered, and gone": (unchanged, happened.ContainerUnregistered("c9", AT_MS, "s_c9")),
    "expected, and has connected": (unchanged, happened.ContainerExpected("c5", "s_c5", AT_MS)),
    "registered, of an earlier incarnation": (unchanged, registers("c5", incarnation=4)),
    "a heartbeat of an earlier incarnation": (unchanged, happened.HeartbeatReceived("c5", 4, AT_MS)),
    "a report of an earlier incarnation": (
        unchanged,
        happened.ReportReceived("c5", 4, 7, (), True, 0, AT_MS),
    ),
    "a report, but gone": (unchanged, happened.ReportReceived("c9", 9, 7, (), True, 0, AT_MS)),
    "a broken stream of an earlier incarnation": (unchanged, happened.ContainerStreamBroken("c5", 4, AT_MS)),
    "a broken stream, but gone": (unchanged, happened.ContainerStreamBroken("c9", 9, AT_MS)),
    "a broken stream, but lost": (suspected(1), happened.ContainerStreamBroken("c5", 5, AT_MS)),
    "a probe of an earlier incarnation": (unchanged, happened.PortProbed("c5", 4, False, AT_MS)),
    "a probe, but gone": (unchanged, happened.PortProbed("c9", 9, False, AT_MS)),
    "a probe, but lost": (suspected(1), happened.PortProbed("c5", 5, False, AT_MS)),
}


def test_late_news_changes_nothing(whole: ClusterView) -> None:
    for case, (change, event) in LATE.items():
        view = change(whole)
        assert apply(view, event) is view, case


def test_a_container_that_ended_at_launch(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[str | None, bool, tuple[int, ...], set[str]]] = {
        "by itself": ("h4", False, (AT_MS,), {"h4"}),
        "from outside": ("h4", True, (), {"h4"}),
        "on any host": (None, False, (AT_MS,), set()),
    }
    for case, (host, is_from_outside, failures, avoided) in cases.items():
        event = happened.ContainerCompleted("s_c9", "exit 1", AT_MS, is_from_outside)
        after = apply(awaited(host=host)(whole), event)
        assert after.requests.keys() == {5}, case
        last = Setback(SetbackKind.AT_LAUNCH, host, detail="exit 1")
        assert after.attempts == {VACANT: Attempts(failures, AT_MS + 500, 1, last)}, case
        assert after.avoided.keys() == avoided, case


def test_a_container_that_yarn_says_has_ended_is_lost_and_gone(whole: ClusterView) -> None:
    skein_id = whole.containers["c4"].skein_id
    after = apply(whole, happened.ContainerCompleted(skein_id, "exit 137", AT_MS))
    assert after.containers.keys() == {"c5", "c6"}
    assert after.lost_actives == {PROCESSOR: LostActive("c4", Loss.YARN_COMPLETED, AT_MS, 1)}


# ---- the end of a session ----

#: Whether the container is there afterwards, and whether its active is missed.
UNREGISTERED: Mapping[str, tuple[bool, bool, str, Change]] = {
    "it has a stream": (True, False, "s_4", unchanged),
    "its port is probed": (True, False, "s_4", of_holder(0, presence=Presence.BROKEN)),
    "it is expected, and YARN reports its end": (True, True, "", of_holder(0, presence=Presence.EXPECTED)),
    "it is expected in a pool": (False, True, "s_4", of_holder(0, presence=Presence.EXPECTED)),
    "it is lost already, and YARN reports its end": (True, False, "", suspected(0)),
    "it is lost already in a pool": (False, False, "s_4", suspected(0)),
}


def test_when_the_end_of_its_session_ends_a_container(whole: ClusterView) -> None:
    for case, (stays, is_missed, skein_id, change) in UNREGISTERED.items():
        after = apply(change(whole), happened.ContainerUnregistered("c4", AT_MS, skein_id))
        assert ("c4" in after.containers) is stays, case
        missed = LostActive("c4", Loss.UNREGISTERED, AT_MS, 1)
        assert after.lost_actives == ({PROCESSOR: missed} if is_missed else {}), case


def test_a_process_whose_session_ends_before_it_connects_spends_no_budget(whole: ClusterView) -> None:
    after = apply(awaited()(whole), happened.ContainerUnregistered("c9", AT_MS, "s_c9"))
    assert after.requests.keys() == {5}
    last = Setback(SetbackKind.AT_LAUNCH, detail="the session of c9 ended")
    assert after.attempts == {VACANT: Attempts((), AT_MS + 500, 1, last)}


# ---- containers of a former leader ----


def test_a_container_of_a_former_leader_is_expected(whole: ClusterView) -> None:
    event = happened.ContainerExpected("c9", "s_c9", AT_MS, 2, "first", "h4", 9, OFFER)
    expected = Container(
        "c9",
        "s_c9",
        Presence.EXPECTED,
        AT_MS,
        2,
        "first",
        host="h4",
        incarnation=9,
        heard_ms=AT_MS,
        offer=OFFER,
    )
    view = apply(whole, event)
    assert view.containers == {**whole.containers, "c9": expected}
    assert not view.unsettled


def test_what_an_expected_process_of_a_pool_offers_is_known_once_the_pool_has_been_read(
    whole: ClusterView,
) -> None:
    """Its registration, from which it may be known before, does not say it."""
    event = happened.ContainerExpected("c9", "s_c9", AT_MS, 2, "first", "h4", 9)
    view = apply(whole, event)
    after = apply(view, replace(event, offer=OFFER))
    assert after.containers == {**view.containers, "c9": replace(view.containers["c9"], offer=OFFER)}
    assert apply(after, replace(event, offer=NodeOffer())) is after


def test_an_expected_container_is_where_its_tasks_are_recorded(whole: ClusterView) -> None:
    view = apply(without_container(1)(whole), happened.ContainerExpected("c5", "s_c5", AT_MS))
    assert view.containers["c5"].host == "h2"
    assert view.unsettled == {PROCESSOR}


# ---- a container connects ----


def test_a_requested_container_is_known_as_it_describes_itself(whole: ClusterView) -> None:
    status = ReplicaStatus(ReplicaId(FIRST, 3), Role.STANDBY, Phase.TAILING, 7, lag_ms=0, input_lag_ms=60_000)
    left = Leftover(SECOND, "run1", 8, 700)
    view = awaited()(whole)
    after = apply(view, registers(replicas=(status,), leftovers=(left,)))
    known = Container(
        "c9",
        "s_c9",
        Presence.LIVE,
        AT_MS,
        2,
        "first",
        host="h4",
        incarnation=9,
        pid=77,
        http_port=88,
        heard_ms=AT_MS,
        slot=VACANT,
        revisions={"job": 1},
        statuses={status.replica: status},
        standing={status.replica: ReplicaProgress(True, 0, (), AT_MS)},
        troubles=(Trouble(status.replica, TroubleKind.BEHIND),),
        leftovers=(left,),
        offer=OFFER,
    )
    assert after.containers == {**view.containers, "c9": known}
    assert after.requests.keys() == {5}
    assert after.ahead == {FIRST: 7}


def test_a_container_whose_replica_failed_has_ended(whole: ClusterView) -> None:
    for phase, has_ended in ((Phase.FAILED, True), (Phase.FENCED, True), (Phase.CLOSED, False)):
        status = ReplicaStatus(ReplicaId(FIRST, 3), Role.ACTIVE, phase, 1)
        after = apply(whole, registers(replicas=(status,)))
        assert after.containers["c9"].has_ended is has_ended, phase


def test_a_container_that_connects_again_keeps_what_it_does_not_tell(whole: ClusterView) -> None:
    before = {
        "slot": VACANT,
        "binding": "1-9",
        "is_warm": True,
        "is_leaving": True,
        "offer": OFFER,
        "troubles": (Trouble(ReplicaId(FIRST, 1), TroubleKind.BEHIND),),
    }
    view = of_holder(1, **before)(whole)
    status = replace(view.containers["c5"].statuses[ReplicaId(FIRST, 1)], input_lag_ms=20_000)
    again = registers("c5", incarnation=view.containers["c5"].incarnation, replicas=(status,))
    after = apply(view, again)
    assert {key: getattr(after.containers["c5"], key) for key in before} == before
    assert after.arrived_ms == whole.arrived_ms


def of_cell(state: CellState) -> Change:
    return of_view(cells={2: Cell(2, "first", (), state, 0)})


PRESENCES: Mapping[str, tuple[Presence, tuple[Change, ...]]] = {
    "no leader requested it": (Presence.ORPHAN, ()),
    "it was requested": (Presence.LIVE, (awaited(),)),
    "it was expected": (Presence.LIVE, (free("c9", "h4", presence=Presence.EXPECTED),)),
    "it was lost": (Presence.LIVE, (free("c9", "h4", presence=Presence.SUSPECT),)),
    "it was told to exit": (Presence.LEAVING, (free("c9", "h4", presence=Presence.LEAVING),)),
    "it was an orphan": (Presence.ORPHAN, (free("c9", "h4", presence=Presence.ORPHAN),)),
    "its cell is silent": (Presence.LIVE, (of_cell(CellState.LOST),)),
    "its cell is silent, and it was lost": (
        Presence.ORPHAN,
        (of_cell(CellState.LOST), of_view(logged_lost=frozenset({"c9"}))),
    ),
    "its cell answers": (Presence.ORPHAN, (of_cell(CellState.UP),)),
}


def test_whether_a_container_that_connects_is_used(whole: ClusterView) -> None:
    """What was lost with a container that is used is not missed any more."""
    for case, (presence, changes) in PRESENCES.items():
        missed, other = LostActive("c9", Loss.SILENT, 500), LostActive("c8", Loss.SILENT, 500)
        view = changed(whole, of_view(lost_actives={PROCESSOR: missed, OTHER: other}), *changes)
        after = apply(view, registers())
        assert after.containers["c9"].presence is presence, case
        still = {} if presence is Presence.LIVE else {PROCESSOR: missed}
        assert after.lost_actives == {**still, OTHER: other}, case


def test_when_a_container_of_a_job_has_arrived(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[Mapping[str, int], tuple[Change, ...], Mapping[str, int], set[ProcessorId]]] = {
        "a new one": ({"job": 1}, (), {"job": AT_MS}, set()),
        "a new one of a mixed job": ({"job": 1}, (MIXED,), {"job": AT_MS}, {PROCESSOR}),
        "of no known job": ({}, (), {}, set()),
        "a known one": ({"job": 1}, (free("c9", "h4"),), {}, set()),
    }
    for case, (revisions, changes, arrived, unsettled) in cases.items():
        view = changed(whole, of_view(arrived_ms={}), *changes)
        after = apply(view, registers(revisions=revisions))
        assert after.arrived_ms == arrived, case
        assert after.unsettled == unsettled, case


#: A container of an earlier leader, which requested it for a slot that is not known.
EXPECTED = free("c9", "h4", None, presence=Presence.EXPECTED)
STATUS = ReplicaStatus(ReplicaId(FIRST, 3), Role.STANDBY, Phase.CLOSING, 1)

SPARES: Mapping[str, tuple[Slot | None, int, Mapping[str, Any], tuple[Change, ...]]] = {
    "the job has a spare one": (SPARE, 1, {}, (EXPECTED,)),
    "the job has none": (None, 0, {}, (EXPECTED,)),
    "another is the spare one": (None, 1, {}, (EXPECTED, free("c8", "h4", SPARE))),
    "another was requested as the spare one": (None, 1, {}, (EXPECTED, awaited(slot=SPARE, skein_id="s_8"))),
    "there may be two": (
        SpareSlotId("job", 2),
        3,
        {},
        (EXPECTED, free("c8", "h4", SPARE), awaited(slot=SpareSlotId("job", 1), skein_id="s_8")),
    ),
    "it has a replica": (None, 1, {"replicas": (STATUS,)}, (EXPECTED,)),
    "it is recorded to have one": (None, 1, {}, (EXPECTED, of_view(assigned={"c9": {FIRST: 3}}))),
    "it knows an older job, too": (SPARE, 1, {"revisions": {"gone": 1, "job": 1}}, (EXPECTED,)),
    "it knows no job": (None, 1, {"revisions": {}}, (EXPECTED,)),
    "its slot is known": (VACANT, 1, {}, (free("c9", "h4", VACANT),)),
    "it is being given tasks": (None, 1, {}, (EXPECTED, of_container("c9", binding="1-9"))),
    "it is not used": (None, 1, {}, ()),
}


def test_whether_an_empty_container_of_a_former_leader_is_a_spare_one(whole: ClusterView) -> None:
    for case, (slot, count, told, changes) in SPARES.items():
        view = changed(whole, policy(spare_count=count), *changes)
        assert apply(view, registers(**told)).containers["c9"].slot == slot, case


# ---- connections ----


def test_the_port_of_a_container_is_probed_anew_once_its_stream_broke(whole: ClusterView) -> None:
    view = of_holder(1, is_probing=True, probed_ms=700)(whole)
    after = apply(view, happened.ContainerStreamBroken("c5", 5, AT_MS))
    assert after.containers["c5"] == replace(
        view.containers["c5"], presence=Presence.BROKEN, since_ms=AT_MS, is_probing=False, probed_ms=0
    )
    assert after.unsettled == {PROCESSOR}


def test_an_orphan_is_gone_with_its_stream(whole: ClusterView) -> None:
    """Nothing else would report its end: this leader knows of no grant for it."""
    view = changed(whole, free("c9", "h4", presence=Presence.ORPHAN), of_container("c9", skein_id=""))
    after = apply(view, happened.ContainerStreamBroken("c9", 9, AT_MS))
    assert after.containers == whole.containers


#: The end that its witness reports, and why the container is lost.
REFUSING: Mapping[str, tuple[ProcessEnd | None, Loss, int, Change]] = {
    "it is live": (None, Loss.PORT_REFUSED, 800, unchanged),
    "its stream broke": (None, Loss.PORT_REFUSED, 700, of_holder(0, presence=Presence.BROKEN)),
    "it is expected": (None, Loss.PORT_REFUSED, 700, of_holder(0, presence=Presence.EXPECTED)),
    "its witness saw the end": (ProcessEnd(-11), Loss.PROCESS_ENDED, 800, unchanged),
}


def test_a_container_whose_port_refuses_is_dead(whole: ClusterView) -> None:
    for case, (end, loss, lost_ms, change) in REFUSING.items():
        view = changed(whole, of_holder(0, since_ms=700, heard_ms=800), change)
        after = apply(view, happened.PortProbed("c4", 4, accepts=False, at_ms=AT_MS, end=end))
        assert after.containers.keys() == {"c5", "c6"}, case
        assert after.lost_actives == {PROCESSOR: LostActive("c4", loss, lost_ms, 1)}, case
        failures = () if end is None else (AT_MS,)
        assert after.attempts[SLOT].failures_ms == failures, case


#: What is known, what the probe shows, and what is known then. The container was last heard at 1000.
LOOKS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
    "it answers": (
        {"looks": 2, "unanswered": 1},
        {},
        {"looks": 3, "unanswered": 0, "answered_ms": AT_MS, "responded_ms": AT_MS},
    ),
    "only its host answers": (
        {"looks": 2, "unanswered": 1},
        {"is_running": False},
        {"looks": 3, "unanswered": 0, "answered_ms": AT_MS},
    ),
    "its host answered when the probe began": (
        {"looks": 2, "unanswered": 1},
        {"is_running": False, "waited_ms": 500},
        {"looks": 3, "unanswered": 0, "answered_ms": AT_MS - 500},
    ),
    "nothing answers": (
        {"looks": 2, "unanswered": 1, "still_since_ms": 1_200, "still_ms": 300},
        {"is_answered": False},
        {"looks": 3, "unanswered": 2, "still_since_ms": 0, "still_ms": 0},
    ),
    "it stands still": (
        {},
        {"is_running": False, "is_still": True},
        {"looks": 1, "answered_ms": AT_MS, "still_since_ms": AT_MS, "still_ms": 0},
    ),
    "it still stands still": (
        {"still_since_ms": 1_200},
        {"is_running": False, "is_still": True},
        {"looks": 1, "answered_ms": AT_MS, "still_since_ms": 1_200, "still_ms": 300},
    ),
    "it waits for its disk": (
        {"still_since_ms": 1_200, "still_ms": 300},
        {"is_running": False, "waits_for_disk": True},
        {"looks": 1, "answered_ms": AT_MS, "still_since_ms": 0, "still_ms": 0, "at_disk_ms": AT_MS},
    ),
    "it was heard when the probe began": (
        {"probed_ms": 1_000},
        {"is_running": False},
        {"looks": 1, "answered_ms": AT_MS},
    ),
    "it was heard after the probe began": (
        {"probed_ms": 999, "looks": 2, "unanswered": 1, "still_since_ms": 900},
        {"is_running": False, "is_still": True, "waits_for_disk": True},
        {"answered_ms": AT_MS},
    ),
}


def test_what_a_probe_of_an_open_port_shows(whole: ClusterView) -> None:
    for case, (before, probe, after) in LOOKS.items():
        known = {"heard_ms": 1_000, "probed_ms": 1_500, "is_probing": True, **before}
        view = of_holder(1, **known)(whole)
        seen = apply(view, happened.PortProbed("c5", 5, accepts=True, at_ms=AT_MS, **probe))
        assert seen.containers["c5"] == replace(view.containers["c5"], is_probing=False, **after), case


def test_a_container_that_was_given_back_is_dead_once_its_port_refuses(whole: ClusterView) -> None:
    ending = {"c5": EndingContainer(5, 500, 20_000)}
    view = changed(whole, without_container(1), of_view(ending=ending))
    for container, accepts, is_dead in (("c5", False, True), ("c5", True, False), ("c8", False, False)):
        after = apply(view, happened.PortProbed(container, 5, accepts, AT_MS))
        assert after.ending == ({} if is_dead else ending), (container, accepts)
        assert after.unsettled == ({PROCESSOR} if is_dead else set()), (container, accepts)
