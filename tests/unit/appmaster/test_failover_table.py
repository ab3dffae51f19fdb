"""Every row of the failover table: the state is brought about, the trigger pulled, and the row's story comes out."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from appmaster.planning import actions as todo
from appmaster.planning.actions import Kind
from appmaster.planning.cases import STAGES
from appmaster.planning.drawing import page
from appmaster.planning.scenario import STEPS, Counted, Flight, LeftOut, Scenario, Trigger, Under
from appmaster.planning.scenarios import LEFT_OUT, SCENARIOS
from appmaster.planning.view import OnExhausted, Policy
from appmaster.planning.waits import WAITS
from tests.fakes.yarn import FakeCluster
from tests.unit.appmaster.flights import FLIGHTS, active_of, cast, deployed
from tests.unit.appmaster.plays import VICTIMS, cluster_for, played, story


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
    if under is Under.PROMOTE and flight in (Flight.ASKING, Flight.STOPPING, Flight.RESERVING):
        deployed(cluster)
        cluster.news.clear()
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
    (Flight.STOPPING, Trigger.RETURN, Under.RESTART),
    (Flight.MOVING, Trigger.FILLED, Under.PROMOTE),
    (Flight.UPGRADING, Trigger.PLANNED, Under.PROMOTE),
    (Flight.UNDEPLOYING, Trigger.LEADER, Under.PROMOTE),
)


def test_every_rule_has_its_moment() -> None:
    parking = FakeCluster(policy=Policy(on_exhausted=OnExhausted.PARK, retry_count=0))
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
    cut_off = FakeCluster(policy=Policy(progress_timeout_ms=10_000))
    deployed(cut_off)
    cut_off.cut_off.add(active_of(cut_off).container)
    cut_off.run(15_000)
    obeyed = obeyed_rules(parking) | obeyed_rules(of_an_earlier_day) | obeyed_rules(cut_off)
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
