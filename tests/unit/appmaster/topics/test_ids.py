"""The topics of a job's run: what is recorded of them, and what a changed id means for each kind."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from appmaster.records import JobRecord
from appmaster.topics.ids import TopicObstacle, accept, judge, kinds, with_topics
from standby.config import parse
from standby.errors import BadConfiguration
from standby.shared.model import TopicIdentity
from standby.shared.wire import JobDefinition
from tests.cases import case
from tests.fakes.jobs import JOB

FLAT = {
    **JOB,
    "task.inputs": "in,also",
    "task.outputs": "out",
    "task.on.error": "dead-letter",
    "task.dead.letter": "dead",
}
CONFIG = parse(FLAT)
NAMES = ("in", "also", "changelog", "out", "dead")
FOUND = {each: f"id of {each}" for each in NAMES}
RECORDED = {topic: TopicIdentity(topic_id) for topic, topic_id in FOUND.items()}
BARE = JobDefinition("j", "run", FLAT, "changelog", "group", 4)
DEFINITION = replace(BARE, topics=RECORDED)


def test_a_job_has_topics_of_four_kinds() -> None:
    assert kinds(BARE, CONFIG) == {
        "in": "input",
        "also": "input",
        "changelog": "changelog",
        "out": "output",
        "dead": "dead letters",
    }
    assert "dead" not in kinds(BARE, parse({**FLAT, "task.on.error": "skip"}))


def test_a_run_of_an_earlier_release_records_what_it_finds_first_and_says_so() -> None:
    judged = judge(BARE, CONFIG, FOUND)
    assert judged.topics == RECORDED
    assert [each.is_changed for each in judged.events] == [False] * len(NAMES)
    first = judged.events[0]
    assert (first.topic, first.kind, first.recorded_id, first.topic_id) == ("in", "input", "", "id of in")
    same = judge(DEFINITION, CONFIG, FOUND)
    assert (same.topics, same.events, same.obstacle, same.missing) == (RECORDED, (), "", ()), "no news"


def test_another_input_or_changelog_stops_the_job_and_another_output_is_written_to_and_reported() -> None:
    for topic in ("in", "also", "changelog"):
        judged = judge(DEFINITION, CONFIG, {**FOUND, topic: "another"})
        told = f"{topic} was deleted and created again (its id was id of {topic}, and is another)"
        assert told in judged.obstacle, topic
        assert f"standfast topics j --accept {topic}" in judged.obstacle
        assert (judged.topics, judged.events) == (RECORDED, ()), topic
    for topic in ("out", "dead"):
        judged = judge(DEFINITION, CONFIG, {**FOUND, topic: "another"})
        assert judged.obstacle == "", topic
        assert judged.topics == {**RECORDED, topic: TopicIdentity("another")}
        (event,) = judged.events
        assert (event.is_changed, event.recorded_id, event.topic_id) == (True, f"id of {topic}", "another")


def test_a_missing_topic_is_reported_as_that() -> None:
    judged = judge(DEFINITION, CONFIG, {"in": "id of in", "out": "id of out"})
    assert judged.missing == (
        "also, an input, does not exist",
        "changelog, the changelog, does not exist",
        "dead, the topic of dead letters, does not exist",
    )
    assert (judged.obstacle, judged.topics) == ("", RECORDED)


def test_what_was_accepted_since_is_no_obstacle_and_not_overwritten() -> None:
    accepted = accept(DEFINITION, CONFIG, "in", {**FOUND, "in": "another"}, "latest")
    assert accepted["in"] == TopicIdentity("another", 1, "latest")
    obstacle = TopicObstacle("run", RECORDED, "because")
    assert obstacle.of(DEFINITION) == "because"
    assert obstacle.of(replace(DEFINITION, topics=accepted)) == ""
    assert obstacle.of(replace(DEFINITION, run="another")) == ""
    record = JobRecord(replace(DEFINITION, topics=accepted), former=(DEFINITION,))
    found = {**RECORDED, "in": TopicIdentity("of a look before that"), "out": TopicIdentity("new")}
    written = with_topics(record, RECORDED, found)
    assert written.definition.topics == {**accepted, "out": TopicIdentity("new")}
    assert written.former[0].topics["out"] == TopicIdentity("new")


def test_each_acceptance_is_a_generation_of_its_own() -> None:
    first = accept(DEFINITION, CONFIG, "in", {**FOUND, "in": "another"}, "earliest")
    changed = replace(DEFINITION, topics=first)
    second = accept(changed, CONFIG, "changelog", {**FOUND, "changelog": "another"}, "")
    assert second["in"] == TopicIdentity("another", 1, "earliest")
    assert second["changelog"] == TopicIdentity("another", 2)
    again = accept(changed, CONFIG, "changelog", {**FOUND, "changelog": "another"}, "earliest")
    assert again["in"] == TopicIdentity("another", 2, "earliest")
    assert again["also"] == TopicIdentity("id of also", 2, "earliest")
    assert accept(changed, CONFIG, "out", {**FOUND, "out": "another"}, "")["out"] == TopicIdentity("another")


def test_what_cannot_be_accepted_is_named() -> None:
    found = {name: each for name, each in FOUND.items() if name != "also"}
    for topic, start, told in (
        ("other", "", "is not a topic of j; it has in, also, changelog, out, dead"),
        ("in", "", "say where to read it from"),
        ("out", "latest", "is not read"),
        ("also", "latest", "does not exist; create it first"),
    ):
        with case(topic), pytest.raises(BadConfiguration, match=told):
            accept(DEFINITION, CONFIG, topic, found, start)
