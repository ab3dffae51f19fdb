"""Making, describing and altering topics: brokers in memory and a real one alike."""

from __future__ import annotations

import uuid

import pytest

from appmaster import changelog
from appmaster.adapters.kafka import Topics
from appmaster.changelog import TopicAdmin
from standby.config import parse
from standby.errors import BadConfiguration
from tests.fakes.topics import MemoryTopics


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def topics(request: pytest.FixtureRequest) -> TopicAdmin:
    if request.param == "memory":
        return MemoryTopics()
    return Topics({"bootstrap.servers": str(request.getfixturevalue("kafka_bootstrap"))})


def test_a_changelog_is_made_checked_and_mended(topics: TopicAdmin) -> None:
    name = f"changelog-{uuid.uuid4().hex}"
    config = parse(
        {
            "job.name": "j",
            "task.inputs": "in",
            "task.step": "job:step",
            "kafka.bootstrap.servers": "unused:1",
            "zookeeper.connect": "unused:1",
        }
    )
    assert changelog.make(topics, name, 3, config)
    assert not changelog.make(topics, name, 3, config)
    changelog.check(topics, name, 3, config)
    found = topics.shape(name)
    assert (found.partitions, found.replicas) == (3, 1)
    topics.alter(name, {"cleanup.policy": "compact,delete", "delete.retention.ms": "5"})
    after = topics.shape(name)
    assert after.settings["cleanup.policy"] == "compact,delete"
    assert after.settings["max.message.bytes"] == found.settings["max.message.bytes"], "the others stay"
    with pytest.raises(BadConfiguration, match="compact,delete") as raised:
        changelog.check(topics, name, 3, config)
    assert "delete.retention.ms=5, below" in str(raised.value)
    topics.alter(name, {"cleanup.policy": "compact", "delete.retention.ms": "86400000"})
    changelog.check(topics, name, 3, config)
