"""Making, describing and altering topics: brokers in memory and a real one alike."""

from __future__ import annotations

import socket
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from appmaster.adapters import kafka
from appmaster.adapters.kafka import Topics
from appmaster.topics import changelog
from appmaster.topics.ports import TopicAdmin
from standby.config import parse
from standby.errors import BadConfiguration, Unavailable
from tests.fakes.topics import MemoryTopics
from tests.patience import PATIENCE_SECONDS, soon


@pytest.fixture(params=["memory", "kafka"])
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


def test_new_partitions_begin_at_their_first_record_and_others_where_they_were(kafka_bootstrap: str) -> None:
    topic = f"grown-{uuid.uuid4().hex}"
    settings = {"bootstrap.servers": kafka_bootstrap}
    topics = Topics(settings)
    topics.create(topic, 2, 1, {})
    producer, member = Producer(settings), Consumer({**settings, "group.id": f"group-{topic}"})
    for partition in (0, 1):
        producer.produce(topic, b"record", partition=partition)
    assert producer.flush(PATIENCE_SECONDS) == 0
    member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    topics.commit_first(f"group-{topic}", topic, (0, 1), "said")
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    found = member.committed(both, PATIENCE_SECONDS)
    assert [(each.offset, each.metadata or "") for each in found] == [(1, ""), (0, "said")]
    member.close()


def test_what_is_not_there_has_no_id_and_is_deleted_without_an_error(kafka_bootstrap: str) -> None:
    missing, made = f"missing-{uuid.uuid4().hex}", f"made-{uuid.uuid4().hex}"
    topics = Topics({"bootstrap.servers": kafka_bootstrap})
    topics.create(made, 1, 1, {})
    soon(lambda: set(topics.ids([missing, made])) == {made}, "the broker knows the topic that was made")
    topics.delete([missing, made])
    topics.delete_group(missing)


def test_a_broker_that_takes_connections_and_never_answers_is_said_to_be_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        topics = Topics({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        with pytest.raises(Unavailable, match=r"topic t cannot be created: .*answer"):
            topics.create("t", 1, 1, {})
        with pytest.raises(Unavailable, match=r"topic t cannot be deleted: .*answer"):
            topics.delete(["t"])
