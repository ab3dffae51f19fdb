"""How the spread of a job's actives is told, and why it is not even."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from appmaster.planning.jobs.spreading import in_words, is_changing, spread_of
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.reasons import HandoverMotive, Loss, Reason
from appmaster.planning.state.view import ClusterView, Failover, Handover, Rebalancing
from standby.shared.model import ProcessorId
from tests.unit.appmaster.planning.views import (
    ON,
    PROCESSORS,
    TASKS,
    Change,
    changed,
    of_job,
    of_records,
    of_view,
)

OTHER: Final = ProcessorId("other", "main", 0)


def crowded(view: ClusterView) -> ClusterView:
    """Have the actives of processors 0 and 1 be on h1, so that it has two, and h4 none."""
    return of_records(*TASKS[1], placed={0: ON["h1"], 1: ON["h5"]})(view)


def known(**more: Any) -> Change:
    return of_view(rebalancing={"job": Rebalancing(**more)})


def manual(view: ClusterView) -> ClusterView:
    return of_job(policy=PlannerPolicy(rebalance="manual"))(view)


def fails_over(to: str, of: ProcessorId = PROCESSORS[0]) -> Change:
    return of_view(failovers={of: Failover(of, "c1", Loss.SILENT, 1, to, 0)})


def hands_over(of: ProcessorId = PROCESSORS[0]) -> Change:
    return of_view(handovers={of: Handover(1, ON["h4"], 0, Reason(HandoverMotive.ASKED))})


@pytest.mark.parametrize(
    ("is_so", "change"),
    [
        pytest.param(False, of_view(), id="nothing"),
        pytest.param(True, hands_over(), id="a hand-over"),
        pytest.param(False, hands_over(OTHER), id="another job's"),
        pytest.param(True, fails_over(ON["h4"]), id="a failover"),
        pytest.param(False, fails_over("gone"), id="one to a container that is lost"),
        pytest.param(False, fails_over(ON["h4"], OTHER), id="another job's failover"),
    ],
)
def test_when_an_active_is_changing(three: ClusterView, change: Change, *, is_so: bool) -> None:
    view = changed(three, change)
    assert is_changing(view, view.jobs["job"]) is is_so


#: Of three processors, six hand-overs are the most.
SPENT: Final = {"moves": 6}
NOW: Final = 100_000

WHY: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "it is even": ("", (of_records(*TASKS[1], placed={0: ON["h2"], 1: ON["h5"]}),)),
    "the job has ended": ("", (of_job(is_wanted=False),)),
    "too many": ("not even after 6 hand-overs", (known(**SPENT),)),
    "nearly too many": ("waits for a standby", (known(moves=5, whole_ms=0),)),
    "it is not to be spread": ("job.locality.rebalance is manual", (manual,)),
    "it was asked for": ("waits for a standby", (manual, known(is_asked=True))),
    "one is under way": ("waits for the end of a hand-over", (hands_over(),)),
    "one is under way, of another job": ("waits for the end of a hand-over", (hands_over(OTHER),)),
    "a copy is not in place": ("waits until every copy is in place", (known(),)),
    "a copy is not in place, and it was asked for": ("waits for a standby", (known(is_asked=True),)),
    "nothing is known to wait for": ("waits for a standby", (of_view(rebalancing={}),)),
    "it pauses": ("pauses before", (known(whole_ms=NOW - 9_999),)),
    "it has paused": ("waits for a standby", (known(whole_ms=NOW - 10_000),)),
    "it was asked for, and does not pause": (
        "waits for a standby",
        (known(whole_ms=NOW - 1, is_asked=True),),
    ),
    "an operator chose the actives": (
        "actives stay where",
        (known(whole_ms=0), *(of_records(*each, is_chosen=True) for each in TASKS)),
    ),
    "an operator chose them, and asked for it": (
        "waits for a standby",
        (known(is_asked=True), *(of_records(*each, is_chosen=True) for each in TASKS)),
    ),
}


@pytest.mark.parametrize(("why", "changes"), WHY.values(), ids=WHY)
def test_why_a_spread_is_not_even(three: ClusterView, why: str, changes: tuple[Change, ...]) -> None:
    view = changed(three, of_view(now_ms=NOW), crowded, *changes)
    found = spread_of(view, view.jobs["job"])
    assert found.why.startswith(why)
    assert bool(found.why) is bool(why)
    assert found.is_even is (why == "" and view.jobs["job"].is_led)


def test_one_that_changes_is_not_even(three: ClusterView) -> None:
    assert spread_of(three, three.jobs["job"]).is_even
    assert not spread_of(changed(three, hands_over()), three.jobs["job"]).is_even


@pytest.mark.parametrize(
    ("is_so", "change"),
    [
        (True, known(is_asked=True)),
        (False, known(is_asked=True, **SPENT)),
        (False, known()),
        (False, of_view(rebalancing={})),
    ],
)
def test_whether_an_even_spread_was_asked_for(three: ClusterView, change: Change, *, is_so: bool) -> None:
    view = changed(three, change)
    assert spread_of(view, view.jobs["job"]).is_asked is is_so


def test_the_actives_of_each_host_are_told(three: ClusterView) -> None:
    found = spread_of(changed(three, crowded), three.jobs["job"]).hosts
    assert found == {"h1": 2, "h3": 1, "h4": 0, "h5": 0, "h6": 0}
    assert in_words(found) == "h1 2, h3 1, h4 0, h5 0, h6 0"
    assert in_words({"h2": 1, "h1": 1, "h3": 2}) == "h3 2, h1 1, h2 1"
    assert in_words({}) == "none"
