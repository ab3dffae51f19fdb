"""Every failover scenario: the state is brought about, the trigger pulled, and the story in the file comes out."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import Final

import pytest

from appmaster.planning.rules.table import STAGES
from appmaster.planning.state import actions as todo
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.job import OnExhausted, PlannerPolicy
from appmaster.planning.state.reasons import HandoverMotive
from docs.generate.waits import WAITS
from tests.fakes.yarn import FakeCluster
from tests.scenarios.flights import FLIGHTS, active_of, cast, deployed
from tests.scenarios.left_out import left_out
from tests.scenarios.plays import VICTIMS, cluster_for, played, story
from tests.scenarios.table import paragraph, parse, path, render, scenarios
from tests.scenarios.words import Counted, Flight, Scenario, Trigger, Under


def policies(under: Under) -> tuple[Under, ...]:
    return (Under.PROMOTE, Under.RESTART) if under is Under.EITHER else (under,)


SCENARIOS: Final = scenarios()

ROWS: Final = [
    pytest.param(each, under, id=f"{each.flight.name}-{each.trigger.name}-{under.name}".lower())
    for each in SCENARIOS
    for under in policies(each.under)
]


@pytest.mark.parametrize(("row", "under"), ROWS)
def test_the_rows_story_comes_out(row: Scenario, under: Under) -> None:
    found = replace(row, story=story(played(row.flight, row.trigger, under)))
    assert paragraph(found) == paragraph(row), "if that is meant: python -m tests.scenarios.rewrite"


def test_the_files_are_as_they_would_be_written() -> None:
    for flight in Flight:
        text = path(flight).read_text(encoding="utf-8")
        assert text == render(flight, parse(text, flight))


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
def test_no_process_can_be_hit_in_what_is_left_out(flight: Flight, under: Under) -> None:
    cluster = cluster_for(flight, under)
    if under is Under.PROMOTE and flight in (Flight.ASKING, Flight.STOPPING, Flight.RESERVING):
        deployed(cluster)
        cluster.entries.clear()
        cluster.lose_host(active_of(cluster).host, silent=False)
        cluster.run(30_000)
        assert cluster.kinds().index("decided_failover") < cluster.kinds().index("container_requested")
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
            Flight.ASKING,
            Flight.STOPPING,
            Flight.RESERVING,
        ):
            assert not failures & set(each.story.counted), each


# ---- the rules ----


def test_every_deadline_is_one_of_the_policys_and_every_one_of_those_bounds_something() -> None:
    known = {each.name for each in fields(PlannerPolicy) if each.name.endswith("_ms")}
    named = {rule.deadline for stage in STAGES for rule in stage.rules if rule.deadline}
    named |= {each.deadline for each in WAITS}
    assert named == known


RULES: Final = {rule.name: rule for stage in STAGES for rule in stage.rules}


def obeyed_rules(cluster: FakeCluster) -> set[str]:
    """Return the rules that decided something; each decision must be one that its rule is said to take."""
    found = set()
    for each in cluster.actions:
        if isinstance(each, todo.WriteRecords):
            rule = each.facts.rule
            assert rule is not None
            assert each.kind in RULES[rule].decides
            found.add(rule)
        if isinstance(each, todo.PrepareHandover):
            rule = "rebalance" if each.reason.kind is HandoverMotive.REBALANCE else "prepare"
            assert todo.PrepareHandover in RULES[rule].decides
            found.add(rule)
        if isinstance(each, todo.ForgetHandover):
            assert todo.ForgetHandover in RULES["hand over"].decides
            found.add("hand over")
    return found


#: Rows in which every rule has something to decide, but that of a parked processor.
TELLING: Final = (
    (Flight.NOTHING, Trigger.ACTIVE_PROCESS, Under.PROMOTE),
    (Flight.NOTHING, Trigger.ACTIVE_PROCESS, Under.RESTART),
    (Flight.NOTHING, Trigger.ACTIVE_PROCESS, Under.MIXED),
    (Flight.NOTHING, Trigger.ACTIVE_HOST, Under.RESTART),
    (Flight.NOTHING, Trigger.BOTH, Under.PROMOTE),
    (Flight.STOPPING, Trigger.PLANNED, Under.RESTART),
    (Flight.STOPPING, Trigger.RETURN, Under.RESTART),
    (Flight.MOVING, Trigger.FILLED, Under.PROMOTE),
    (Flight.UPGRADING, Trigger.PLANNED, Under.PROMOTE),
    (Flight.UNDEPLOYING, Trigger.LEADER, Under.PROMOTE),
)


def test_every_rule_has_its_moment() -> None:
    parking = FakeCluster(policy=PlannerPolicy(on_exhausted=OnExhausted.PARK, retry_count=0))
    deployed(parking)
    parking.crash(active_of(parking).skein_id)
    parking.run(5_000)
    of_an_earlier_day = FakeCluster()
    deployed(of_an_earlier_day)
    earlier = dict(of_an_earlier_day.versions)
    of_an_earlier_day.kill(active_of(of_an_earlier_day).skein_id)
    of_an_earlier_day.run(10_000)
    of_an_earlier_day.versions = earlier
    of_an_earlier_day.elect(2)
    of_an_earlier_day.run(5_000)
    cut_off = FakeCluster(policy=PlannerPolicy(progress_timeout_ms=10_000))
    deployed(cut_off)
    cut_off.cut_off.add(active_of(cut_off).container)
    cut_off.run(15_000)
    obeyed = obeyed_rules(parking) | obeyed_rules(of_an_earlier_day) | obeyed_rules(cut_off)
    for flight, trigger, under in TELLING:
        obeyed |= obeyed_rules(played(flight, trigger, under))
    assert obeyed == set(RULES)


def test_every_kind_of_decision_is_that_of_a_rule() -> None:
    decided = {each for rule in RULES.values() for each in rule.decides}
    assert set(DecisionKind) <= decided
