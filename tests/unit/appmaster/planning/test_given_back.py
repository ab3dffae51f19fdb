"""What was asked of YARN and is not needed any more when it is granted."""

from __future__ import annotations

import pytest

from appmaster.planning.state import actions as todo
from appmaster.planning.state.view import RequestState
from tests.fakes.yarn import FakeCluster


def states(cluster: FakeCluster) -> set[RequestState]:
    return {each.state for each in cluster.view.requests.values()}


@pytest.mark.parametrize("state", [RequestState.WAITING, RequestState.GRANTED], ids=lambda each: each.value)
def test_a_request_of_a_standby_that_may_stay_after_all_goes_back_and_nobody_is_moved(
    state: RequestState,
) -> None:
    """Its host is to be drained, and is not any more as soon as a container is asked for, or granted."""
    cluster = FakeCluster()
    cluster.run(10_000)
    placed = {task: each.record.placed for task, each in cluster.versions.items()}
    lone = next(
        each.record.hosts[1]
        for each in cluster.versions.values()
        if each.record.hosts[1] not in {other.record.hosts[0] for other in cluster.versions.values()}
    )
    cluster.actions.clear()
    cluster.grants_nothing = True
    cluster.drain(lone)
    while RequestState.WAITING not in states(cluster):
        cluster.run(50, step_ms=50)
    if state is RequestState.GRANTED:
        cluster.grants_nothing = False
        while state not in states(cluster):
            cluster.now_ms += 50
            cluster.grant()
    cluster.drain()
    cluster.run(10_000)
    ends = [each for each in cluster.actions if isinstance(each, (todo.CancelRequest, todo.ReleaseContainer))]
    assert {each.outcome for each in ends} == {todo.Outcome.SURPLUS}
    assert not cluster.view.requests
    assert {task: each.record.placed for task, each in cluster.versions.items()} == placed
