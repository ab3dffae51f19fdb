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
from appmaster.topics.input_growth import InputGrowth, TopicState, growth_note
from appmaster.topics.ports import TopicShape
from standby.config import KafkaSettings, parse
from standby.errors import Unavailable
from standby.replica.accepted import task_offsets
from standby.replica.claim import Committed
from standby.replica.identity import RunTopics
from standby.shared.model import TaskId, TaskRecord, TopicIdentity
from standby.shared.wire import JobDefinition
from tests.fakes.jobs import JOB

FLAT = {**JOB, "task.inputs": "input"}


class FakeTopics:
    """Topics with partitions, and the offsets that were committed."""

    def __init__(self) -> None:
        self.partitions = {"input": 4, "changelog": 4}
        self.committed: list[tuple[str, str, int, str]] = []
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

    def commit_first(self, group: str, topic: str, partitions: Sequence[int], metadata: str) -> None:
        self.committed += [(group, topic, each, metadata) for each in partitions]


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


class Looking:
    """Who looks after the input of the one job, and what it was connected with; counts how often jobs are read anew."""

    def __init__(self, **settings: str) -> None:
        self.topics = FakeTopics()
        self.records = FakeRecords(self.topics, **settings)
        self.reloads = 0
        self.growth = InputGrowth(
            self.records,
            lambda: {"j": self.records.record},
            self._reload,
            connect=lambda _: cast("Topics", self.topics),
        )

    def look(self, **partitions: int) -> TopicState:
        """Return what is found once topics have so many partitions."""
        self.topics.partitions.update(partitions)
        self.growth.look()
        return self.growth.found["j"]

    @property
    def definition(self) -> JobDefinition:
        return self.records.record.definition

    def _reload(self) -> None:
        self.reloads += 1


MAY_GROW = {"task__inputs__may__grow": "true"}


def test_added_partitions_become_tasks_after_the_changelog_has_them() -> None:
    looking = Looking(**MAY_GROW)
    looking.look()
    assert (looking.definition.tasks, looking.reloads) == (4, 1)
    assert looking.look(input=6).notes == ""
    assert (looking.definition.tasks, looking.definition.revision) == (6, 1)
    assert looking.topics.partitions["changelog"] == 6
    assert looking.topics.committed == [], "a run that begins at the earliest record needs no offset"
    assert looking.reloads == 1


def test_added_partitions_that_may_not_be_tasks_are_reported_once() -> None:
    looking = Looking()
    # The changelog's policy may not be asked for, which keeps nothing else from being reported.
    looking.topics.may_describe_settings = False
    for _ in range(2):
        found = looking.look(input=6)
        assert "2 of them are not read" in found.notes
        assert "task.inputs.may.grow=true" in found.notes
        assert not found.risk
        assert not found.is_risk_known
    assert (looking.definition.tasks, looking.topics.partitions["changelog"], looking.reloads) == (4, 4, 1)
    looking.topics.is_away = True
    assert "2 of them are not read" in looking.look().notes, "what is not known has not changed"
    looking.topics.is_away = False
    assert looking.look(input=4).notes == ""
    assert looking.reloads == 2
    gone = growth_note(parse(FLAT), 4, {"input": 0})
    assert gone == "input, the input, does not exist any more", "it went during the look"
    allowed = Looking(**MAY_GROW)
    assert "not read: task.inputs: 100001 partitions" in allowed.look(input=100_001).notes
    assert (allowed.definition.tasks, allowed.topics.partitions["changelog"]) == (4, 4)


def test_several_inputs_are_adopted_once_all_of_them_have_grown_alike() -> None:
    looking = Looking(task__inputs="input,other", job__start__offset="latest", **MAY_GROW)
    for other in (4, 5):
        assert f"(input 6, other {other})" in looking.look(input=6, other=other).notes
        assert looking.definition.tasks == 4, "the sixth partition of one would have nothing to go with"
        assert looking.topics.partitions["changelog"] == 4
    assert looking.look(other=6).notes == ""
    assert looking.definition.tasks == 6
    added = [("group", topic, each, "") for topic in ("input", "other") for each in (4, 5)]
    assert looking.topics.committed == added
    assert "other has 3 partitions, fewer than the job's 6 tasks" in looking.look(other=3).notes


def test_what_is_added_to_an_accepted_input_is_read_from_its_first_record() -> None:
    """Also if the accepted one is read from its end."""
    looking = Looking(**MAY_GROW)
    topics = {"input": TopicIdentity("id of input", 2, "latest")}
    definition = msgspec.structs.replace(looking.definition, topics=topics)
    looking.records.record = msgspec.structs.replace(looking.records.record, definition=definition)
    looking.look(input=6)
    assert [each[:3] for each in looking.topics.committed] == [("group", "input", each) for each in (4, 5)]
    committed = [Committed(7, looking.topics.committed[0][3])]
    run, record = RunTopics("j", "changelog", ("input",), topics), TaskRecord(TaskId("j", "main", 4), 0, 1)
    assert task_offsets(committed, None, record, run, "earliest", lambda: ((7, 9),)).each == (7,)


