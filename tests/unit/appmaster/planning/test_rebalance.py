"""Actives are spread over hosts again: when, between which copies, and one at a time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.jobs.spreading import spread_of
from appmaster.planning.placement.turn import Turn
from appmaster.planning.plan import plan
from appmaster.planning.rules.deploy import writes
from appmaster.planning.rules.rebalance import LOOK_MS, begin, due, is_busy, look
from appmaster.planning.state import actions as todo
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import JobModel, Processor
from appmaster.planning.state.reasons import HandoverMotive, Loss, Reason
from appmaster.planning.state.view import (
    ClusterView,
    Failover,
    Handover,
    Rebalancing,
    Recorded,
)
from standby.shared.model import ProcessorId, TaskId, TaskRecord
from tests.fakes.yarn import FakeCluster
from tests.scenarios.flights import until
from tests.unit.appmaster.planning.views import (
    Change,
    free,
    of_container,
    of_job,
    of_model,
    of_records,
    of_view,
    turned,
    unchanged,
)

SPREAD = HandoverMotive.REBALANCE
PAUSE_MS = PlannerPolicy().rebalance_pause_ms


@pytest.fixture(scope="module")
def whole() -> ClusterView:
    """Three processors of two tasks: each is active on a host of its own, and has a standby on the two others."""
    cluster = FakeCluster(hosts=("h1", "h2", "h3"), containers=3, tasks=6, standbys=2)
    cluster.settle(60_000)
    view = cluster.view
    assert [[*view.records[view.job_tasks(each)[0]].record.placed.values()] for each in PROCESSORS] == PLACED
    return view


PROCESSORS: Final = tuple(ProcessorId("job", "main", each) for each in range(3))
ONE, *OTHERS = PROCESSORS
FOREIGN: Final = ProcessorId("another", "main", 0)

#: The containers of each processor's copies; c10, c15 and c17 are on h1, c11, c13 and c18 on h2, the others on h3.
PLACED: Final = [["c10", "c13", "c14"], ["c11", "c15", "c16"], ["c12", "c17", "c18"]]


def of_tasks(processor: ProcessorId, **changes: Any) -> Change:
    return lambda view: of_records(*view.job_tasks(processor), **changes)(view)


#: All are active on h1, in one container, and only one of them can be active elsewhere: on h2 or h3.
CROWDED: Final = tuple(of_tasks(each, placed={1: "c10"}, active=1, in_sync=(1,)) for each in OTHERS)

#: Two are active on h1 and one on h2, and only the latter can be active on h3.
IN_A_ROW: Final = (
    of_tasks(PROCESSORS[0], active=1, in_sync=(1, 2)),
    of_tasks(PROCESSORS[1], placed={0: "c11", 1: "c10"}, active=1, in_sync=(0, 1)),
    of_tasks(PROCESSORS[2], placed={1: "c10"}, active=1, in_sync=(1,)),
)


def known(whole_for_ms: int | None = PAUSE_MS, rests_for_ms: int = 0, **more: Any) -> Change:
    def change(view: ClusterView) -> ClusterView:
        whole_ms = view.now_ms - whole_for_ms if whole_for_ms is not None else None
        found = Rebalancing(whole_ms, view.now_ms + rests_for_ms, **more)
        return replace(view, rebalancing={"job": found})

    return change


ASKED: Final = known(None, is_asked=True)
MANUAL: Final = of_job(policy=PlannerPolicy(rebalance="manual"))

DUE: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "whole for long enough": (True, (known(),)),
    "whole for just as long": (True, (known(PAUSE_MS),)),
    "not for long enough": (False, (known(PAUSE_MS - 1),)),
    "not whole": (False, (known(None),)),
    "not whole, but asked for": (True, (ASKED,)),
    "only if asked for": (False, (known(), MANUAL)),
    "only if asked for, and it was": (True, (ASKED, MANUAL)),
    "checked a while ago": (False, (known(None, 1, is_asked=True),)),
    "its hand-overs are used up": (False, (known(None, moves=6, is_asked=True),)),
    "not wanted any more": (False, (ASKED, of_job(is_wanted=False))),
}


@pytest.mark.parametrize(("is_due", "changes"), DUE.values(), ids=DUE)
def test_when_the_spread_of_a_job_is_checked(
    whole: ClusterView, is_due: bool, changes: tuple[Change, ...]
) -> None:
    assert bool([*due(turned(whole, *changes))]) is is_due


def under_way(job: str, reason: Loss | HandoverMotive, to: str = "c13") -> Change:
    processor = ProcessorId(job, "main", 0)
    return of_view(failovers={processor: Failover(processor, "c9", reason, 1, to, 0)})


BUSY: Mapping[str, tuple[bool, Change]] = {
    "nothing is under way": (False, unchanged),
    "a hand-over of another job": (
        True,
        of_view(handovers={FOREIGN: Handover(1, "c9", 0, Reason(SPREAD))}),
    ),
    "a failover of the job": (True, under_way("job", Loss.SILENT)),
    "a failover of the job to a lost container": (False, under_way("job", Loss.SILENT, "gone")),
    "a failover of another job": (False, under_way("another", Loss.SILENT)),
    "another job spreads its actives": (True, under_way("another", SPREAD)),
}


@pytest.mark.parametrize(("expected", "change"), BUSY.values(), ids=BUSY)
def test_actives_are_spread_while_nothing_else_is_under_way(
    whole: ClusterView, expected: bool, change: Change
) -> None:
    turn = turned(whole, ASKED, change)
    assert is_busy(turn.view, turn.view.jobs["job"]) is expected
    assert bool([*due(turn)]) is not expected


def with_another_job(*unsettled: ProcessorId) -> Change:
    """Another job is active on h2; these processors are unsettled."""
    task = TaskId("another", "main", 0)
    record = TaskRecord(task, 0, 1, {0: "c99"}, {0: "h2"}, (0,))

    def change(view: ClusterView) -> ClusterView:
        other = replace(
            view.jobs["job"], name="another", model=JobModel("another", {FOREIGN: Processor((task,), (0,))})
        )
        return replace(
            view,
            jobs={**view.jobs, "another": other},
            records={**view.records, task: Recorded(record, 0)},
            unsettled=frozenset(unsettled),
        )

    return lambda view: free("c99", "h2", None)(change(view))


def next_copy(turn: Turn) -> int | None:
    """Return the copy of the first processor that takes over next; None if the check is made again later."""
    rest = look(turn, turn.view.jobs["job"])
    if turn.next_move is None:
        assert rest == todo.RestRebalancing("job", turn.view.now_ms + LOOK_MS)
        return None
    assert (rest, turn.next_move.processor) == (None, ONE)
    return turn.next_move.to_copy


def cold(container: str) -> Change:
    return of_container(container, is_warm=False)


def behind(container: str) -> Change:
    return of_container(container, statuses={})


MIXED: Final = of_model(is_mixed=True, containers=9)

NEXT: Mapping[str, tuple[int | None, tuple[Change, ...]]] = {
    "of equal hosts the first": (1, CROWDED),
    "of equal hosts the one with fewer actives of other jobs": (2, (*CROWDED, with_another_job())),
    "of equal containers the one on that host": (2, (*CROWDED, with_another_job(), MIXED)),
    "no copy that is cold": (2, (*CROWDED, cold("c13"))),
    "a cold one where none becomes warm": (
        1,
        (*CROWDED, of_job(policy=PlannerPolicy(has_warm_standbys=False)), cold("c13")),
    ),
    "no copy that is behind": (2, (*CROWDED, behind("c13"))),
    "neither": (None, (*CROWDED, cold("c13"), behind("c14"))),
    "tasks are placed apart": (
        None,
        (*CROWDED, of_records(TaskId("job", "main", 3), placed=dict(enumerate(PLACED[0][:2])))),
    ),
    "a container is outdated": (None, (*CROWDED, of_container("c13", revisions={"job": 0}))),
    "a container is surplus": (None, (*CROWDED, of_model(is_mixed=True, containers=8))),
}


@pytest.mark.parametrize(("copy", "changes"), NEXT.values(), ids=NEXT)
def test_which_copy_takes_over_to_spread_actives(
    whole: ClusterView, copy: int | None, changes: tuple[Change, ...]
) -> None:
    assert next_copy(turned(whole, ASKED, *changes)) == copy


@pytest.mark.parametrize(
    ("changes", "why"), [(CROWDED, "h1 has 3 actives, h2 has 0"), (IN_A_ROW, "h2 has 1 active, h3 has 0")]
)
def test_the_reason_tells_the_actives_of_both_hosts(
    whole: ClusterView, changes: tuple[Change, ...], why: str
) -> None:
    turn = turned(whole, ASKED, *changes)
    look(turn, turn.view.jobs["job"])
    assert turn.next_move is not None
    assert turn.next_move.reason.detail == why


AT_REST: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "settled": (True, (of_view(unsettled=frozenset()),)),
    "in sync": (True, ()),
    "a copy is not in sync": (False, (of_tasks(ONE, in_sync=(0, 2)),)),
    "a lost copy is not": (
        True,
        (of_tasks(ONE, in_sync=(0, 2), placed={0: "c10", 1: "gone", 2: "c14"}),),
    ),
    "a copy moves": (False, (of_tasks(ONE, moving={1: "c9"}),)),
    "a record is being written": (False, (of_view(writing={TaskId("job", "main", 0): "1-9"}),)),
    "another job is unsettled": (True, (with_another_job(FOREIGN),)),
    "a copy moves, and another job is unsettled": (
        False,
        (of_tasks(ONE, moving={1: "c9"}), with_another_job(FOREIGN, ONE)),
    ),
}


@pytest.mark.parametrize(("is_so", "changes"), AT_REST.values(), ids=AT_REST)
def test_an_even_spread_is_checked_again_as_long_as_more_copies_may_come_into_step(
    whole: ClusterView, is_so: bool, changes: tuple[Change, ...]
) -> None:
    turn = turned(whole, ASKED, of_view(unsettled=frozenset((ONE,))), *changes)
    rest = look(turn, turn.view.jobs["job"])
    assert rest == todo.RestRebalancing("job", None if is_so else turn.view.now_ms + LOOK_MS)


def test_the_next_hand_over_is_begun_for_its_own_processor_and_counts(whole: ClusterView) -> None:
    turn = turned(whole)
    one, other = (turn.cohorts(turn.view.jobs["job"], each) or () for each in PROCESSORS[:2])
    assert begin(turn, one) is None
    turn.next_move = todo.PrepareHandover(ONE, 1, "c13", Reason(SPREAD))
    assert begin(turn, other) is None
    assert begin(turn, one) == turn.next_move
    assert (turn.preparing["job"], turn.loads.of("c13").actives) == (1, 2)
    assert begin(turn, one) is None, "one has begun"


def test_a_job_that_is_spread_evenly_keeps_no_other_from_being_checked(whole: ClusterView) -> None:
    model = JobModel("other", {ProcessorId("other", "main", 0): Processor((), (0,))})
    jobs = {**whole.jobs, "other": replace(whole.jobs["job"], name="other", model=model)}
    view = replace(whole, jobs=jobs, rebalancing=dict.fromkeys(jobs, Rebalancing(is_asked=True)))
    assert list(writes(Turn(view))) == [todo.RestRebalancing(each) for each in ("job", "other")]


def evenly_spread(**more: object) -> FakeCluster:
    """Return a whole cluster with an even spread; earlier actions and entries are cleared."""
    cluster = FakeCluster(**{"hosts": ("h1", "h2", "h3"), "containers": 3, "tasks": 6, **more})  # type: ignore[arg-type]
    cluster.settle(60_000)
    assert plan(cluster.view) == ()
    assert not cluster.view.rebalancing or cluster.policy.rebalance == "manual"
    cluster.actions.clear()
    cluster.entries.clear()
    return cluster


def per_host(cluster: FakeCluster) -> list[int]:
    """Return how many processors are active on each host of the cluster, the fewest first."""
    actives = {
        cluster.view.processor_of(task): cluster.active_process(task.partition).host
        for task in cluster.versions
    }
    counts = Counter(dict.fromkeys(cluster.hosts, 0))
    counts.update(actives.values())
    return sorted(counts.values())


def crowded(**more: object) -> FakeCluster:
    """Return a cluster that is whole again after a host with an active was lost and has returned."""
    cluster = evenly_spread(**more)
    host = cluster.active_process(0).host
    cluster.lose_host(host, silent=False)
    cluster.run(1_000)
    cluster.return_host(host)
    until(cluster, lambda: not cluster.view.unsettled and cluster.is_whole())
    return cluster


def moves(cluster: FakeCluster) -> list[todo.PrepareHandover]:
    """Return the hand-overs that were begun to spread actives."""
    return [
        each for each in cluster.did(todo.PrepareHandover) if each.reason.kind is HandoverMotive.REBALANCE
    ]


def test_one_hand_over_after_the_other_with_a_pause_between() -> None:
    cluster = crowded(containers=6)
    assert not moves(cluster), "lost copies are replaced first"
    begun, at_once = [cluster.now_ms - 500], 0
    cluster.entries.clear()
    while cluster.view.rebalancing:
        before = len(moves(cluster))
        cluster.run(100)
        begun += [cluster.now_ms] * (len(moves(cluster)) - before)
        under_way = [
            each for each in cluster.view.failovers.values() if each.reason is HandoverMotive.REBALANCE
        ]
        at_once = max(at_once, len(cluster.view.handovers) + len(under_way))
    assert spread_of(cluster.view, cluster.view.jobs["job"]).is_even
    assert at_once == 1
    assert len(moves(cluster)) >= 2
    assert all(str(each.reason).startswith("rebalance: ") for each in moves(cluster))
    assert all(later - earlier > PAUSE_MS for earlier, later in itertools.pairwise(begun))
    assert cluster.kinds().count("handover_finished") == len(moves(cluster))
    assert "failover_started" not in cluster.kinds(), "a hand-over is no failover"
    assert plan(cluster.view) == ()


def test_nothing_moves_to_a_copy_that_is_not_in_sync_or_not_warm() -> None:
    cluster = crowded()
    cluster.lag_ms = cluster.policy.lag_time_ms + 1
    cluster.run(60_000)
    assert not moves(cluster)
    cluster.lag_ms = 0
    cluster.is_warm = False
    cluster.run(60_000)
    assert not moves(cluster)
    assert "in sync and warm" in spread_of(cluster.view, cluster.view.jobs["job"]).why
    cluster.is_warm = True
    cluster.run(10_000)
    assert per_host(cluster) == [1, 1, 1]
