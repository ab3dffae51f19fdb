"""A job's ``kafka.*`` settings reach every client: one that librdkafka refuses is refused wherever one is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import KafkaException, TopicPartition

from appmaster.adapters.kafka import EventLog, Topics, fence, fence_job, read_events
from appmaster.config import cluster_config
from standby.adapters.kafka import clients
from standby.adapters.kafka.broker import connect
from standby.adapters.kafka.changelog import KafkaChangelog
from standby.adapters.kafka.limits import RecordSizes, WriteRights
from standby.adapters.kafka.renewable_client import lasting
from standby.adapters.kafka.writer import KafkaWriter, WriteErrorContext
from standby.config import kafka_settings, librdkafka_settings, parse
from standby.errors import BadConfiguration
from standby.feed.plain import PlainFeed
from standby.shared.wire import JobDefinition

FLAT = {
    "job.name": "flights",
    "task.inputs": "in",
    "task.step": "flights:totals",
    "task.feed": "plain",
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "zookeeper.connect": "z:1",
    "kafka.security.protocol": "of our own",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "s3cret",
}
CONFIG = parse(FLAT)
JOB = JobDefinition("flights", "r1", FLAT, "changelog", "group", 1)


def of_cluster() -> Mapping[str, str | int | bool]:
    """Return what a candidate makes its clients of: from the cluster's file."""
    found = cluster_config(CONFIG, 1)
    return librdkafka_settings(found.kafka_bootstrap, found.kafka)


CLIENTS: Mapping[str, Callable[[], object]] = {
    "the event log": lambda: EventLog(of_cluster(), "events"),
    "standfast events": lambda: next(
        read_events(kafka_settings(CONFIG), "events", follow=False, stop=lambda: True)
    ),
    "topics, groups, records": lambda: Topics(kafka_settings(CONFIG)),
    "fencing": lambda: fence(CONFIG, ("id",)),
    "fencing a job": lambda: fence_job("cluster", JOB),
    "a kernel's broker": lambda: connect("cluster", CONFIG, JOB),
    "a changelog's reader": lambda: KafkaChangelog(CONFIG, JOB),
    "a task's writer": lambda: KafkaWriter(
        CONFIG,
        TopicPartition(JOB.changelog, 0),
        "id",
        None,
        WriteErrorContext(
            RecordSizes(CONFIG, lasting(clients.QUESTIONS, {})), WriteRights(lasting(clients.QUESTIONS, {}))
        ),
    ),
    "the plain feed": lambda: PlainFeed(CONFIG, JOB).warm(),
}


def test_settings_reach_every_client() -> None:
    refused = '"of our own" for configuration property "security.protocol"'
    for client, make in CLIENTS.items():
        with pytest.raises((KafkaException, BadConfiguration)) as raised:
            make()
        assert refused in str(raised.value), client
