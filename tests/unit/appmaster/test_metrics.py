"""What the leader counts of the news, and what it shows of its view, as the text of a scrape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from appmaster import gauges
from appmaster.adapters.prometheus import Metrics
from appmaster.driver import Driver
from appmaster.eventlog import entries
from appmaster.eventlog.counting import counts, sources
from appmaster.eventlog.entries import DECIDED, EntryKind, LogEntry
from appmaster.planning.fold.apply import apply
from appmaster.planning.rules.table import STAGES
from appmaster.planning.state import counters as known
from appmaster.planning.state.actions import DecisionKind, Facts, FailoverPolicy, Outcome
from appmaster.planning.state.events import Elected, Event, JobForgotten
from appmaster.planning.state.job import EffectKind, Job, OnExhausted, PlannerPolicy
from appmaster.planning.state.model import JobModel, JobSpec
from appmaster.planning.state.reasons import DecisionBasis, Loss, NoStandbyReason, Reason
from appmaster.planning.state.view import ClusterView, RequestKind
from standby.threads.inbox import Inbox
from tests.fakes.yarn import FakeCluster
from tests.scenarios.flights import until

Scrape = dict[str, dict[frozenset[tuple[str, str]], float]]

#: Leads the job of the entries here.
LEADING = ClusterView(
    epoch=3,
    jobs={"j": Job("j", "run1", JobSpec("main", 1, 1, 1), JobModel("j", {}, version=1), PlannerPolicy())},
)


def lost(reason: Loss, role: str | None, silent_ms: int | None = None) -> LogEntry:
    """Return that a container was lost."""
    details = entries.LostData(role, int(role == "active"), 1, silent_ms)
    return LogEntry(EntryKind.CONTAINER_LOST, details, job="j", reason=Reason(reason, "for 2013 ms"))


def started(
    *, in_sync: bool, policy: FailoverPolicy = FailoverPolicy.PROMOTE, without: NoStandbyReason | None = None
) -> LogEntry:
    """Return that a failover was begun, or that there was no standby for it."""
    details = entries.FailoverStartedData([0], 0, "c1", "c2", 0, 1, 1_000, in_sync, policy)
    if without is None:
        return LogEntry(EntryKind.FAILOVER_STARTED, details, job="j", reason=Reason(Loss.SILENT))
    return LogEntry(EntryKind.FAILOVER_WITHOUT_STANDBY, details, job="j", reason=Reason(without))


def request(
    kind: EntryKind, asked: RequestKind, outcome: Outcome | None = None, host: str | None = None
) -> LogEntry:
    """Return something about a request."""
    return LogEntry(kind, entries.RequestData("j/main:0#1", asked, outcome=outcome), job="j", host=host)


def decided(kind: DecisionKind, basis: DecisionBasis = DecisionBasis.OTHER, **facts: Any) -> LogEntry:
    """Return a decision."""
    details = entries.DecisionData(0, [0], Facts(**facts))
    return LogEntry(DECIDED[kind], details, job="j", reason=Reason(basis, "for 3 reasons"))


def model(version: int) -> LogEntry:
    """Return that this version of a job's model was written."""
    return LogEntry(EntryKind.MODEL_CHANGED, entries.ModelChangedData(version, 1, 1, 2), job="j")


def finished(kind: EntryKind, *tasks: dict[str, int | None]) -> LogEntry:
    """Return that a failover or hand-over of so many tasks is over."""
    times = {str(number): each for number, each in enumerate(tasks)}
    return LogEntry(kind, entries.FinishedData(times, "c1", 0), job="j")


def scrape(metrics: Metrics) -> Scrape:
    """Return every sample: name → labels → value."""
    content_type, body = metrics.render()
    assert content_type.startswith("text/plain")
    found: Scrape = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def shown(*told: LogEntry, view: ClusterView = LEADING) -> Scrape:
    metrics = Metrics(lambda: view)
    for each in told:
        metrics.count(each)
    return scrape(metrics)


def value(found: Scrape, name: str, **labels: str) -> float:
    return found.get(name, {}).get(frozenset(labels.items()), 0.0)


def above_zero(found: Scrape, name: str) -> dict[frozenset[tuple[str, str]], float]:
    return {labels: number for labels, number in found.get(name, {}).items() if number}


TIMES: dict[str, int | None] = {"detected_ms": 1_000, "first_commit_ms": 1_090}

