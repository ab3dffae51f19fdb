"""A changelog is made as it has to be, and one that is not is refused with what mends it."""

from __future__ import annotations

import re

import pytest

from appmaster.topics import changelog
from appmaster.topics.ports import TopicShape
from standby.config import JobConfig
from standby.errors import BadConfiguration
from tests.fakes.jobs import job_config
from tests.fakes.topics import MemoryTopics

NAME = "changelog"


def config(**more: str) -> JobConfig:
    return job_config({f"job.changelog.{key.replace('_', '.')}": each for key, each in more.items()})


@pytest.mark.parametrize(
    ("brokers_default", "settings", "replicas", "in_sync"),
    [
        (1, {}, 1, "1"),
        (2, {}, 2, "1"),
        (3, {}, 3, "2"),
        (1, {"replication_factor": "3"}, 3, "2"),
        (3, {"min_insync_replicas": "1"}, 3, "1"),
        (3, {"replication_factor": "5", "min_insync_replicas": "4"}, 5, "4"),
    ],
)
def test_a_new_changelog_has_all_that_its_own_check_asks_for(
    brokers_default: int, settings: dict[str, str], replicas: int, in_sync: str
) -> None:
    topics = MemoryTopics(brokers_default)
    asked = config(delete_retention_ms="90000", **settings)
    assert changelog.make(topics, NAME, 4, asked)
    found = topics.shape(NAME)
    assert (found.partitions, found.replicas) == (4, replicas)
    assert found.settings["cleanup.policy"] == "compact"
    assert found.settings["delete.retention.ms"] == "90000"
    assert found.settings["min.insync.replicas"] == in_sync
    changelog.check(topics, NAME, 4, asked)


def test_changelog_is_not_made_with_fewer_replicas_than_are_to_have_each_record() -> None:
    for brokers_default, factor in ((3, {"replication_factor": "1"}), (1, {})):
        asked = config(min_insync_replicas="2", **factor)
        with pytest.raises(BadConfiguration, match=r"replicas: 2, .* has 1 replica; set it to at most 1"):
            changelog.make(MemoryTopics(brokers_default), NAME, 4, asked)


def test_one_that_exists_is_left_as_it_is() -> None:
    topics = MemoryTopics()
    topics.create(NAME, 2, 1, {})
    before = topics.shape(NAME)
    assert not changelog.make(topics, NAME, 4, config())
    assert topics.shape(NAME) == before


@pytest.mark.parametrize(
    ("wrong", "replicas", "problem", "mend"),
    [
        ({"cleanup.policy": "delete"}, 1, "deleted by its age", "cleanup.policy=compact"),
        ({"cleanup.policy": "compact,delete"}, 1, "deleted by its age", "cleanup.policy=compact"),
        ({"delete.retention.ms": "1000"}, 1, "could come back", "delete.retention.ms=90000"),
        ({"max.message.bytes": "1048588"}, 1, "would be refused", "max.message.bytes="),
        ({"min.insync.replicas": "1"}, 3, "could take", "min.insync.replicas=2"),
    ],
)
def test_what_is_wrong_is_said_with_what_mends_it(
    wrong: dict[str, str], replicas: int, problem: str, mend: str
) -> None:
    topics = MemoryTopics(replicas)
    asked = config(delete_retention_ms="90000")
    changelog.make(topics, NAME, 4, asked)
    topics.alter(NAME, wrong)
    (said,) = changelog.problems(NAME, topics.shape(NAME), 4, asked)
    assert problem in said
    assert f"--entity-name {NAME} --add-config {mend}" in said
    # What it says does mend it.
    key, _, value = re.findall(r"--add-config (\S+?)(=)(\d+|compact)", said)[0]
    topics.alter(NAME, {key: value})
    changelog.check(topics, NAME, 4, asked)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    topics = MemoryTopics()
    topics.topics[NAME] = TopicShape(
        2, 1, {"cleanup.policy": "delete", "delete.retention.ms": "0", "max.message.bytes": "1"}
    )
    with pytest.raises(BadConfiguration) as raised:
        changelog.check(topics, NAME, 4, config(replication_factor="3", min_insync_replicas="2"))
    assert "min.insync.replicas: 2, and the changelog has 1 replica" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 6
    assert "has 2 partitions, the input has 4" in str(raised.value)
    assert "has 1 replicas, job.changelog.replication.factor asks for 3" in str(raised.value)


def test_more_than_what_is_asked_for_is_all_right() -> None:
    topics = MemoryTopics(5)
    changelog.make(topics, NAME, 4, config())
    for in_sync in ("3", "6"):  # of the second it depends on the brokers whether they write to it
        topics.alter(NAME, {"delete.retention.ms": "999999999999", "min.insync.replicas": in_sync})
        changelog.check(topics, NAME, 4, config(replication_factor="3"))
