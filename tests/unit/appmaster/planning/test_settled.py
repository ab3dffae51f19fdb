"""When the planner leaves a processor alone until something happens: when it needs nothing and waits for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.placement.fault_domains import Relocation
from appmaster.planning.placement.turn import Turn
from appmaster.planning.rules.deploy import is_settled, is_whole, writes
from appmaster.planning.state.actions import Settle
from appmaster.planning.state.reasons import HandoverMotive, Loss, Reason
from appmaster.planning.state.view import (
    ClusterView,
    Handover,
    LostActive,
    Presence,
)
from standby.shared.model import InputFailures, Phase, ProcessorId, Role, SlotId
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.views import (
    FIRST,
    PARKED,
    PROCESSOR,
    SECOND,
    Change,
    drained,
    holder_of,
    in_racks,
    of_holder,
    of_job,
    of_model,
    of_records,
    of_status,
    of_view,
    parts,
    placed,
    requested,
    without_container,
)


def settled(view: ClusterView) -> bool:
    turn, job = Turn(view), view.jobs["job"]
    cohorts = turn.cohorts(job, PROCESSOR)
    assert cohorts is not None
    return is_settled(turn, job, PROCESSOR, cohorts)


def without_status(view: ClusterView) -> ClusterView:
    statuses: Mapping[Any, Any] = holder_of(view, 1).statuses
    return of_holder(1, statuses={each: found for each, found in statuses.items() if each.task != SECOND})(
        view
    )


UNSETTLED: Mapping[str, Change] = {
    "the job is over soon": of_job(is_wanted=False),
    "its tasks are placed apart": of_records(SECOND, placed={0: "c4"}),
    "a hand-over is prepared": of_view(
        handovers={PROCESSOR: Handover(1, "c5", 0, Reason(HandoverMotive.UPGRADE))}
    ),
    "an active was lost": of_view(lost_actives={PROCESSOR: LostActive("c4", Loss.SILENT, 0)}),
    "a copy moves": of_records(FIRST, SECOND, moving={1: "c9"}),
    "a standby is displaced": of_records(FIRST, SECOND, displaced=1),
    "a copy is not placed": placed({}, without=1),
    "a copy is placed that there should not be": placed({3: "c9"}),
    "a container is requested for it": requested(SlotId(PROCESSOR, 1), "h3"),
    "its container is gone": without_container(1),
    "its container is suspected": of_holder(1, presence=Presence.SUSPECT),
    "a replica there has ended": of_holder(1, has_ended=True),
    "an assignment is not applied": of_holder(1, sent=9, applied=8),
    "a container has an older revision": of_holder(1, revisions={"job": 0}),
    "its copies share a rack, and need not": in_racks(h1="/a", h2="/a", h3="/a", h4="/b"),
    "a host is drained": lambda view: drained(holder_of(view, 0).host)(view),
    "a task is not reported": without_status,
    "the active is a standby yet": of_status(0, SECOND, role=Role.STANDBY, phase=Phase.TAILING),
    "the active is not active yet": of_status(0, SECOND, phase=Phase.CLAIMING),
    "the standby is active still": of_status(1, SECOND, role=Role.ACTIVE, phase=Phase.ACTIVE),
    "the standby restores": of_status(1, SECOND, phase=Phase.RESTORING),
    "a task was never claimed": of_records(SECOND, claimed=False),
    "a copy is not in sync": of_records(SECOND, in_sync=(0, 2)),
    "a task's code has failed": of_records(SECOND, failures=InputFailures(7, 1)),
}


@pytest.mark.parametrize("change", UNSETTLED.values(), ids=UNSETTLED.keys())
def test_a_processor_is_looked_at_as_long_as(whole: ClusterView, change: Change) -> None:
    assert settled(whole)
    assert not settled(change(whole))


def test_a_copy_for_which_there_is_a_better_location_is_where_it_should_be(whole: ClusterView) -> None:
    """Spare containers do not wait for it; the processor is looked at until it has moved."""
    turn, cohorts = parts(whole)
    turn.relocations = {PROCESSOR: Relocation(1, frozenset(), "shares its host")}
    job = turn.view.jobs["job"]
    assert is_whole(turn, job, PROCESSOR, cohorts)
    assert not is_settled(turn, job, PROCESSOR, cohorts)


def test_the_processors_of_a_mixed_job_are_looked_at_until_it_has_given_up_its_surplus_container(
    mixed: ClusterView,
) -> None:
    assert settled(mixed)
    assert not settled(of_model(containers=2)(mixed))


def test_a_parked_processor_waits_for_nothing_but_an_operator(whole: ClusterView) -> None:
    assert settled(PARKED(UNSETTLED["a copy is not placed"](whole)))
    assert not settled(PARKED(UNSETTLED["the job is over soon"](whole)))


def test_a_request_for_another_processor_is_no_reason(whole: ClusterView) -> None:
    assert settled(requested(SlotId(ProcessorId("job", "main", 1), 1), "h3")(whole))


def test_a_processor_whose_record_is_being_written_holds_up_no_other() -> None:
    view = deployed(tasks=2, containers=2).view
    first, second = view.jobs["job"].model.processors
    view = replace(view, unsettled=frozenset((first, second)), writing={FIRST: "1-9"})
    assert list(writes(Turn(view))) == [Settle((second,))]
