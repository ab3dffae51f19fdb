"""A partition that loses its leader while a Spark query reads it beside others."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded.cluster import LocalCluster
from embedded.jars.cache import classpath
from standby.config import parse
from standby.feed.make import make_feed
from standby.ports import InputAway, TaskBatch
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.second_broker import FIRST, SECOND, await_leaderless, second_broker

pytestmark = pytest.mark.spark


class Deliveries:
    """How far each task's input was delivered."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._come = threading.Condition()

    def __call__(self, batches: tuple[TaskBatch, ...]) -> None:
        with self._come:
            self._ends.update((each.task.partition, each.end.total) for each in batches)
            self._come.notify_all()

    def wait(self, ends: dict[int, int]) -> None:
        with self._come:
            assert self._come.wait_for(lambda: self._ends == ends, PATIENCE_SECONDS), (self._ends, ends)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Servers of its own, for a broker that joins them is killed."""
    with LocalCluster.start(f"leaderless-{os.getpid()}", nodes=0, is_temporary=True) as cluster:
        yield cluster


def test_a_query_ends_soon_and_names_whom_to_leave_out(cluster: LocalCluster, tmp_path: Path) -> None:
    """With Spark's own settings it stands still for minutes, and with it every task beside."""
    topic = f"spark-{uuid.uuid4().hex[:12]}"
    bootstrap = cluster.kafka_bootstrap
    config = parse(
        {
            "job.name": "spark-leaders",
            "task.inputs": topic,
            "task.step": "none:none",
            "kafka.bootstrap.servers": bootstrap,
            "zookeeper.connect": "unused:1",
        }
    )
    definition = JobDefinition(
        name="spark-leaders", run="r", config={}, changelog="c", group="spark-leaders", tasks=2
    )
    first, second = (TaskId(definition.name, "main", number) for number in (0, 1))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def produce(partition: int) -> None:
        producer.produce(topic, b"value", b"key", partition)
        assert producer.flush(PATIENCE_SECONDS) == 0

    admin = AdminClient({"bootstrap.servers": bootstrap})
    feed = make_feed(config, definition, classpath("spark-kafka"), tmp_path)
    with second_broker(cluster, tmp_path / "second") as broker:
        try:
            admin.create_topics([NewTopic(topic, 2, replica_assignment=[[FIRST], [SECOND]])])[topic].result(
                PATIENCE_SECONDS
            )
            feed.warm()
            for partition in (0, 1):
                produce(partition)
            seen = Deliveries()
            feed.start({first: Offsets.of(0), second: Offsets.of(0)}, seen)
            seen.wait({0: 1, 1: 1})
            broker.kill()
            broker.wait()
            await_leaderless(admin, topic, 1)
            produce(0)
            assert feed.wait(PATIENCE_SECONDS), "the query goes on waiting"
            assert isinstance(feed.failure, InputAway), repr(feed.failure)
            assert feed.failure.partitions == {1}
            feed.stop()
            seen = Deliveries()
            feed.start({first: Offsets.of(1)}, seen)
            seen.wait({0: 2})
        finally:
            feed.close()
