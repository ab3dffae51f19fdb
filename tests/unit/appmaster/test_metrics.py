"""What the leader counts of the news, and what it shows of its view, as the text of a scrape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from appmaster import gauges
from appmaster import metrics as known
from appmaster.adapters.prometheus import Metrics
from appmaster.counting import Count, counts
from appmaster.driver import Driver
from appmaster.inbox import Inbox
from appmaster.planning.actions import Kind, Outcome
from appmaster.planning.events import Elected, Event
from appmaster.planning.view import ClusterView, News, OnExhausted, Policy, RequestKind
from appmaster.telling import entry
from tests.fakes.yarn import FakeCluster

Scrape = dict[str, dict[frozenset[tuple[str, str]], float]]

LEADING = ClusterView(epoch=3)


def told(kind: str, *, view: ClusterView = LEADING, **fields: Any) -> dict[str, Any]:
    return entry(News(kind, **fields), view)


def scrape(metrics: Metrics) -> Scrape:
    """Return every sample: name → labels → value."""
    content_type, body = metrics.render()
    assert content_type.startswith("text/plain")
    found: Scrape = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def shown(*news: dict[str, Any], view: ClusterView = LEADING) -> Scrape:
    metrics = Metrics(lambda: view)
    for each in news:
        metrics.count(each)
    return scrape(metrics)


def value(found: Scrape, name: str, **labels: str) -> float:
    return found.get(name, {}).get(frozenset(labels.items()), 0.0)


def above_zero(found: Scrape, name: str) -> dict[frozenset[tuple[str, str]], float]:
    return {labels: number for labels, number in found.get(name, {}).items() if number}


@pytest.mark.parametrize("role", ["active", "standby"])
def test_lost_container_is_a_failure_of_its_role(role: str) -> None:
    found = shown(
        told("container_lost", job="j", reason="silent: no heartbeat for 2013 ms", data={"role": role})
    )
    assert above_zero(found, "standfast_container_failures_total") == {
        frozenset({("job", "j"), ("role", role), ("reason", "silent")}): 1
    }


def test_planned_stop_is_no_failure() -> None:
    found = shown(
        told("container_lost", job="j", reason="silent", data={"role": "active", "planned": True}),
        told("container_dismissed", job="j", reason="drained"),
        told("container_gone", reason="drained"),
    )
    assert above_zero(found, "standfast_container_failures_total") == {}


def test_failover_to_a_standby_and_one_without_are_counted_apart() -> None:
    """SEP-23 has both: failovers from active to standby, and occurrences where that could not be."""
    with_standby = told("failover_started", job="j", data={"to_in_sync": True})
    restart = told("failover_started", job="j", data={"to_in_sync": True, "policy": "restart"})
    no_standby = told("failover_started", job="j", data={"to_in_sync": False})
    found = shown(
        with_standby,
        with_standby,
        restart,
        no_standby,
        told("failover_without_standby", job="j", reason="restoring: no standby was in sync"),
    )
    assert value(found, "standfast_failovers_total", job="j", policy="promote") == 2
    assert value(found, "standfast_failovers_total", job="j", policy="restart") == 1
    assert value(found, "standfast_failovers_without_standby_total", job="j", reason="restoring") == 1


def test_text_with_a_number_makes_no_series_of_its_own() -> None:
    found = shown(
        told("container_lost", job="j", reason="exit 137 after 4021 ms", data={"role": "nobody"}),
        told("container_released", reason="did 12 things"),
        told("request_cancelled", host="h", data={"kind": "preferred", "outcome": "after 5012 ms"}),
        told("decided_made_up", job="j", reason="flights/main.0: in sync [0, 1]"),
    )
    assert value(found, "standfast_container_failures_total", job="j", role="none", reason="other") == 1
    assert value(found, "standfast_containers_released_total", reason="other") == 1
    assert value(found, "standfast_container_requests_total", kind="preferred", outcome="other") == 1
    assert value(found, "standfast_decisions_total", kind="other", reason="other") == 1


@pytest.mark.parametrize(
    ("news", "kind", "outcome"),
    [
        (told("request_granted", host="h", data={"kind": "preferred"}), "preferred", "granted"),
        (told("request_granted", data={"kind": "any"}), "any", "granted"),
        (told("request_granted", host="h", data={"kind": "reservation"}), "reservation", "granted"),
        (
            told("request_cancelled", host="h", data={"kind": "preferred", "outcome": "expired"}),
            "preferred",
            "expired",
        ),
        (told("request_cancelled", data={"kind": "any", "outcome": "surplus"}), "any", "surplus"),
        (told("request_cancelled", data={"kind": "any", "outcome": "ended"}), "any", "ended"),
        (told("request_cancelled", data={"kind": "named"}), "named", "cancelled"),
        (told("request_refused", host="h"), "named", "refused"),
        (told("launch_failed"), "any", "failed"),
    ],
)
def test_request_ends_under_its_kind_and_outcome(news: dict[str, Any], kind: str, outcome: str) -> None:
    assert above_zero(shown(news), "standfast_container_requests_total") == {
        frozenset({("kind", kind), ("outcome", outcome)}): 1
    }


def test_preferred_host_matches_are_out_of_requests_for_it() -> None:
    preferred = {"kind": "preferred"}
    found = shown(
        told("container_requested", job="j", host="a", data=preferred),
        told("container_requested", job="j", host="a", data=preferred),
        told("container_requested", job="j", data={"kind": "any"}),
        told("request_granted", job="j", host="a", data=preferred),
        told("request_granted", job="j", data={"kind": "any"}),
    )
    assert value(found, "standfast_preferred_host_requests_total", job="j") == 2
    assert value(found, "standfast_preferred_host_matches_total", job="j") == 1
    assert value(found, "standfast_container_requests_made_total", kind="preferred") == 2


def test_failover_time_is_split_into_phases_that_add_up() -> None:
    times = {
        "detected_ms": 1_000,
        "recorded_ms": 1_040,
        "ordered_ms": 1_042,
        "fenced_ms": 1_142,
        # The container's clock is a little behind the leader's here: no phase is shorter than nothing.
        "drained_ms": 1_141,
        "active_ms": 1_150,
        "first_commit_ms": 1_400,
    }
    found = shown(
        told("container_lost", job="j", reason="silent", data={"role": "active", "silent_ms": 2_050}),
        told("failover_finished", job="j", data={"tasks": {"0": times, "1": times}}),
    )
    sums = {
        dict(labels)["phase"]: round(number, 6)
        for labels, number in found["standfast_failover_seconds_sum"].items()
    }
    assert sums == {
        "detected": 2.05,
        "recorded": 0.08,
        "ordered": 0.004,
        "fenced": 0.2,
        "drained": 0,
        "active": 0.016,
        "first_commit": 0.5,
        "total": 0.8,
    }
    assert value(found, "standfast_failover_seconds_count", phase="total") == 2


def test_phase_without_a_time_counts_with_the_next() -> None:
    times = {"detected_ms": 1_000, "recorded_ms": 1_100, "active_ms": 1_300, "first_commit_ms": None}
    found = shown(told("failover_finished", job="j", data={"tasks": {"0": times}}))
    assert value(found, "standfast_failover_seconds_sum", phase="active") == pytest.approx(0.2)
    assert value(found, "standfast_failover_seconds_sum", phase="total") == pytest.approx(0.3)
    assert found["standfast_failover_seconds_count"][frozenset({("phase", "first_commit")})] == 0


def test_planned_handover_has_its_own_times() -> None:
    times = {"detected_ms": 1_000, "first_commit_ms": 1_090}
    found = shown(
        told("handover_started", job="j"), told("handover_finished", job="j", data={"tasks": {"0": times}})
    )
    assert value(found, "standfast_handovers_started_total", job="j") == 1
    assert value(found, "standfast_handovers_total", job="j") == 1
    assert value(found, "standfast_handover_seconds_sum", phase="total") == pytest.approx(0.09)
    assert above_zero(found, "standfast_failovers_total") == {}


@pytest.mark.parametrize(
    ("kind", "name", "labels"),
    [
        ("same_host_refused", "standfast_same_host_refused_total", {}),
        ("decision_refused", "standfast_decisions_refused_total", {}),
        ("handover_given_up", "standfast_handovers_given_up_total", {"job": "j"}),
        ("decided_move", "standfast_moves_started_total", {"job": "j"}),
        ("decided_moved", "standfast_moves_total", {"job": "j"}),
        ("decided_stay", "standfast_moves_given_up_total", {"job": "j"}),
        ("processor_parked", "standfast_processors_parked_total", {"job": "j"}),
        ("processor_unparked", "standfast_processors_unparked_total", {"job": "j"}),
        ("host_excluded", "standfast_hosts_excluded_total", {}),
        ("host_admitted", "standfast_hosts_admitted_total", {}),
        ("model_changed", "standfast_model_changes_total", {"job": "j"}),
        ("fencing_failed", "standfast_fencing_failures_total", {"job": "j"}),
        ("leader_doubts_itself", "standfast_leader_doubts_total", {}),
    ],
)
def test_each_of_these_counts_one(kind: str, name: str, labels: dict[str, str]) -> None:
    assert value(shown(told(kind, job="j")), name, **labels) == 1


def test_failures_of_user_code_count_until_the_task_gets_past_them() -> None:
    found = shown(
        told("decided_failures", job="j", reason="1 times at input offset 7: ValueError", data={"count": 1}),
        told("decided_failures", job="j", reason="2 times at input offset 7: ValueError", data={"count": 2}),
        told("decided_failures", job="j", reason="j/main.0: in sync [0]"),
    )
    assert value(found, "standfast_task_failures_total", job="j") == 2
    assert value(found, "standfast_decisions_total", kind="failures", reason="other") == 3


@pytest.mark.parametrize(
    ("news", "kind", "reason"),
    [
        (told("decided_failover", reason="copy 0 is lost", data={"in_sync": True}), "failover", "in-sync"),
        (told("decided_failover", data={"in_sync": False}), "failover", "not-in-sync"),
        (told("decided_bind", reason="an empty place"), "bind", "an-empty-place"),
        (told("decided_in_sync", reason="j/main.0: in sync [0]"), "in_sync", "other"),
    ],
)
def test_decisions_are_counted_by_kind_and_reason(news: dict[str, Any], kind: str, reason: str) -> None:
    assert above_zero(shown(news), "standfast_decisions_total") == {
        frozenset({("kind", kind), ("reason", reason)}): 1
    }


def test_every_counted_label_is_declared() -> None:
    """A value outside a closed set would be a series that the zeros at the start do not have."""
    examples = [
        told("container_lost", job="j", reason="never-came: YARN lists it", data={"role": "mixed"}),
        told("container_released", reason="same-host: a holds j/main:0#1"),
        told("request_cancelled", job="j", data={"kind": "any", "outcome": "replaced"}),
        told("failover_started", job="j"),
        told("decided_undeploy", job="j", reason="the job is being undeployed"),
    ]
    for each in examples:
        added = list(counts(each))
        assert added
        for one in added:
            assert isinstance(one, Count)
            declared = one.counter.labels.values()
            assert len(one.labels) == len(one.counter.labels)
            assert all(
                not closed or label in closed for label, closed in zip(one.labels, declared, strict=True)
            )


def test_closed_sets_hold_every_word_that_the_planner_has() -> None:
    assert {each.value for each in RequestKind} == set(known.REQUEST_KINDS)
    assert {each.value for each in Outcome} <= set(known.REQUEST_OUTCOMES)
    assert {each.value for each in Outcome} <= set(known.RELEASE_REASONS)
    assert {each.value.replace("-", "_") for each in Kind} == set(known.DECISIONS) - {known.OTHER}


def test_names_and_help_texts_follow_prometheus_conventions() -> None:
    for counter in known.COUNTERS:
        assert counter.name.startswith("standfast_")
        assert counter.name.endswith("_total")
    for histogram in known.HISTOGRAMS:
        assert histogram.name.endswith("_seconds")
        assert list(histogram.buckets) == sorted(histogram.buckets)
    for each in (*known.COUNTERS, *known.HISTOGRAMS):
        assert each.help.endswith(".")


def test_candidate_that_does_not_lead_shows_that_and_no_cluster() -> None:
    found = shown(view=ClusterView())
    assert value(found, "standfast_is_leader") == 0
    assert value(found, "standfast_controller_epoch") == 0
    assert "standfast_job_status" not in found
    found = shown(view=LEADING)
    assert value(found, "standfast_is_leader") == 1
    assert value(found, "standfast_controller_epoch") == 3


def test_every_turn_of_the_leader_is_timed() -> None:
    metrics = Metrics(lambda: driver.view)
    inbox: Inbox[Event] = Inbox()
    driver = Driver(inbox, lambda *_: None, lambda *_: None, clock=lambda: 0, turned=metrics.turned)
    driver.turn([Elected(1, 0, 0)])
    driver.turn([])
    found = scrape(metrics)
    assert value(found, "standfast_planner_turn_seconds_count") == 2
    assert value(found, "standfast_planner_turn_seconds_sum") > 0


def counted(cluster: FakeCluster, metrics: Metrics) -> Scrape:
    """Count what the planner has told since the last time, and return a scrape."""
    for each in cluster.news:
        metrics.count(entry(each, cluster.view))
    cluster.news.clear()
    return scrape(metrics)


def test_planner_s_own_story_of_a_killed_active_and_a_killed_standby() -> None:
    cluster = FakeCluster()
    metrics = Metrics(lambda: cluster.view)
    cluster.run(5_000)
    assert cluster.is_whole()
    before = counted(cluster, metrics)
    job = next(iter(cluster.view.jobs))
    assert above_zero(before, "standfast_container_failures_total") == {}
    # A first step from nothing to 1 would be no increase to Prometheus.
    assert before["standfast_failovers_total"][frozenset({("job", job), ("policy", "promote")})] == 0
    assert set(before["standfast_failovers_without_standby_total"].values()) == {0}
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.run(8_000)
    assert cluster.is_whole()
    after = counted(cluster, metrics)
    assert {
        dict(labels)["role"]: number
        for labels, number in above_zero(after, "standfast_container_failures_total").items()
    } == {"active": 1}
    assert value(after, "standfast_failovers_total", job=job, policy="promote") == 1
    assert above_zero(after, "standfast_failovers_without_standby_total") == {}
    assert value(after, "standfast_failover_seconds_count", phase="total") == 2, "one for each task"
    assert value(after, "standfast_decisions_total", kind="failover", reason="in-sync") == 1
    record = next(each.record for each in cluster.view.records.values() if each.record.task.partition == 0)
    (standby,) = [record.placed[copy] for copy in record.placed if copy != record.active]
    cluster.kill(cluster.view.containers[standby].skein_id)
    cluster.run(8_000)
    last = counted(cluster, metrics)
    assert {
        dict(labels)["role"]: number
        for labels, number in above_zero(last, "standfast_container_failures_total").items()
    } == {"active": 1, "standby": 1}
    assert value(last, "standfast_failovers_total", job=job, policy="promote") == 1


def test_view_of_a_whole_cluster() -> None:
    cluster = FakeCluster()
    cluster.run(5_000)
    assert cluster.is_whole()
    found = shown(view=cluster.view)
    job = next(iter(cluster.view.jobs))
    assert set(found["standfast_in_sync_replicas"].values()) == {2}
    assert value(found, "standfast_wanted_replicas", job=job) == 2
    assert above_zero(found, "standfast_job_status") == {frozenset({("job", job), ("status", "deployed")}): 1}
    assert value(found, "standfast_containers", state="live") == 4
    assert value(found, "standfast_containers", state="suspect") == 0
    assert value(found, "standfast_requests_waiting") == 0
    assert len(found["standfast_replica_lag_records"]) == 8, "each replica of four tasks"


def test_leader_of_very_many_tasks_leaves_their_lags_to_the_containers() -> None:
    cluster = FakeCluster()
    cluster.run(5_000)
    (some, *_) = cluster.view.records.values()
    records = {replace(some.record.task, partition=each): some for each in range(gauges.MOST_LAGS + 1)}
    found = shown(view=replace(cluster.view, records=records))
    assert "standfast_replica_lag_records" not in found
    assert len(found["standfast_in_sync_replicas"]) == len(records)


def test_planner_s_own_story_of_a_drain_is_of_moves_and_hand_overs_and_no_failure() -> None:
    cluster = FakeCluster(hosts=("h1", "h2", "h3", "h4"))
    metrics = Metrics(lambda: cluster.view)
    cluster.run(5_000)
    host = cluster.active_process(0).host
    counted(cluster, metrics)
    cluster.exclude(host)
    cluster.run(30_000)
    found = counted(cluster, metrics)
    assert all(each.host != host for each in cluster.processes.values())
    assert value(found, "standfast_excluded_hosts") == 1
    assert value(found, "standfast_hosts_excluded_total") == 1
    handovers = value(found, "standfast_handovers_total", job="job")
    assert handovers >= 1
    assert value(found, "standfast_handover_seconds_count", phase="total") == 2 * handovers
    assert value(found, "standfast_handovers_under_way") == 0
    assert above_zero(found, "standfast_container_failures_total") == {}
    assert above_zero(found, "standfast_failovers_total") == {}
    assert above_zero(found, "standfast_failovers_without_standby_total") == {}
    cluster.exclude()
    cluster.run(5_000)
    assert value(counted(cluster, metrics), "standfast_hosts_admitted_total") == 1


def test_planner_s_own_story_of_an_active_without_standbys() -> None:
    cluster = FakeCluster(standbys=0)
    metrics = Metrics(lambda: cluster.view)
    cluster.run(5_000)
    counted(cluster, metrics)
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.run(10_000)
    assert cluster.is_whole()
    found = counted(cluster, metrics)
    assert above_zero(found, "standfast_failovers_without_standby_total") == {
        frozenset({("job", "job"), ("reason", "no-other-copy-lives")}): 1
    }
    assert above_zero(found, "standfast_failovers_total") == {}
    assert value(found, "standfast_preferred_host_requests_total", job="job") == 1
    assert value(found, "standfast_preferred_host_matches_total", job="job") == 1
    assert value(found, "standfast_container_requests_total", kind="preferred", outcome="granted") == 1


def test_planner_s_own_story_of_a_place_that_fails_again_and_again() -> None:
    policy = Policy(retry_count=2, on_exhausted=OnExhausted.PARK)
    cluster = FakeCluster(policy=policy)
    metrics = Metrics(lambda: cluster.view)
    cluster.run(5_000)
    cluster.fails_at_launch = lambda _: True
    cluster.kill(cluster.active_process(0).skein_id)
    found: Scrape = {}
    most = 0.0
    for _ in range(120):
        cluster.run(500)
        found = counted(cluster, metrics)
        most = max((most, *found.get("standfast_retry_failures", {}).values()))
    assert value(found, "standfast_retry_allowed", job="job") == 2
    assert most == 3, "one more than is allowed"
    assert value(found, "standfast_parked_processors", job="job") == 1
    assert value(found, "standfast_processors_parked_total", job="job") == 1
    failed = above_zero(found, "standfast_container_requests_total")
    assert sum(number for labels, number in failed.items() if ("outcome", "failed") in labels) >= 2


def test_cells_are_counted_by_whether_their_masters_answer() -> None:
    cluster = FakeCluster(cells=(1, 2))
    cluster.run(5_000)
    cluster.lose_cell(1, runs_on=True)
    found = shown(view=cluster.view)
    assert value(found, "standfast_cells", state="up") == 1
    assert value(found, "standfast_cells", state="doomed") == 1