@pytest.mark.parametrize(
    ("run", "settings"),
    [
        ("run2", {"task.inputs.may.grow": "true", "task.inputs": "other"}),
        ("run", {"task.inputs.may.grow": "false"}),
    ],
)
def test_partitions_are_not_adopted_by_a_record_that_was_changed_during_the_look(
    run: str, settings: dict[str, str]
) -> None:
    looking = Looking(**MAY_GROW)
    looking.look()
    definition = msgspec.structs.replace(looking.definition, run=run, config={**FLAT, **settings})
    changed = msgspec.structs.replace(looking.records.record, definition=definition)

    def grow(name: str, partitions: int) -> None:
        looking.topics.partitions[name] = partitions
        looking.records.record = changed

    looking.topics.grow = grow  # type: ignore[method-assign]
    looking.look(input=6)
    assert looking.topics.partitions["changelog"] == 6
    assert looking.records.record == changed


def test_ids_are_recorded_once_and_a_topic_that_was_made_again_is_an_obstacle() -> None:
    looking, told = Looking(), list[TopicNoted]()
    looking.growth.tell = told.append
    for _ in range(2):
        looking.look()
    recorded = {topic: each.id for topic, each in looking.definition.topics.items()}
    assert recorded == {each: f"id of {each}" for each in ("input", "changelog")}
    assert [each.is_changed for each in told] == [False] * 2
    looking.topics.topic_ids["changelog"] = "another"
    looking.look(input=6)
    found = looking.look()
    assert found.obstacle is not None
    assert "changelog was deleted and created again" in found.obstacle.of(looking.definition)
    assert looking.reloads == 2
    looking.topics.is_away = True
    assert looking.look() == found, "what is not known has not changed"
    looking.topics.is_away = False
    looking.topics.topic_ids.clear()
    found = looking.look(changelog=0)
    assert (found.obstacle, found.notes) == (None, "changelog, the changelog, does not exist (any more)")


def test_a_changelog_that_deletes_is_reported_within_a_minute_and_until_it_is_mended() -> None:
    looking = Looking()
    topics = looking.topics

    def after_a_minute() -> TopicState:
        return [looking.look() for _ in range(round(60 / input_growth.LOOK_SECONDS))][-1]

    found = looking.look()
    assert (found.notes, found.is_risk_known, topics.shapes_asked, looking.reloads) == ("", True, 1, 1)
    topics.policy = "compact,delete"
    topics.partitions["input"] = 6
    found = after_a_minute()
    assert topics.shapes_asked == 2, "not with each look"
    assert "changelog changelog has cleanup.policy=compact,delete" in found.risk
    assert "--add-config cleanup.policy=compact" in found.risk
    assert found.notes == f"{growth_note(parse(FLAT), 4, {'input': 6})}; {found.risk}"
    told = looking.reloads
    topics.is_away = True
    after_a_minute()
    topics.is_away, topics.may_describe_settings = False, False
    assert after_a_minute().risk, "what is not known has not changed"
    assert looking.reloads == told
    topics.may_describe_settings, topics.policy = True, "compact"
    assert not after_a_minute().risk
    assert looking.reloads == told + 1


def test_a_changelog_that_deletes_the_state_of_a_killed_job_is_reported_until_it_is_mended() -> None:
    looking = Looking()
    looking.topics.policy = "compact,delete"
    found = looking.look()
    looking.records.record = msgspec.structs.replace(looking.records.record, is_wanted=False)
    told = looking.reloads
    assert looking.look().risk == found.risk != ""
    assert looking.reloads == told, "that would be told as an end of the risk"
    looking.topics.policy = "compact"
    for _ in range(round(60 / input_growth.LOOK_SECONDS)):
        looking.growth.look()
    assert (looking.growth.found, looking.reloads) == ({}, told + 1)


def test_a_connection_is_made_anew_for_other_settings_and_dropped_with_its_job() -> None:
    topics, made = FakeTopics(), list[KafkaSettings]()
    records = FakeRecords(topics)

    def connect(settings: KafkaSettings) -> Topics:
        made.append(settings)
        return cast("Topics", topics)

    jobs: dict[str, JobRecord] = {"j": records.record}
    looking = InputGrowth(records, lambda: jobs, lambda: None, connect)
    for _ in range(2):
        looking.look()
    of_job = {"bootstrap.servers": JOB["kafka.bootstrap.servers"]}
    assert made == [of_job]
    definition = records.record.definition
    changed = msgspec.structs.replace(definition, config={**definition.config, "kafka.client.id": "other"})
    jobs["j"] = msgspec.structs.replace(records.record, definition=changed)
    for _ in range(2):
        looking.look()
    of_change = {**of_job, "client.id": "other"}
    assert made == [of_job, of_change]
    del jobs["j"]
    looking.look()
    jobs["j"] = records.record
    looking.look()
    assert made == [of_job, of_change, of_job], "the one of the job that was gone is not kept"
