"""Plays one row of the failover table on the fake cluster, and returns its story in the table's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from appmaster.eventlog.counting import counts
from appmaster.planning.plan import plan
from appmaster.planning.state import counters as m
from appmaster.planning.state.job import JobState, PlannerPolicy
from tests.fakes.yarn import FakeCluster, Process
from tests.scenarios.flights import FLIGHTS, RETURNS_MS, Cast, cast, release, until
from tests.scenarios.words import STEPS, Counted, Flight, Story, Trigger, Under

#: For how long the operation is held up after the trigger: longer than the detection of a silence.
HELD_UP_MS: Final = 4_000

#: How long a lost state takes to restore: longer than any step of a failover.
RESTORES_FOR_MS: Final = 30_000


# ---- what happens ----


def pull(cluster: FakeCluster, trigger: Trigger, parts: Cast) -> None:
    victims = VICTIMS[trigger](parts)
    assert victims or trigger is Trigger.LEADER
    if trigger is Trigger.STUCK:
        victims[0].is_scripted = True
    elif trigger is Trigger.RETURN:
        cluster.frozen.clear()
    elif trigger is Trigger.STATE:
        victims[0].restores_until_ms = cluster.now_ms + RESTORES_FOR_MS
    elif trigger is Trigger.PLANNED:
        cluster.drain(*cluster.drained, victims[0].host)
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


#: The containers that are hit; none: the combination cannot occur.
VICTIMS: Final[Mapping[Trigger, Callable[[Cast], list[Process]]]] = {
    Trigger.ACTIVE_PROCESS: lambda parts: _if_all(parts.active),
    Trigger.ACTIVE_HOST: lambda parts: _if_all(parts.active),
    Trigger.ACTIVE_SILENT: lambda parts: _if_all(parts.active),
    Trigger.STANDBY_PROCESS: lambda parts: _if_all(parts.standby),
    Trigger.STANDBY_HOST: lambda parts: _if_all(parts.standby or parts.displaced),
    Trigger.BOTH: lambda parts: _if_all(parts.active, parts.standby),
    Trigger.STATE: lambda parts: _if_all(parts.active),
    Trigger.PLANNED: lambda parts: _if_all(parts.active or parts.displaced),
    Trigger.LEADER: lambda parts: [],
    Trigger.LEADER_AND_ACTIVE: lambda parts: _if_all(parts.active),
    Trigger.RETURN: lambda parts: _if_all(parts.silent),
    Trigger.FILLED: lambda parts: _if_all(parts.filled),
    Trigger.RESERVED: lambda parts: _if_all(parts.reserved),
    Trigger.DISPLACED: lambda parts: _if_all(parts.displaced),
    Trigger.STUCK: lambda parts: _if_all(parts.displaced) if parts.reserved else [],
}


#: Counters and labels → the word for it.
COUNTED: Final[Mapping[tuple[str, tuple[str, ...]], Counted]] = {
    (m.CONTAINER_FAILURES.name, ("active",)): Counted.ACTIVE,
    (m.CONTAINER_FAILURES.name, ("standby",)): Counted.STANDBY,
    (m.CONTAINER_FAILURES.name, ("mixed",)): Counted.BOTH,
    (m.CONTAINER_FAILURES.name, ("none",)): Counted.IDLE,
    (m.FAILOVERS.name, ("promote",)): Counted.FAILOVER,
    (m.FAILOVERS.name, ("restart",)): Counted.FAILOVER,
    (m.WITHOUT_STANDBY.name, ("restoring",)): Counted.RESTORING,
    (m.WITHOUT_STANDBY.name, ("no-other-copy-lives",)): Counted.NO_COPY,
    (m.WITHOUT_STANDBY.name, ("standby-stayed",)): Counted.STAYED,
    (m.HANDOVERS.name, ()): Counted.HANDOVER,
}


def story(cluster: FakeCluster) -> Story:
    """Return the entries since the trigger, in the words of the table."""
    words = {kind: word for word, kind in STEPS.items()}
    steps = tuple(words[each.kind] for each in cluster.entries if each.kind in words)
    return Story(steps, tuple(sorted(_counted(cluster), key=list(Counted).index)))


def _counted(cluster: FakeCluster) -> Iterator[Counted]:
    for entry in cluster.entries:
        for each in counts(entry):
            if each.metric.name in {name for name, _ in COUNTED}:
                yield COUNTED[each.metric.name, each.labels[1:2]]


# ---- the table ----


def cluster_for(flight: Flight, under: Under, trigger: Trigger = Trigger.LEADER) -> FakeCluster:
    """Return a cluster on which a row can be played."""
    is_mixed = under is Under.MIXED
    # The rows show the effects of a silence that lasts longer than the other waits.
    policy = PlannerPolicy(restarts=under is Under.RESTART, host_timeout_ms=2_000)
    if trigger is Trigger.RETURN:
        policy = replace(policy, suspect_grace_ms=RETURNS_MS)
    return FakeCluster(
        tasks=3 if is_mixed else 2,
        containers=3 if is_mixed else 1,
        is_mixed=is_mixed,
        standbys=2 if flight is Flight.ANOTHER else 1,
        # Enough for all copies after the loss of two hosts.
        hosts=("h1", "h2", "h3", "h4", "h5")[: 5 if flight is Flight.ANOTHER else 4],
        policy=policy,
    )


def is_over(cluster: FakeCluster) -> bool:
    """Return whether no operation is in progress any more."""
    if not cluster.is_wanted:
        return cluster.view.jobs["job"].state is JobState.UNDEPLOYED
    waits = cluster.view.requests or cluster.view.rebalancing or cluster.later
    return not cluster.view.unsettled and not waits


def spent(cluster: FakeCluster) -> int:
    """Return how much of the retry budgets is used."""
    return sum(len(each.failures_ms) for each in cluster.view.attempts.values())


def played(flight: Flight, trigger: Trigger, under: Under) -> FakeCluster:
    """Return the cluster some time after the trigger was pulled: whole, and the planner quiet."""
    cluster = cluster_for(flight, under, trigger)
    parts = FLIGHTS[flight](cluster) or cast(cluster)
    cluster.entries.clear()
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
