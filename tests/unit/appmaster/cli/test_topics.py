"""``standfast topics``, and what a submit records of topics: by what the brokers say of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import pytest
from msgspec.structs import replace

from appmaster.adapters.kafka import Topics
from appmaster.cli.jobs.topics import table
from appmaster.cli.launch.checks import with_ids_of_the_run, with_topic_ids
from appmaster.cli.shared.deadline import Deadline
from standby.errors import BadConfiguration, Unavailable
from standby.shared.model import TopicIdentity
from standby.shared.wire import JobDefinition
from tests.fakes.clock import WaitClock
from tests.unit.appmaster.topics.test_ids import BARE, CONFIG, DEFINITION, FOUND, RECORDED


class Brokers:
    """Topics with ids; one that was just made is known at the second question only."""

    def __init__(self, **changes: str) -> None:
        self.found = {topic: topic_id for topic, topic_id in {**FOUND, **changes}.items() if topic_id}
        self.is_slow = False

    def ids(self, names: Collection[str]) -> dict[str, str]:
        if self.is_slow:
            self.is_slow = False
            return {}
        return {each: self.found[each] for each in names if each in self.found}


def submitted(
    definition: JobDefinition, brokers: Brokers, said: list[str], *, has_run: bool
) -> JobDefinition:
    topics = cast("Topics", brokers)
    return with_topic_ids(CONFIG, topics, definition, said.append, has_run=has_run)


def known(brokers: Brokers, definition: JobDefinition, deadline: Deadline) -> JobDefinition:
    return with_ids_of_the_run(CONFIG, cast("Topics", brokers), definition, deadline)


@pytest.mark.parametrize("late", ["changelog", "in"])
def test_a_first_submit_records_what_there_is_and_waits_until_a_broker_knows_the_rest(late: str) -> None:
    said: list[str] = []
    brokers, clock = Brokers(**{late: ""}), WaitClock()
    found = submitted(BARE, brokers, said, has_run=False)
    assert found.topics == {topic: each for topic, each in RECORDED.items() if topic != late}
    assert said == []
    with pytest.raises(Unavailable, match=f"topic {late} was created, but no broker knows it"):
        known(brokers, found, Deadline(60.0, WaitClock()))
    brokers.found[late] = FOUND[late]
    brokers.is_slow = True
    assert known(brokers, found, Deadline(0.0, clock)).topics == RECORDED
    assert clock.waits == 1


def test_a_later_submit_says_what_it_records_of_an_output_that_was_created_since() -> None:
    said: list[str] = []
    without = replace(DEFINITION, topics={each: RECORDED[each] for each in RECORDED if each != "out"})
    assert submitted(without, Brokers(), said, has_run=True).topics == RECORDED
    assert said == ["output out: its id was not known before and is recorded now; nothing was compared"]


def test_a_submit_of_a_run_whose_topic_is_another_one_or_gone_is_refused_and_makes_no_changelog() -> None:
    for brokers, told in (
        (Brokers(changelog="another"), "changelog was deleted and created again"),
        (Brokers(changelog=""), r"changelog, .* does not exist any more.*--accept changelog"),
    ):
        with pytest.raises(BadConfiguration, match=told):
            submitted(DEFINITION, brokers, [], has_run=True)


def test_the_table_tells_how_each_topic_compares() -> None:
    topics = {**RECORDED, "also": TopicIdentity()}
    rows = table(replace(DEFINITION, topics=topics), CONFIG, {**FOUND, "out": "another"})
    assert [(each["topic"], each["state"]) for each in rows] == [
        ("in", "same"),
        ("also", "not recorded"),
        ("changelog", "same"),
        ("out", "made again"),
        ("dead", "same"),
    ]
    missing = table(DEFINITION, CONFIG, {})
    assert {each["state"] for each in missing} == {"missing"}
    assert missing[0]["recorded_id"] == "id of in"
