"""Partitions that are added to a job's input: adopted when they may be, else reported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import cast

import msgspec
import pytest

from appmaster.adapters.kafka import Topics
from appmaster.planning.state.events import TopicNoted
from appmaster.records import JobRecord
from appmaster.topics import input_growth
from appmaster.topics.input_growth import InputGrowth, growth_note
from appmaster.topics.ports import TopicShape
from standby.config import JobConfig, KafkaSettings, parse
from standby.errors import Unavailable
from standby.shared.wire import JobDefinition
from tests.fakes.jobs import JOB

FLAT = {**JOB, "task.inputs": "input"}


class FakeTopics:
    """Topics with partitions, and the offsets that were committed."""

    def __init__(self) -> None:
        self.partitions = {"input": 4, "changelog": 4}
        self.committed: list[tuple[str, str, int]] = []
        self.topic_ids: dict[str, str] = {}
        self.policy = "compact"
        self.shapes_asked = 0
        self.may_describe_settings = True
        self.is_away = False

    def count(self, name: str) -> int:
        if self.is_away:
            raise Unavailable("no broker")
        return self.partitions.get(name, 0)

    def ids(self, names: Collection[str]) -> dict[str, str]:
        if self.is_away:
            raise Unavailable("no broker")
        return {
            each: self.topic_ids.get(each, f"id of {each}") for each in names if self.partitions.get(each)
        }

    def shape(self, name: str) -> TopicShape:
        self.shapes_asked += 1
        if not self.may_describe_settings:
            raise Unavailable("authorization failed")
        return TopicShape(self.count(name), 1, {"cleanup.policy": self.policy})

    def grow(self, name: str, partitions: int) -> None:
        self.partitions[name] = max(partitions, self.count(name))

    def commit_first(self, group: str, topic: str, partitions: Sequence[int]) -> None:
        self.committed += [(group, topic, each) for each in partitions]


class FakeRecords:
    """The one job's record; checks at each write that its changelog is large enough."""

    def __init__(self, topics: FakeTopics, **settings: str) -> None:
        flat = {**FLAT, **{key.replace("__", "."): value for key, value in settings.items()}}
        self.record = JobRecord(JobDefinition("j", "run", flat, "changelog", "group", 4))
        self._topics = topics

    def update(self, name: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        self.record = change(self.record)
        assert self._topics.partitions["changelog"] >= self.record.definition.tasks
        return self.record


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics()


def growth(topics: FakeTopics, records: FakeRecords, reloads: list[None]) -> InputGrowth:
    return InputGrowth(
        records,
        lambda: {"j": records.record},
        lambda: reloads.append(None),
        connect=lambda _: cast("Topics", topics),
    )


def test_added_partitions_become_tasks_after_the_changelog_has_them(topics: FakeTopics) -> None:
    records, reloads = FakeRecords(topics, task__inputs__may__grow="true"), list[None]()
    looking = growth(topics, records, reloads)
    looking.look()
    assert records.record.definition.tasks == 4
    topics.partitions["input"] = 6
    looking.look()
    assert (records.record.definition.tasks, records.record.definition.revision) == (6, 1)
    assert topics.partitions["changelog"] == 6
    assert topics.committed == [], "a run that begins at the earliest record needs no offset"
    assert looking.found["j"].notes == ""
    assert reloads == []


def test_added_partitions_that_may_not_be_tasks_are_reported_once(topics: FakeTopics) -> None:
    records, reloads = FakeRecords(topics), list[None]()
    looking = growth(topics, records, reloads)
    topics.partitions["input"] = 6
    looking.look()
    looking.look()
    assert records.record.definition.tasks == 4
    assert topics.partitions["changelog"] == 4
    assert len(reloads) == 1
    assert "2 of them are not read" in looking.found["j"].notes
    topics.is_away = True
    looking.look()
    assert "2 of them are not read" in looking.found["j"].notes, "what is not known has not changed"
    topics.is_away = False
    topics.partitions["input"] = 4
    looking.look()
    assert looking.found["j"].notes == ""
    assert len(reloads) == 2


def test_several_inputs_are_adopted_once_all_of_them_have_grown_alike(topics: FakeTopics) -> None:
    settings = {"task__inputs": "input,other", "job__start__offset": "latest"}
    records = FakeRecords(topics, task__inputs__may__grow="true", **settings)
    looking = growth(topics, records, [])
    topics.partitions |= {"input": 6, "other": 4}
    looking.look()
    assert records.record.definition.tasks == 4
    assert topics.partitions["changelog"] == 4
    assert "(input 6, other 4)" in looking.found["j"].notes
    topics.partitions["other"] = 5
    looking.look()
    assert records.record.definition.tasks == 4, "the sixth partition of one would have nothing to go with"
    assert "(input 6, other 5)" in looking.found["j"].notes
    topics.partitions["other"] = 6
    looking.look()
    assert records.record.definition.tasks == 6
    assert topics.committed == [("group", topic, each) for topic in ("input", "other") for each in (4, 5)]
    assert looking.found["j"].notes == ""
    topics.partitions["other"] = 3
    looking.look()
    assert "other has 3 partitions, fewer than the job's 6 tasks" in looking.found["j"].notes


@pytest.mark.parametrize(
    ("run", "settings"),
    [
        ("run2", {"task.inputs.may.grow": "true", "task.inputs": "other"}),
        ("run", {"task.inputs.may.grow": "false"}),
    ],
)
def test_partitions_are_not_adopted_by_a_record_that_was_changed_during_the_look(
    topics: FakeTopics, run: str, settings: dict[str, str]
) -> None:
    records = FakeRecords(topics, task__inputs__may__grow="true")
    looking = growth(topics, records, [])
    looking.look()
    topics.partitions["input"] = 6
    changed = msgspec.structs.replace(
        records.record,
        definition=msgspec.structs.replace(records.record.definition, run=run, config={**FLAT, **settings}),
    )

    def grow(name: str, partitions: int) -> None:
        topics.partitions[name] = partitions
        records.record = changed

    topics.grow = grow  # type: ignore[method-assign]
    looking.look()
    assert topics.partitions["changelog"] == 6
    assert records.record == changed


@pytest.mark.parametrize(
    ("partitions", "may_grow", "said"),
    [
        (4, False, ""),
        (6, True, ""),
        (6, False, "task.inputs.may.grow=true"),
        (3, True, "fewer than the job's 4 tasks"),
        (0, True, "does not exist any more"),
    ],
)
def test_note_says_what_is_wrong_with_the_input(partitions: int, may_grow: bool, said: str) -> None:
    config: JobConfig = parse({**FLAT, "task.inputs.may.grow": str(may_grow).lower()})
    found = growth_note(config, 4, {"input": partitions})
    assert said in found
    assert bool(found) == bool(said)


def test_ids_are_recorded_once_and_a_topic_that_was_made_again_is_an_obstacle(topics: FakeTopics) -> None:
    records, reloads, told = FakeRecords(topics), list[None](), list[TopicNoted]()
    looking = growth(topics, records, reloads)
    looking.tell = told.append
    looking.look()
    looking.look()
    assert {topic: each.id for topic, each in records.record.definition.topics.items()} == {
        "input": "id of input",
        "changelog": "id of changelog",
    }
    assert [each.is_changed for each in told] == [False] * 2
    topics.topic_ids["changelog"] = "another"
    topics.partitions["input"] = 6
    looking.look()
    looking.look()
    found = looking.found["j"]
    assert found.obstacle is not None
    assert "changelog was deleted and created again" in found.obstacle.of(records.record.definition)
    assert len(reloads) == 1
    topics.is_away = True
    looking.look()
    assert looking.found["j"] == found, "what is not known has not changed"
    topics.is_away = False
    topics.topic_ids.clear()
    topics.partitions["changelog"] = 0
    looking.look()
    assert looking.found["j"].obstacle is None
    assert looking.found["j"].notes == "changelog, the changelog, does not exist (any more)"


def test_a_changelog_that_deletes_is_reported_within_a_minute_and_until_it_is_mended(
    topics: FakeTopics,
) -> None:
    records, reloads = FakeRecords(topics), list[None]()
    looking = growth(topics, records, reloads)
    looks = round(60 / input_growth.LOOK_SECONDS)
    looking.look()
    assert (looking.found["j"].notes, topics.shapes_asked) == ("", 1)
    topics.policy = "compact,delete"
    topics.partitions["input"] = 6
    for _ in range(looks):
        looking.look()
    assert topics.shapes_asked == 2, "not with each look"
    assert "changelog changelog has cleanup.policy=compact,delete" in looking.found["j"].risk
    assert "--add-config cleanup.policy=compact" in looking.found["j"].risk
    assert (
        looking.found["j"].notes == f"{growth_note(parse(FLAT), 4, {'input': 6})}; {looking.found['j'].risk}"
    )
    told = len(reloads)
    topics.is_away = True
    for _ in range(looks):
        looking.look()
    topics.is_away, topics.may_describe_settings = False, False
    for _ in range(looks):
        looking.look()
    assert looking.found["j"].risk, "what is not known has not changed"
    assert len(reloads) == told
    topics.may_describe_settings, topics.policy = True, "compact"
    for _ in range(looks):
        looking.look()
    assert not looking.found["j"].risk
    assert len(reloads) == told + 1


def test_a_policy_that_may_not_be_asked_for_keeps_nothing_else_from_being_reported(
    topics: FakeTopics,
) -> None:
    looking = growth(topics, FakeRecords(topics), list[None]())
    topics.may_describe_settings = False
    topics.partitions["input"] = 6
    looking.look()
    assert not looking.found["j"].risk
    assert "2 of them are not read" in looking.found["j"].notes


def test_a_connection_is_made_anew_for_other_settings_and_dropped_with_its_job(topics: FakeTopics) -> None:
    records, made = FakeRecords(topics), list[KafkaSettings]()

    def connect(settings: KafkaSettings) -> Topics:
        made.append(settings)
        return cast("Topics", topics)

    jobs: dict[str, JobRecord] = {"j": records.record}
    looking = InputGrowth(records, lambda: jobs, lambda: None, connect)
    looking.look()
    looking.look()
    of_job = {"bootstrap.servers": JOB["kafka.bootstrap.servers"]}
    assert made == [of_job]
    definition = records.record.definition
    changed = msgspec.structs.replace(definition, config={**definition.config, "kafka.client.id": "other"})
    jobs["j"] = msgspec.structs.replace(records.record, definition=changed)
    looking.look()
    looking.look()
    of_change = {**of_job, "client.id": "other"}
    assert made == [of_job, of_change]
    del jobs["j"]
    looking.look()
    jobs["j"] = records.record
    looking.look()
    assert made == [of_job, of_change, of_job], "the one of the job that was gone is not kept"