#: An entry, a counter to which it adds one (without what is common to all names), and that one's labels in order.
COUNTED: tuple[tuple[LogEntry, str, tuple[str, ...]], ...] = (
    (lost(Loss.SILENT, "active"), "container_failures", ("j", "active", "silent")),
    (lost(Loss.SILENT, "standby"), "container_failures", ("j", "standby", "silent")),
    (lost(Loss.SILENT, "mixed"), "container_failures", ("j", "mixed", "silent")),
    # Without a role, for a reason without a kind.
    (
        replace(lost(Loss.SILENT, None), reason="exit 137 after 4021 ms"),
        "container_failures",
        ("j", "none", "other"),
    ),
    # SEP-23 has both: failovers from active to standby, and occurrences where that could not be.
    (started(in_sync=True), "failovers", ("j", "promote")),
    (started(in_sync=True, policy=FailoverPolicy.RESTART), "failovers", ("j", "restart")),
    (
        started(in_sync=False, without=NoStandbyReason.RESTORING),
        "failovers_without_standby",
        ("j", "restoring"),
    ),
    (decided(DecisionKind.FAILOVER, in_sync=True), "decisions", ("failover", "in-sync")),
    (decided(DecisionKind.FAILOVER, in_sync=False), "decisions", ("failover", "not-in-sync")),
    (decided(DecisionKind.BIND, DecisionBasis.EMPTY_SLOT), "decisions", ("bind", "an-empty-slot")),
    (decided(DecisionKind.IN_SYNC), "decisions", ("in_sync", "other")),
    (decided(DecisionKind.MOVE), "moves_started", ("j",)),
    (decided(DecisionKind.MOVED), "moves", ("j",)),
    (decided(DecisionKind.STAY), "moves_given_up", ("j",)),
    (decided(DecisionKind.FAILURES, count=1, offset=7), "task_failures", ("j",)),
    (decided(DecisionKind.FAILURES, count=1, offset=7), "decisions", ("failures", "other")),
    (decided(DecisionKind.FAILURES), "decisions", ("failures", "other")),
    (
        LogEntry(EntryKind.EFFECT_FAILED, entries.EffectData(EffectKind.WRITE_MODEL), job="j", reason="x"),
        "effect_failures",
        ("j", "write-model"),
    ),
    *(
        (
            LogEntry(
                EntryKind.SPARE_TAKEN,
                entries.SpareTakenData("j:spare-0", "j/main:0#1", is_ready=state == "ready"),
                job="j",
            ),
            "spare_containers_taken",
            ("j", state),
        )
        for state in ("ready", "starting")
    ),
    (
        request(EntryKind.CONTAINER_REQUESTED, RequestKind.PREFERRED, host="a"),
        "preferred_host_requests",
        ("j",),
    ),
    (
        request(EntryKind.CONTAINER_REQUESTED, RequestKind.PREFERRED, host="a"),
        "container_requests_made",
        ("preferred",),
    ),
    (request(EntryKind.REQUEST_GRANTED, RequestKind.PREFERRED, host="a"), "preferred_host_matches", ("j",)),
    *(
        (request(entry, asked, outcome, host), "container_requests", (asked.value, label))
        for entry, asked, outcome, host, label in (
            (EntryKind.REQUEST_GRANTED, RequestKind.PREFERRED, None, "h", "granted"),
            (EntryKind.REQUEST_GRANTED, RequestKind.ANY, None, None, "granted"),
            (EntryKind.REQUEST_GRANTED, RequestKind.RESERVATION, None, "h", "granted"),
            (EntryKind.REQUEST_CANCELLED, RequestKind.PREFERRED, Outcome.EXPIRED, "h", "expired"),
            (EntryKind.REQUEST_CANCELLED, RequestKind.ANY, Outcome.SURPLUS, None, "surplus"),
            (EntryKind.REQUEST_CANCELLED, RequestKind.ANY, Outcome.ENDED, None, "ended"),
            (EntryKind.REQUEST_REFUSED, RequestKind.NAMED, None, "h", "refused"),
            (EntryKind.LAUNCH_FAILED, RequestKind.ANY, None, None, "failed"),
        )
    ),
    (model(version=2), "model_changes", ("j",)),
    (LogEntry(EntryKind.HANDOVER_STARTED, entries.ProcessorData(0), job="j"), "handovers_started", ("j",)),
    (finished(EntryKind.HANDOVER_FINISHED, TIMES), "handovers", ("j",)),
    *(
        (LogEntry(kind, job="j"), name, labels)
        for kind, name, labels in (
            (EntryKind.SAME_HOST_REFUSED, "same_host_refused", ()),
            (EntryKind.DECISION_REFUSED, "decisions_refused", ()),
            (EntryKind.HANDOVER_GIVEN_UP, "handovers_given_up", ("j",)),
            (EntryKind.PROCESSOR_PARKED, "processors_parked", ("j",)),
            (EntryKind.PROCESSOR_UNPARKED, "processors_unparked", ("j",)),
            (EntryKind.HOST_DRAINED, "hosts_drained", ()),
            (EntryKind.HOST_ADMITTED, "hosts_admitted", ()),
            (EntryKind.FENCING_FAILED, "fencing_failures", ("j",)),
            (EntryKind.LEADER_DOUBTS_ITSELF, "leader_doubts", ()),
        )
    ),
)

