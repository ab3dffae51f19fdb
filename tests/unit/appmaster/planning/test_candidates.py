"""Which copy takes over: the order of docs/failover.md."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from appmaster.planning.placement.turn import Turn
from appmaster.planning.rules.failover import promote, slowness
from appmaster.planning.state.reasons import Loss
from appmaster.planning.state.view import ClusterView, LostActive
from standby.shared.model import ProcessorId
from tests.fakes.yarn import deployed


@dataclass(frozen=True)
class Candidate:
    """A copy that could take over, as good as can be but for what is said."""

    in_sync: bool = True
    leaves: bool = False
    """Its host is drained."""
    is_beside: bool = False
    """In the cell of the active that was lost."""
    actives: int = 0
    start_ms: int | None = 100
    lag: int | None = 0
    is_warm: bool = True


BEHIND = Candidate(in_sync=False)

#: The better of two, which is worse in all that comes later, and the other.
CANDIDATES = {
    "in sync": (Candidate(True, True, True, 9, 60_000, 10**6), BEHIND),
    "may stay": (Candidate(True, False, True, 9, 60_000, 10**6), Candidate(leaves=True)),
    "in another cell": (Candidate(actives=9, start_ms=60_000, lag=10**6), Candidate(is_beside=True)),
    "fewest actives": (Candidate(start_ms=60_000, lag=10**6), Candidate(actives=1)),
    "shortest start": (Candidate(lag=10**6), Candidate(start_ms=500)),
    "start of one class": (Candidate(start_ms=999), Candidate(start_ms=500, lag=1)),
    "start that is known": (Candidate(start_ms=10**9, lag=9), Candidate(start_ms=None)),
    "smallest lag": (Candidate(), Candidate(lag=1)),
    "smallest lag, cold or not": (Candidate(is_warm=False), Candidate(lag=1)),
    "lag that is known": (Candidate(lag=10**9), Candidate(lag=None)),
    "behind, in another cell": (replace(BEHIND, lag=10**6), replace(BEHIND, is_beside=True)),
    "behind, smallest lag": (
        replace(BEHIND, leaves=True, actives=9, start_ms=60_000),
        replace(BEHIND, lag=1),
    ),
    "behind, shortest start": (replace(BEHIND, lag=5), replace(BEHIND, lag=5, start_ms=500)),
}


@pytest.fixture(scope="module")
def mixed() -> ClusterView:
    """A task of a mixed job with an active and two standbys, in two cells."""
    return deployed(
        tasks=1, containers=3, standbys=2, is_mixed=True, hosts=("h1", "h2", "h3"), cells=(1, 2)
    ).view


def chosen(view: ClusterView, *candidates: Candidate) -> int:
    """Return the number of the copy that is promoted, of these as copies 1 and up."""
    (recorded,) = view.records.values()
    record = recorded.record
    assert record.active == 0
    containers, in_sync = dict(view.containers), [0]
    loads: dict[str, int] = {}
    for copy, each in enumerate(candidates, 1):
        container = containers[record.placed[copy]]
        cell = 1 if each.is_beside else 2
        ((replica, status),) = container.statuses.items()
        told = replace(status, applied=0, end=each.lag, start_ms=each.start_ms)
        containers[container.id] = replace(
            container,
            cell=cell,
            attempt=view.cells[cell].attempt,
            statuses={replica: told},
            is_warm=each.is_warm,
        )
        loads[container.id] = each.actives
        in_sync += [copy] if each.in_sync else []
    view = replace(
        view,
        containers=containers,
        records={record.task: replace(recorded, record=replace(record, in_sync=tuple(in_sync)))},
        drained={
            containers[record.placed[copy]].host: "" for copy, each in enumerate(candidates, 1) if each.leaves
        },
        lost_actives={
            ProcessorId("job", "main", 0): LostActive(record.placed[0], Loss.SILENT, view.now_ms, cell=1)
        },
    )
    turn = Turn(view)
    for name, actives in loads.items():
        turn.loads.add(name, actives=actives)
    (cohort,) = turn.cohorts(view.jobs["job"], ProcessorId("job", "main", 0)) or ()
    promoted = promote(turn, cohort)
    assert promoted is not None
    assert promoted.facts.to_copy is not None
    return promoted.facts.to_copy


def test_best_copy_is_promoted_by_what_comes_first_in_which_they_differ(mixed: ClusterView) -> None:
    for case, (better, worse) in CANDIDATES.items():
        assert chosen(mixed, better, worse) == 1, case
        assert chosen(mixed, worse, better) == 2, case
        assert chosen(mixed, better, better) == 1, f"{case}: the lower number, of those that are alike"


def test_starts_of_half_a_minute_and_more_are_of_one_class_that_is_quicker_than_an_unknown_one() -> None:
    assert slowness(31_999) < slowness(32_000) == slowness(10**9) < slowness(None)
