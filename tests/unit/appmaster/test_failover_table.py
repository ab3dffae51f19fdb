"""Every row of the failover table: the state is brought about, the trigger pulled, and the row's story comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import pytest

from appmaster import metrics as m
from appmaster.counting import Count, counts
from appmaster.planning import actions as todo
from appmaster.planning import events as happened
from appmaster.planning.actions import Kind
from appmaster.planning.cases import STAGES
from appmaster.planning.drawing import page
from appmaster.planning.plan import plan
from appmaster.planning.scenario import (
    STEPS,
    Counted,
    Flight,
    LeftOut,
    Scenario,
    Story,
    Trigger,
    Under,
)
from appmaster.planning.scenarios import LEFT_OUT, SCENARIOS
from appmaster.planning.view import JobState, OnExhausted, Operation, Policy
from appmaster.planning.waits import WAITS
from appmaster.telling import entry
from standby.model import Phase, Role, TaskId, TaskRecord, Wanted
from tests.fakes.yarn import RESTORE_MS, FakeCluster, Process, in_time

TASK: Final = TaskId("job", "main", 0)

#: For how long what is under way is held up after the trigger: longer than a silence takes to be noticed.
HELD_UP_MS: Final = 4_000


def record(cluster: FakeCluster) -> TaskRecord:
    return cluster.versions[TASK].record


def process_of(cluster: FakeCluster, copy: int | None) -> Process:
    found = cluster.by_container(record(cluster).placed[copy])  # type: ignore[index]
    assert found is not None
    return found


def active_of(cluster: FakeCluster) -> Process:
    return process_of(cluster, record(cluster).active)


def standby_of(cluster: FakeCluster) -> Process:
    [copy] = [each for each in record(cluster).placed if each != record(cluster).active]
    return process_of(cluster, copy)


@dataclass(frozen=True)
class Cast:
    """Who plays which part when the trigger is pulled."""

    active: Process | None
    standby: Process | None
    filled: Process | None = None
    reserved: Process | None = None
    displaced: Process | None = None


def cast(cluster: FakeCluster) -> Cast:
    """Return the parts as the records give them."""
    now = record(cluster)
    by_copy = {
        copy: process
        for copy, container in now.placed.items()
        if (process := cluster.by_container(container)) is not None
    }
    idle = [each for each in cluster.processes.values() if each.container not in now.placed.values()]
    return Cast(
        active=by_copy.get(now.active) if now.active is not None else None,
        standby=next((by_copy[copy] for copy in by_copy if copy not in (now.active, now.displaced)), None),
        filled=next((cluster.by_container(each) for each in now.moving.values()), None),
        reserved=next(iter(idle), None) if now.displaced is not None else None,
        displaced=by_copy.get(now.displaced) if now.displaced is not None else None,
    )


def until(cluster: FakeCluster, is_so: Callable[[], bool]) -> None:
    for _ in range(400):
        if is_so():
            return
        cluster.run(100)
    raise AssertionError("the state did not come about")


# ---- what is in flight ----


def deployed(cluster: FakeCluster) -> None:
    until(cluster, lambda: bool(cluster.versions) and cluster.is_whole() and plan(cluster.view) == ())


def standby_restores(process: Process, wanted: Wanted) -> Phase:
    return Phase.ACTIVE if wanted.role is Role.ACTIVE else Phase.RESTORING


def new_active_drains(process: Process, wanted: Wanted) -> Phase:
    return Phase.DRAINING if wanted.role is Role.ACTIVE else Phase.TAILING


def first_deploy(cluster: FakeCluster) -> None:
    cluster.phase_of = lambda process, wanted: Phase.RESTORING
    until(cluster, lambda: TASK in cluster.versions and len(record(cluster).placed) == 2)
    cluster.run(500)


def failover_ordered(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.restore_ms = 60_000  # whoever is told what to be says nothing yet
    _lose_active(cluster)


def another_standby(cluster: FakeCluster) -> None:
    failover_ordered(cluster)
    assert len(cluster.processes) == 2


def promotion(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.phase_of = new_active_drains
    _lose_active(cluster)
    cluster.run(500)
    assert {each.phase for each in active_of(cluster).replicas.values()} == {Phase.DRAINING}


def _lose_active(cluster: FakeCluster) -> None:
    before = record(cluster).epoch
    lost = active_of(cluster)
    if cluster.policy.restarts:
        cluster.lose_host(lost.host, silent=False)
    else:
        cluster.kill(lost.skein_id)
    until(cluster, lambda: record(cluster).epoch > before)


def restoring(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.phase_of = standby_restores
    cluster.kill(standby_of(cluster).skein_id)
    cluster.run(300)
    until(cluster, lambda: len(record(cluster).placed) == 2 and bool(standby_of(cluster).replicas))
    cluster.run(500)
    assert record(cluster).in_sync == (record(cluster).active,)


def moving(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.exclude(standby_of(cluster).host)
    there = standby_of(cluster).container
    cluster.phase_of = lambda process, wanted: (
        Phase.ACTIVE
        if wanted.role is Role.ACTIVE
        else Phase.TAILING
        if process.container == there
        else Phase.RESTORING
    )
    until(cluster, lambda: bool(record(cluster).moving))
    cluster.run(500)


def preparing(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.never_prepares.add(standby_of(cluster).container)
    cluster.command(Operation.FAIL_OVER, 0)
    cluster.run(500)
    assert cluster.view.handovers


def stopping(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.never_stops.add(standby_of(cluster).container)
    cluster.lose_host(active_of(cluster).host, silent=False)
    until(cluster, lambda: record(cluster).displaced is not None)
    cluster.run(1_000)
    assert len(cluster.processes) == 2


def reserving(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.lose_host(active_of(cluster).host, silent=False)
    until(cluster, lambda: record(cluster).displaced is not None)
    cluster.grants_nothing = True
    cluster.run(500)
    assert len(cluster.processes) == 1
    assert cluster.view.requests


def upgrading(cluster: FakeCluster) -> None:
    deployed(cluster)
    before = standby_of(cluster).container
    cluster.phase_of = standby_restores
    cluster.load(revision=2)
    until(
        cluster,
        lambda: len(record(cluster).placed) == 2 and standby_of(cluster).container != before,
    )
    cluster.run(500)


def undeploying(cluster: FakeCluster) -> Cast:
    deployed(cluster)
    found = cast(cluster)
    cluster.fences_nothing = True
    cluster.undeploy()
    cluster.run(300)
    assert record(cluster).active is None
    assert len(cluster.processes) == 2
    return found


def release(cluster: FakeCluster) -> None:
    """Let go on what was held up."""
    cluster.phase_of = in_time
    cluster.restore_ms = RESTORE_MS
    cluster.never_prepares.clear()
    cluster.never_stops.clear()
    cluster.grants_nothing = False
    for process in cluster.processes.values():
        process.ready_ms = min(process.ready_ms, cluster.now_ms)
    if cluster.fences_nothing:
        cluster.fences_nothing = False
        if cluster.view.jobs["job"].is_fencing:
            cluster.tell(happened.TasksFenced("job"))


#: Brings a cluster into a state.
FLIGHTS: Final[Mapping[Flight, Callable[[FakeCluster], Cast | None]]] = {
    Flight.NOTHING: deployed,
    Flight.FIRST_DEPLOY: first_deploy,
    Flight.FAILOVER: failover_ordered,
    Flight.ANOTHER: another_standby,
    Flight.PROMOTION: promotion,
    Flight.RESTORING: restoring,
    Flight.MOVING: moving,
    Flight.PREPARING: preparing,
    Flight.STOPPING: stopping,
    Flight.RESERVING: reserving,
    Flight.UPGRADING: upgrading,
    Flight.UNDEPLOYING: undeploying,
}


# ---- what happens ----


def pull(cluster: FakeCluster, trigger: Trigger, parts: Cast) -> None:
    """Have it happen."""
    victims = VICTIMS[trigger](parts)
    if trigger is Trigger.STUCK:
        victims[0].is_scripted = True
    elif trigger is Trigger.PLANNED:
        cluster.exclude(*cluster.excluded, victims[0].host)
    elif trigger in (Trigger.ACTIVE_HOST, Trigger.ACTIVE_SILENT, Trigger.STANDBY_HOST):
        cluster.lose_host(victims[0].host, silent=trigger is Trigger.ACTIVE_SILENT)
    else:
        for each in victims:
            cluster.kill(each.skein_id)
    if trigger in (Trigger.LEADER, Trigger.LEADER_AND_ACTIVE):
        cluster.elect(cluster.view.epoch + 1)


def _if_all(*processes: Process | None) -> list[Process]:
    found = [each for each in processes if each is not None]
    return found if len(found) == len(processes) else []


#: Who is hit; nobody: it cannot be.
VICTIMS: Final[Mapping[Trigger, Callable[[Cast], list[Process]]]] = {
    Trigger.ACTIVE_PROCESS: lambda parts: _if_all(parts.active),
    Trigger.ACTIVE_HOST: lambda parts: _if_all(parts.active),
    Trigger.ACTIVE_SILENT: lambda parts: _if_all(parts.active),
    Trigger.STANDBY_PROCESS: lambda parts: _if_all(parts.standby),
    Trigger.STANDBY_HOST: lambda parts: _if_all(parts.standby or parts.displaced),
    Trigger.BOTH: lambda parts: _if_all(parts.active, parts.standby),
    Trigger.PLANNED: lambda parts: _if_all(parts.active or parts.displaced),
    Trigger.LEADER: lambda parts: [],
    Trigger.LEADER_AND_ACTIVE: lambda parts: _if_all(parts.active),
    Trigger.FILLED: lambda parts: _if_all(parts.filled),
    Trigger.RESERVED: lambda parts: _if_all(parts.reserved),
    Trigger.DISPLACED: lambda parts: _if_all(parts.displaced),
    Trigger.STUCK: lambda parts: _if_all(parts.displaced) if parts.reserved else [],
}


#: Counters and labels → the word for it.
COUNTED: Final[Mapping[tuple[str, tuple[str, ...]], Counted]] = {
    (m.CONTAINER_FAILURES.name, ("active",)): Counted.ACTIVE,
    (m.CONTAINER_FAILURES.name, ("standby",)): Counted.STANDBY,
    (m.CONTAINER_FAILURES.name, ("none",)): Counted.IDLE,
    (m.FAILOVERS.name, ("promote",)): Counted.FAILOVER,
    (m.FAILOVERS.name, ("restart",)): Counted.FAILOVER,
    (m.WITHOUT_STANDBY.name, ("restoring",)): Counted.RESTORING,
    (m.WITHOUT_STANDBY.name, ("no-other-copy-lives",)): Counted.NOBODY,
    (m.WITHOUT_STANDBY.name, ("standby-stayed",)): Counted.STAYED,
    (m.HANDOVERS.name, ()): Counted.HANDOVER,
}


def story(cluster: FakeCluster) -> Story:
    """Return what was told since the trigger, in the words of the table."""
    words = {kind: word for word, kind in STEPS.items()}
    steps = tuple(words[each.kind] for each in cluster.news if each.kind in words)
    return Story(steps, tuple(sorted(_counted(cluster), key=list(Counted).index)))


def _counted(cluster: FakeCluster) -> Iterator[Counted]:
    for news in cluster.news:
        for each in counts(entry(news, cluster.view)):
            if isinstance(each, Count) and each.counter.name in {name for name, _ in COUNTED}:
                yield COUNTED[each.counter.name, each.labels[1:2]]


# ---- the table ----


def cluster_for(flight: Flight, under: Under) -> FakeCluster:
    """Return a cluster on which a row can be played."""
    is_mixed = under is Under.MIXED
    return FakeCluster(
        tasks=3 if is_mixed else 2,
        containers=3 if is_mixed else 1,
        is_mixed=is_mixed,
        standbys=2 if flight is Flight.ANOTHER else 1,
        # As many as are left for all copies when two of them are gone.
        hosts=("h1", "h2", "h3", "h4", "h5")[: 5 if flight is Flight.ANOTHER else 4],
        policy=Policy(restarts=under is Under.RESTART),
    )


def is_over(cluster: FakeCluster) -> bool:
    """Return whether nothing is under way any more."""
    if not cluster.is_wanted:
        return cluster.view.jobs["job"].state is JobState.UNDEPLOYED
    return not cluster.view.unsettled and not cluster.view.requests and not cluster.later


def spent(cluster: FakeCluster) -> int:
    """Return how much of the retry budgets is spent."""
    return sum(len(each.failures_ms) for each in cluster.view.attempts.values())


def played(flight: Flight, trigger: Trigger, under: Under) -> FakeCluster:
    """Return the cluster some time after the trigger was pulled: whole, and the planner quiet."""
    cluster = cluster_for(flight, under)
    parts = FLIGHTS[flight](cluster) or cast(cluster)
    cluster.news.clear()
    before = spent(cluster)
    pull(cluster, trigger, parts)
    cluster.run(HELD_UP_MS)
    release(cluster)
    until(cluster, lambda: is_over(cluster))
    cluster.run(3_000)
    assert is_over(cluster)
    assert plan(cluster.view) == ()
    assert spent(cluster) <= before + cluster.kinds().count("container_lost"), "a planned stop is no failure"
    if flight is Flight.UNDEPLOYING:
        assert not cluster.processes
    else:
        assert cluster.is_whole()
        assert cluster.view.jobs["job"].state is JobState.DEPLOYED
    return cluster


def policies(under: Under) -> tuple[Under, ...]:
    return (Under.PROMOTE, Under.RESTART) if under is Under.EITHER else (under,)


ROWS: Final = [
    pytest.param(each, under, id=f"{each.flight.name}-{each.trigger.name}-{under.name}".lower())
    for each in SCENARIOS
    for under in policies(each.under)
]


@pytest.mark.parametrize(("row", "under"), ROWS)
def test_the_rows_story_comes_out(row: Scenario, under: Under) -> None:
    cluster = played(row.flight, row.trigger, under)
    assert story(cluster) == row.story


def left_out(flight: Flight, trigger: Trigger, under: Under) -> LeftOut | None:
    return next(
        (
            each
            for each in LEFT_OUT
            if flight in each.flights and trigger in each.triggers and under in each.under
        ),
        None,
    )


def test_every_combination_has_one_row_or_is_left_out_with_a_reason() -> None:
    rows = Counter((each.flight, each.trigger, under) for each in SCENARIOS for under in policies(each.under))
    assert set(rows.values()) == {1}
    for flight in Flight:
        for trigger in Trigger:
            for under in (Under.PROMOTE, Under.RESTART):
                has_row = (flight, trigger, under) in rows
                assert has_row != (left_out(flight, trigger, under) is not None), (flight, trigger, under)


@pytest.mark.parametrize("under", [Under.PROMOTE, Under.RESTART])
@pytest.mark.parametrize("flight", Flight)
def test_nobody_can_be_hit_in_what_is_left_out(flight: Flight, under: Under) -> None:
    cluster = cluster_for(flight, under)
    if under is Under.PROMOTE and flight in (Flight.STOPPING, Flight.RESERVING):
        deployed(cluster)
        cluster.lose_host(active_of(cluster).host, silent=False)
        cluster.run(30_000)
        assert "decided_displace" not in cluster.kinds()
        return
    parts = FLIGHTS[flight](cluster) or cast(cluster)
    for trigger in Trigger:
        if left_out(flight, trigger, under) is not None:
            assert not VICTIMS[trigger](parts), trigger


def test_no_planned_trigger_alone_is_counted_as_a_failure() -> None:
    failures = {Counted.ACTIVE, Counted.STANDBY, Counted.IDLE, Counted.FAILOVER, Counted.RESTORING}
    for each in SCENARIOS:
        if each.trigger in (Trigger.PLANNED, Trigger.LEADER) and each.flight not in (
            # The active is lost before: what is counted is how that ends.
            Flight.STOPPING,
            Flight.RESERVING,
        ):
            assert not failures & set(each.story.counted), each


# ---- the rules, and the page ----


def test_every_deadline_is_one_of_the_policys_and_every_one_of_those_bounds_something() -> None:
    known = {each.name for each in fields(Policy) if each.name.endswith("_ms")}
    named = {rule.deadline for stage in STAGES for rule in stage.rules if rule.deadline}
    named |= {each.deadline for each in WAITS}
    assert named == known


RULES: Final = {rule.name: rule for stage in STAGES for rule in stage.rules}


def obeyed_rules(cluster: FakeCluster) -> set[str]:
    """Return the rules that decided something; each decision must be one that its rule is said to take."""
    found = set()
    for each in cluster.actions:
        if isinstance(each, todo.WriteRecords):
            rule = str(each.data["rule"])
            assert each.kind in RULES[rule].decides
            found.add(rule)
        for kind, rule in ((todo.PrepareHandover, "prepare"), (todo.ForgetHandover, "hand over")):
            if isinstance(each, kind):
                assert kind in RULES[rule].decides
                found.add(rule)
    return found


#: Rows in which every rule has something to decide, but that of a parked processor.
TELLING: Final = (
    (Flight.NOTHING, Trigger.ACTIVE_PROCESS, Under.PROMOTE),
    (Flight.NOTHING, Trigger.ACTIVE_PROCESS, Under.RESTART),
    (Flight.NOTHING, Trigger.ACTIVE_HOST, Under.RESTART),
    (Flight.NOTHING, Trigger.BOTH, Under.PROMOTE),
    (Flight.STOPPING, Trigger.PLANNED, Under.RESTART),
    (Flight.MOVING, Trigger.FILLED, Under.PROMOTE),
    (Flight.UPGRADING, Trigger.PLANNED, Under.PROMOTE),
    (Flight.UNDEPLOYING, Trigger.LEADER, Under.PROMOTE),
)


def test_every_rule_has_its_moment() -> None:
    parking = FakeCluster(policy=Policy(on_exhausted=OnExhausted.PARK, retry_count=0))
    deployed(parking)
    parking.kill(active_of(parking).skein_id)
    parking.run(5_000)
    obeyed = obeyed_rules(parking)
    for flight, trigger, under in TELLING:
        obeyed |= obeyed_rules(played(flight, trigger, under))
    assert obeyed == set(RULES)


def test_what_decides_in_the_stories_is_what_the_rules_decide() -> None:
    decided = {
        f"decided_{each.value.replace('-', '_')}"
        for rule in RULES.values()
        for each in rule.decides
        if isinstance(each, Kind)
    }
    told = {STEPS[word] for each in SCENARIOS for word in each.story.steps}
    assert {each for each in told if each.startswith("decided_")} <= decided
    assert len(decided) == len(Kind)


def test_the_drawn_page_is_up_to_date() -> None:
    drawn = Path(__file__).parents[3] / "docs" / "failover.md"
    assert drawn.read_text(encoding="utf-8") == page(), (
        "run python -m appmaster.planning.drawing > docs/failover.md"
    )