#: An entry, and a counter to which it adds nothing.
NOT_COUNTED = (
    (started(in_sync=False), "failovers"),
    (started(in_sync=False, without=NoStandbyReason.RESTORING), "failovers"),
    (finished(EntryKind.HANDOVER_FINISHED, TIMES), "failovers"),
    # The first one is no change.
    (model(version=1), "model_changes"),
    # The task has got past what its code failed at.
    (decided(DecisionKind.FAILURES), "task_failures"),
    (request(EntryKind.CONTAINER_REQUESTED, RequestKind.ANY), "preferred_host_requests"),
    (request(EntryKind.REQUEST_GRANTED, RequestKind.ANY), "preferred_host_matches"),
)


def test_entry_counts_one_under_its_labels() -> None:
    for entry, name, labels in COUNTED:
        full = f"standfast_{name}_total"
        (declared,) = [each.labels for each in known.COUNTERS if each.name == full]
        expected = frozenset(zip(declared, labels, strict=True))
        assert above_zero(shown(entry), full) == {expected: 1}, (entry.kind, name, labels)
    for entry, name in NOT_COUNTED:
        assert above_zero(shown(entry), f"standfast_{name}_total") == {}, (entry.kind, name)


#: The phases of a failover: when each ended, and the seconds of two such failovers together.
PHASES = (
    ("detected", 1_000, 2.05),
    ("recorded", 1_040, 0.08),
    ("ordered", 1_042, 0.004),
    ("fenced", 1_142, 0.2),
    # The container's clock is a little behind the leader's here: no phase is shorter than nothing.
    ("drained", 1_141, 0),
    ("active", 1_150, 0.016),
    ("joined", 1_151, 0.002),
    ("started", 1_160, 0.018),
    ("delivered", 1_350, 0.38),
    ("computed", 1_360, 0.02),
    ("begun", 1_390, 0.06),
    ("first_commit", 1_400, 0.02),
)


def test_failover_time_is_split_into_phases_that_add_up() -> None:
    times: dict[str, int | None] = {f"{phase}_ms": at_ms for phase, at_ms, _ in PHASES}
    found = shown(lost(Loss.SILENT, "active", 2_050), finished(EntryKind.FAILOVER_FINISHED, times, times))
    sums = {
        dict(labels)["phase"]: round(number, 6)
        for labels, number in found["standfast_failover_seconds_sum"].items()
    }
    assert sums == {**{phase: seconds for phase, _, seconds in PHASES}, "total": 0.8}
    assert value(found, "standfast_failover_seconds_count", phase="total") == 2


def test_phase_without_a_time_counts_with_the_next() -> None:
    times = {"detected_ms": 1_000, "recorded_ms": 1_100, "active_ms": 1_300, "first_commit_ms": None}
    found = shown(finished(EntryKind.FAILOVER_FINISHED, times))
    assert value(found, "standfast_failover_seconds_sum", phase="active") == pytest.approx(0.2)
    assert value(found, "standfast_failover_seconds_sum", phase="total") == pytest.approx(0.3)
    assert found["standfast_failover_seconds_count"][frozenset({("phase", "first_commit")})] == 0


def test_planned_handover_has_its_own_times() -> None:
    found = shown(finished(EntryKind.HANDOVER_FINISHED, TIMES))
    assert value(found, "standfast_handover_seconds_sum", phase="total") == pytest.approx(0.09)
    assert above_zero(found, "standfast_failover_seconds_count") == {}


#: Entries with every value of every label.
EXAMPLES = [
    *(entry for entry, _, _ in COUNTED),
    *(lost(each, role) for each in Loss if each is not Loss.STUCK for role in ("active", None)),
    *(LogEntry(EntryKind.CONTAINER_RELEASED, entries.ReleasedData(each, None)) for each in Outcome),
    *(request(EntryKind.REQUEST_CANCELLED, RequestKind.ANY, each) for each in Outcome),
    *(request(EntryKind.REQUEST_GRANTED, each) for each in RequestKind),
    *(started(in_sync=True, policy=each) for each in FailoverPolicy),
    *(started(in_sync=False, without=each) for each in NoStandbyReason),
    *(decided(kind, basis) for kind in DecisionKind for basis in DecisionBasis),
    finished(EntryKind.FAILOVER_FINISHED, TIMES),
]


