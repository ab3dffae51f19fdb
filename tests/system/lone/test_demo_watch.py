"""The demo's eyes and its stream, on a real broker: watch, event log, traffic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.events import EventLog
from demo.tests.statuses import status, task
from demo.topics import end_offsets, read_committed
from demo.watch import Watch
from embedded.cluster import LocalCluster
from examples.flights.source import flights
from standby.errors import Unavailable
from tests.exactness import INPUT_TOPIC, fresh_topics, stream
from tests.patience import PATIENCE_SECONDS, soon

WHOLE = status(task(0, [(0, "h2", "c2"), (1, "h1", "c1")]))
TORN = status(task(0, [(0, "h2", "c2"), (1, "h2", "c1")], in_sync=[0]))


class Script:
    """A leader that answers as the test says: a status, or not at all."""

    def __init__(self) -> None:
        self.answer: Mapping[str, Any] | None = WHOLE

    def status(self) -> Mapping[str, Any]:
        if self.answer is None:
            raise Unavailable("no leader")
        return self.answer


def test_the_watch_sees_changes_silence_and_violations(cluster: LocalCluster) -> None:
    fresh_topics(cluster.kafka_bootstrap, partitions=2)
    leader = Script()
    watch = Watch(leader, cluster.kafka_bootstrap)
    watch.start()
    try:
        first = watch.wait_for(lambda status: len(status.tasks[0].in_sync) == 2, PATIENCE_SECONDS)
        assert first is not None
        assert watch.same_host_violations == frozenset()
        leader.answer = None
        soon(lambda: watch.latest is not None and not watch.latest.is_fresh, "silence is noticed")
        latest = watch.latest
        assert latest is not None
        assert watch.wait_for(lambda _: True, 0, since_ms=latest.at_ms - 1) is None, "it is not fresh"
        assert (latest.is_fresh, latest.status) == (False, first.status)
        leader.answer = TORN
        assert watch.wait_for(lambda status: len(status.tasks[0].in_sync) == 1, PATIENCE_SECONDS) is not None
        assert watch.same_host_violations == {"task 0: copies [0, 1] on h2"}
        again = watch.wait_for(lambda status: len(status.tasks[0].in_sync) == 2, 0, since_ms=first.at_ms - 1)
        assert again is first
    finally:
        watch.stop()


def test_the_event_log_is_followed_from_its_beginning_even_when_its_topic_comes_later(
    cluster: LocalCluster,
) -> None:
    topic = "standfast__demo-watch__events"
    log = EventLog(cluster.kafka_bootstrap, topic)
    log.start()
    try:
        client = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
        client.create_topics([NewTopic(topic, num_partitions=1)], operation_timeout=PATIENCE_SECONDS)[
            topic
        ].result()
        producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap})
        told = [json.dumps({"at_ms": number, "kind": "container_lost"}).encode() for number in range(3)]
        for each in (*told[:2], b"not an event", told[2]):
            producer.produce(topic, each)
        producer.flush(PATIENCE_SECONDS)
        events = log.wait_for(lambda events: len(events) >= 3, PATIENCE_SECONDS)
        assert events is not None
        assert [event.at_ms for event in events] == [0, 1, 2]
    finally:
        log.stop()


def test_the_stream_ends_whole(cluster: LocalCluster) -> None:
    bootstrap = cluster.kafka_bootstrap
    fresh_topics(bootstrap, partitions=2)
    traffic = stream(bootstrap, rows=1_000, rate=2_000)
    assert traffic.join(PATIENCE_SECONDS)
    assert traffic.count == 1_000
    assert sum(end_offsets(bootstrap, INPUT_TOPIC).values()) == 1_000
    sent = list(flights(1_000))
    found = list(read_committed(bootstrap, INPUT_TOPIC))
    for key in {record.key for record in sent}:
        assert [each.value for each in found if each.key == key] == [
            each.value for each in sent if each.key == key
        ]


def test_a_stopped_stream_has_delivered_what_it_counted(cluster: LocalCluster) -> None:
    bootstrap = cluster.kafka_bootstrap
    fresh_topics(bootstrap, partitions=2)
    traffic = stream(bootstrap, rows=20_000, rate=2_000)
    soon(lambda: traffic.count, "it has begun")
    traffic.stop()
    assert traffic.is_over
    assert 0 < traffic.count < 20_000
    assert sum(end_offsets(bootstrap, INPUT_TOPIC).values()) == traffic.count
