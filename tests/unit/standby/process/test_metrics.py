"""What a container tells Prometheus, from its state to the text of a scrape."""

from __future__ import annotations

import json
import socket
import urllib.error
from collections.abc import Iterator

import pytest

from embedded.web import open_url
from standby.adapters.http_port import HttpPages
from standby.adapters.processes import ProcessFigures
from standby.adapters.prometheus import OF_PROCESS, metrics_and_health
from standby.control.state import ControlPolicy, ControlState
from standby.kernel.restore.counters import RestoreCounters
from standby.process.metrics import container_metrics
from standby.replica.store.sources import StateSource
from standby.shared.metric import Samples
from standby.shared.model import InputFailures, Phase, ReplicaId, ReplicaStatus, Role, TaskId
from standby.shared.records import ContainerRecord
from standby.shared.wire import PROTOCOL
from tests.cases import case
from tests.patience import PATIENCE_SECONDS

ACTIVE = ReplicaStatus(
    ReplicaId(TaskId("flights", "main", 0), 1),
    Role.ACTIVE,
    Phase.ACTIVE,
    4,
    applied=90,
    end=100,
    lag_ms=1500,
    input_committed=7,
    input_end=9,
    since_ms=12_000,
    failures=InputFailures(7, 2),
    skipped=5,
    dead_lettered=4,
    input_lag_ms=2_500,
    record_bytes=30.0,
    drained_from=60,
    drained_to=85,
)
STANDBY = ReplicaStatus(
    ReplicaId(TaskId("flights", "main", 1), 0), Role.STANDBY, Phase.RESTORING, 2, applied=3
)


def state(*statuses: ReplicaStatus) -> ControlState:
    return ControlState(
        ContainerRecord("container_1", "anywhere_0", 1, "h", 1, 2, 3, PROTOCOL, "1"),
        ControlPolicy(orphan_timeout_ms=1),
        statuses={each.replica: each for each in statuses},
        lag_bounds_ms={"flights": 2_000},
        refused=3,
    )


def samples(metrics: Iterator[Samples]) -> dict[str, dict[tuple[str, ...], float]]:
    return {each.metric.name: dict(each.values) for each in metrics}


def test_a_replica_shows_its_offsets_lags_and_phase() -> None:
    shown = samples(container_metrics(state(ACTIVE, STANDBY)))
    active = ("flights", "main", "0", "1", "active")
    standby = ("flights", "main", "1", "0", "standby")
    assert shown["standfast_replica_lag_records"] == {active: 10}, "an unknown end is no lag of 0"
    assert shown["standfast_replica_lag_seconds"] == {active: 1.5}
    assert shown["standfast_replica_lag_bytes"] == {active: 300}
    assert shown["standfast_replica_promotion_restored_records"] == {active: 25}
    assert shown["standfast_replica_applied_offset"] == {active: 90, standby: 3}
    assert shown["standfast_input_lag_records"] == {active: 2}
    assert shown["standfast_input_lag_seconds"] == {active: 2.5}
    assert shown["standfast_replica_in_sync"] == {active: 1}
    assert shown["standfast_replica_phase_since_timestamp_seconds"][active] == 12
    assert shown["standfast_records_given_up_total"] == {active: 5}
    assert shown["standfast_records_dead_lettered_total"] == {active: 4}
    assert shown["standfast_input_failures"] == {active: 2}
    phases = shown["standfast_replica_phase"]
    assert {labels for labels, value in phases.items() if value} == {
        (*active, "active"),
        (*standby, "restoring"),
    }
    assert shown["standfast_refused_orders_total"] == {(): 3}
    assert samples(container_metrics(state()))["standfast_replica_lag_records"] == {}, "it has left"


def test_restores_are_counted_by_source_and_what_is_lent_by_job() -> None:
    restores = RestoreCounters()
    for source in (StateSource.ACTIVE, StateSource.CHANGELOG, StateSource.ACTIVE):
        restores.opened("flights", source, 100, 1.5)
    restores.failed("flights", StateSource.STANDBY)
    restores.lent("flights", 0.5)
    restores.gave(300)
    restores.gave(200)
    active, changelog = ("flights", "active"), ("flights", "changelog")
    assert samples(restores.metrics()) == {
        "standfast_restores_total": {active: 2, changelog: 1},
        "standfast_restore_bytes_total": {active: 200, changelog: 100},
        "standfast_restore_seconds_total": {active: 3, changelog: 1.5},
        "standfast_restore_failures_total": {("flights", "standby"): 1},
        "standfast_snapshots_total": {("flights",): 1},
        "standfast_snapshot_seconds_total": {("flights",): 0.5},
        "standfast_snapshot_sent_bytes_total": {(): 500},
    }
    assert samples(RestoreCounters().metrics())["standfast_snapshot_sent_bytes_total"] == {(): 0}


@pytest.fixture
def server() -> Iterator[HttpPages]:
    server = HttpPages("127.0.0.1")
    yield server
    server.close()


def get(server: HttpPages, path: str) -> tuple[int, str, str]:
    try:
        with open_url(f"http://127.0.0.1:{server.port}{path}", timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_a_scrape_is_prometheus_text(server: HttpPages) -> None:
    def metrics() -> Iterator[Samples]:
        yield from container_metrics(state(ACTIVE))
        figures = ProcessFigures(rss_bytes=5, children_rss_bytes=6)
        yield from (each.of(figures) for each in OF_PROCESS)

    server.start(metrics_and_health(metrics, lambda: (True, {})))
    status, kind, text = get(server, "/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "# TYPE standfast_refused_orders_total counter\nstandfast_refused_orders_total 3.0\n" in text
    labels = 'copy="1",job="flights",partition="0",role="active",stage="main"'
    assert f"standfast_replica_lag_records{{{labels}}} 10.0\n" in text
    assert 'standfast_process_rss_bytes{of="children"} 6.0\n' in text
    assert "process_cpu_seconds_total" in text


def test_health_is_a_status_and_its_facts(server: HttpPages) -> None:
    is_well = True
    server.start(metrics_and_health(lambda: (), lambda: (is_well, {"led": True})))
    for is_well, expected in ((True, 200), (False, 503)):
        status, _, text = get(server, "/healthz")
        assert (status, json.loads(text)) == (expected, {"led": True}), is_well
    assert get(server, "/elsewhere")[0] == 404


def test_a_closed_server_refuses_whether_it_was_started_or_not() -> None:
    for has_started in (True, False):
        server = HttpPages("127.0.0.1")
        if has_started:
            server.start(metrics_and_health(lambda: (), lambda: (True, {})))
        server.close()
        with case(has_started), pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)