def test_every_counted_label_is_declared() -> None:
    """A value outside a closed set would be a series that the zeros at the start do not have."""
    for each in EXAMPLES:
        added = list(counts(each))
        assert added
        for one in added:
            declared = one.metric.labels.values()
            assert len(one.labels) == len(one.metric.labels)
            assert all(
                not closed or label in closed for label, closed in zip(one.labels, declared, strict=True)
            )


def test_something_adds_to_every_counter_and_to_every_time_but_that_of_a_turn() -> None:
    """One that nothing adds to would be shown as 0 for ever, in the table and on the dashboard, too."""
    added = {each.metric.name for entry in EXAMPLES for each in counts(entry)}
    declared = {each.name for each in known.COUNTERS} | {each.name for each in known.HISTOGRAMS}
    # The driver times a turn itself.
    assert added == declared - {known.TURN_SECONDS.name}


def test_what_a_rule_adds_to_is_counted_of_an_entry_that_the_rule_brings() -> None:
    own = [each for each in known.COUNTERS if each is not known.DECIDED]
    for rule in (each for stage in STAGES for each in stage.rules):
        decisions = {DECIDED[each] for each in rule.decides if isinstance(each, DecisionKind)}
        brought = {*decisions, *map(EntryKind, rule.events)}
        idle = [each.name for each in rule.counted if not brought & set(sources(each))]
        assert not idle, f"rule {rule.name} names what none of its entries adds to"
        unnamed = [each.name for each in own if decisions & set(sources(each)) and each not in rule.counted]
        assert not unnamed, f"rule {rule.name} adds to what it does not name in `counted`"


def test_candidate_that_does_not_lead_shows_that_and_no_cluster() -> None:
    found = shown(view=ClusterView())
    assert value(found, "standfast_is_leader") == 0
    assert value(found, "standfast_controller_epoch") == 0
    assert "standfast_job_status" not in found
    found = shown(view=LEADING)
    assert value(found, "standfast_is_leader") == 1
    assert value(found, "standfast_controller_epoch") == 3
    # One that ZooKeeper does not answer replaces nothing that fails: the alert has to fire.
    assert value(scrape(Metrics(lambda: LEADING, has_lease=lambda: False)), "standfast_is_leader") == 0


def test_every_turn_of_the_leader_is_timed() -> None:
    metrics = Metrics(lambda: driver.view)
    inbox: Inbox[Event] = Inbox()
    driver = Driver(inbox, lambda *_: None, lambda *_: None, clock=lambda: 0, turned=metrics.turned)
    driver.turn([Elected(1, 0)])
    driver.turn([])
    found = scrape(metrics)
    assert value(found, "standfast_planner_turn_seconds_count") == 2
    assert value(found, "standfast_planner_turn_seconds_sum") > 0


def test_counters_begin_at_zero_and_a_drain_is_shown_until_it_is_over() -> None:
    cluster = FakeCluster(hosts=("h1", "h2", "h3", "h4"))
    cluster.run(5_000)
    found = shown(view=cluster.view)
    # A first step from nothing to 1 would be no increase to Prometheus.
    assert found["standfast_failovers_total"][frozenset({("job", "job"), ("policy", "promote")})] == 0
    assert set(found["standfast_failovers_without_standby_total"].values()) == {0}
    cluster.drain(cluster.active_process(0).host)
    until(cluster, lambda: bool(cluster.view.handovers))
    assert value(shown(view=cluster.view), "standfast_handovers_under_way") == 1
    cluster.run(30_000)
    found = shown(view=cluster.view)
    assert value(found, "standfast_handovers_under_way") == 0
    assert value(found, "standfast_drained_hosts") == 1


def test_counters_of_a_deleted_job_are_dropped() -> None:
    """Else they would be more with each job that a pool has had."""
    cluster = FakeCluster()
    cluster.run(5_000)
    (job,) = cluster.view.jobs
    metrics = Metrics(lambda: cluster.view)
    entry = replace(started(in_sync=True), job=job)
    metrics.count(entry)
    assert above_zero(scrape(metrics), "standfast_failovers_total")
    cluster.view = apply(cluster.view, JobForgotten(job))
    # One of the turn in which it was deleted.
    metrics.count(entry)
    assert not [name for name, each in scrape(metrics).items() for labels in each if ("job", job) in labels]


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


