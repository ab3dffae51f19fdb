"""Policy ``restart`` on a real YARN: SEP-23's steps in their order, and none of them when the host is to be had.

Named requests expire after a tenth of a second here, often before YARN can grant them: a slow deployment is
no failure, and no grant that comes late is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.events import Event
from demo.scenario import now_ms
from demo.standing import Replica, victim_host
from embedded.cluster import LocalCluster
from tests.system.yarn.flights_job import FlightsJob, deployed
from tests.system.yarn.running import NOTICES_SILENCE

SAMEHOST_TIMEOUT_MS = 4_000


@pytest.fixture(scope="module")
def job(cluster: LocalCluster) -> Iterator[FlightsJob]:
    """Return the flights job: two processors of two tasks, each with a standby, on three hosts."""
    settings = {
        **NOTICES_SILENCE,
        # The host that is lost is to take no cell along: some of the steps would be left undone.
        "appmaster.cells": "1",
        "job.hotstandby.failover": "restart",
        "job.hotstandby.samehost.timeout.ms": str(SAMEHOST_TIMEOUT_MS),
        "cluster-manager.container.request.timeout.ms": "100",
    }
    with deployed(cluster, **settings) as job:
        yield job


def of_kind(events: list[Event], kind: str, /, **data: object) -> list[Event]:
    return [
        each
        for each in events
        if each.kind == kind and all((each.data or {}).get(name) == value for name, value in data.items())
    ]


def test_slow_deployment_stops_no_other_and_keeps_no_late_grant(job: FlightsJob) -> None:
    assert job.scenario.wait_until_whole() is not None
    events = job.events()
    assert of_kind(events, "request_cancelled", outcome="expired"), "or this test shows nothing"
    assert {each.kind for each in events}.isdisjoint(
        {"decided_displace", "decided_drop", "container_lost", "failover_started"}
    )
    job.assert_no_container_too_many()


def test_host_that_dies_makes_a_standby_give_way_step_by_step(job: FlightsJob) -> None:
    job.scenario.spare_master()
    host = victim_host(job.status)
    assert host is not None
    victims = [each.active_replica for each in job.status.tasks]
    active = next(each for each in victims if each is not None and each.host == host)
    partition = next(each.partition for each in job.status.tasks if each.active_replica == active)
    standby, begun = job.replica(partition, active=False), now_ms()
    gone = {each.container for each in job.status.containers if each.host == host}
    with job.flow(), job.lost_host(host, silent=True):
        # The host may have held the other processor's active too, whose standby is displaced elsewhere.
        processor = partition % job.scenario.shape.processors
        failover = job.wait_for_event("decided_failover", begun, processor=processor)
        job.wait_for_event("failover_finished", begun)
        job.cluster.finish_silent(host)
        assert job.scenario.wait_until_whole(without=gone) is not None
        assert_steps(job.events(begun), active, standby, failover)
        moved = job.replica(partition, active=True)
        assert (moved.copy, moved.host) == (active.copy, standby.host), "on the host of its standby"
        elsewhere = job.replica(partition, active=False)
        assert elsewhere.copy == standby.copy
        assert elsewhere.host not in (host, standby.host)
    assert 'standfast_failovers_total{job="flights",policy="restart"} ' in job.scrape()
    job.assert_no_container_too_many()


def assert_steps(events: list[Event], active: Replica, standby: Replica, failover: Event) -> None:
    """Fail unless the steps 1 to 8 of the proposal are in the log, in this order."""
    processor = (failover.data or {})["processor"]
    slot = f"flights/main:{processor}#{active.copy}"
    (lost,) = [
        each for each in events if each.kind == "container_lost" and each.container == active.container
    ]
    asked = of_kind(events, "container_requested", slot=slot, kind="preferred")[0]
    given_up = of_kind(events, "request_cancelled", slot=slot, kind="preferred")[0]
    (displaced,) = of_kind(events, "decided_displace", processor=processor)
    reserved = of_kind(events, "container_requested", slot=slot, kind="reservation")[0]
    stopped = of_kind(events, "standby_stopped", processor=processor)[0]
    # Of two processors that reserve the same host each may get the container that was asked for the other.
    (registered,) = [
        each
        for each in of_kind(events, "container_registered")
        if each.container is not None and each.container == failover.container
    ]
    again = next(
        each
        for each in of_kind(events, "container_requested", slot=f"flights/main:{processor}#{standby.copy}")
        if each.at_ms >= failover.at_ms
    )
    assert asked.host == active.host
    assert reserved.host == registered.host == standby.host
    assert displaced.at_ms - lost.at_ms >= SAMEHOST_TIMEOUT_MS
    order = [lost, asked, displaced, reserved, failover, again]
    assert sorted(order, key=events.index) == order
    assert max(events.index(stopped), events.index(registered)) < events.index(failover)
    assert events.index(displaced) < events.index(stopped)
    assert given_up.host == active.host
    assert events.index(given_up) < events.index(failover)
    assert again.host != standby.host