@pytest.mark.parametrize(
    ("risk", "is_known", "found"), [("", False, set()), ("", True, {0}), ("it deletes", True, {1})]
)
def test_a_changelog_counts_as_safe_only_once_the_brokers_have_said_so(
    risk: str, is_known: bool, found: set[float]
) -> None:
    job = replace(LEADING.jobs["j"], changelog_risk=risk, is_changelog_known=is_known)
    gauge = shown(view=replace(LEADING, jobs={"j": job})).get("standfast_changelog_at_risk", {})
    assert set(gauge.values()) == found


def test_a_job_that_cannot_be_read_is_shown_although_the_view_does_not_have_it() -> None:
    unreadable = {"odd": "not a record", "k": "no such grouper"}
    metrics = Metrics(lambda: LEADING, lambda: (gauges.UNREADABLE.of(unreadable),))
    assert scrape(metrics)["standfast_job_unreadable"] == {
        frozenset({("job", "k")}): 1,
        frozenset({("job", "odd")}): 1,
    }


def test_actives_are_counted_per_host_and_hosts_with_only_standbys_have_none() -> None:
    cluster = FakeCluster(containers=3, tasks=6)
    cluster.run(60_000)
    (job, *_) = cluster.view.jobs
    for host in cluster.hosts:
        assert value(shown(view=cluster.view), "standfast_active_processors", job=job, host=host) == 1
    active = cluster.active_process(0)
    cluster.kill(active.skein_id)
    cluster.run(8_000)
    counts = {
        each: value(shown(view=cluster.view), "standfast_active_processors", job=job, host=each)
        for each in cluster.hosts
    }
    assert counts[active.host] == 0
    assert sorted(counts.values()) == [0, 1, 2]


def test_leader_of_very_many_tasks_leaves_their_lags_to_the_containers() -> None:
    cluster = FakeCluster()
    cluster.run(5_000)
    (some, *_) = cluster.view.records.values()
    records = {replace(some.record.task, partition=each): some for each in range(gauges.MOST_LAGS + 1)}
    found = shown(view=replace(cluster.view, records=records))
    assert "standfast_replica_lag_records" not in found
    assert len(found["standfast_in_sync_replicas"]) == len(records)


def test_planner_s_own_story_of_a_place_that_fails_again_and_again() -> None:
    policy = PlannerPolicy(retry_count=2, on_exhausted=OnExhausted.PARK)
    cluster = FakeCluster(policy=policy)
    cluster.run(5_000)
    cluster.fails_at_launch = lambda _: True
    cluster.kill(cluster.active_process(0).skein_id)
    most = 0.0
    while not cluster.kinds().count("processor_parked"):
        cluster.run(100)
        shown_now = {each.metric.name: each.values for each in gauges.view_gauges(cluster.view)}
        most = max(most, *(number for _, number in shown_now["standfast_retry_failures"]), 0)
    found = shown(*cluster.entries, view=cluster.view)
    assert value(found, "standfast_retry_allowed", job="job") == 2
    assert most == 3, "one more than is allowed"
    assert value(found, "standfast_parked_processors", job="job") == 1
    assert len(found["standfast_in_sync_replicas"]) == 2, "its tasks are to have none"
    assert value(found, "standfast_processors_parked_total", job="job") == 1
    failed = above_zero(found, "standfast_container_requests_total")
    assert sum(number for labels, number in failed.items() if ("outcome", "failed") in labels) >= 2


def test_spare_containers_are_counted_by_whether_they_are_ready() -> None:
    hosts = ("h1", "h2", "h3", "h4")
    cluster = FakeCluster(tasks=2, containers=1, policy=PlannerPolicy(spare_count=2), hosts=hosts)
    cluster.cold_hosts = {"h4"}
    cluster.settle(20_000)
    cluster.run(2_000)
    found = shown(view=cluster.view)
    assert value(found, "standfast_wanted_spare_containers", job="job") == 2
    assert value(found, "standfast_spare_containers", job="job", state="ready") == 1
    assert value(found, "standfast_spare_containers", job="job", state="starting") == 1


def test_cells_are_counted_by_whether_their_masters_answer() -> None:
    cluster = FakeCluster(cells=(1, 2))
    cluster.run(5_000)
    cluster.lose_cell(1, runs_on=True)
    found = shown(view=cluster.view)
    assert value(found, "standfast_cells", state="up") == 1
    assert value(found, "standfast_cells", state="lost") == 1
