"""The yardstick itself, on a real broker: it passes what is exact, and finds each way not to be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.topics import read_committed
from demo.verification import verify
from embedded.cluster import LocalCluster
from tests.exactness import INPUT_TOPIC, assert_exact, fresh_topics, produce
from tests.patience import PATIENCE_SECONDS
from tests.unit.examples.fakes import Job

ROWS = 1_200
CLUSTER, JOB, RUN = "yardstick", "flights", "r1"
CHANGELOG = "standfast__yardstick__flights__main__r1__changelog"


@dataclass(frozen=True)
class Emission:
    """A record that the job writes: topic, partition, key, value."""

    topic: str
    partition: int
    key: bytes
    value: bytes


def job_over(bootstrap: str) -> list[Emission]:
    """Return all that one batch per task makes of the input: outputs, then the changelog."""
    tasks: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for record in read_committed(bootstrap, INPUT_TOPIC):
        tasks.setdefault(record.partition, []).append((record.key, record.value))
    written = []
    for partition, records in tasks.items():
        job = Job()
        job.run(records)
        for topic, pairs in job.outputs.items():
            written += [Emission(topic, partition, key, json.dumps(value).encode()) for key, value in pairs]
        written += [
            Emission(CHANGELOG, partition, key, value) for key, value in job.task.state.content.items()
        ]
    return written


def write(bootstrap: str, written: list[Emission]) -> None:
    """Write as the kernel does: in transactions, some of which are aborted and written again."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "yardstick", "linger.ms": 5})
    producer.init_transactions(PATIENCE_SECONDS)
    for start in range(0, len(written), 400):
        chunk = written[start : start + 400]
        producer.begin_transaction()
        for each in chunk[:50]:
            producer.produce(each.topic, each.value, each.key, each.partition)
        producer.flush(PATIENCE_SECONDS)
        producer.abort_transaction(PATIENCE_SECONDS)
        producer.begin_transaction()
        for each in chunk:
            producer.produce(each.topic, each.value, each.key, each.partition)
        producer.commit_transaction(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def truth(cluster: LocalCluster) -> Iterator[list[Emission]]:
    """What an exact job writes for the input that lies in Kafka."""
    bootstrap = cluster.kafka_bootstrap
    fresh_topics(bootstrap)
    produce(bootstrap, rows=ROWS)
    yield job_over(bootstrap)
    remove(bootstrap, CHANGELOG)


def remove(bootstrap: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    if topic in client.list_topics(timeout=PATIENCE_SECONDS).topics:
        client.delete_topics([topic], operation_timeout=PATIENCE_SECONDS)[topic].result()


def again(cluster: LocalCluster, written: list[Emission]) -> str:
    """Write to empty topics; return the broker's address. The input is produced anew, the same."""
    bootstrap = cluster.kafka_bootstrap
    fresh_topics(bootstrap)
    remove(bootstrap, CHANGELOG)
    produce(bootstrap, rows=ROWS)
    topic = NewTopic(CHANGELOG, num_partitions=4, config={"cleanup.policy": "compact"})
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([topic], operation_timeout=PATIENCE_SECONDS)[CHANGELOG].result()
    write(bootstrap, written)
    return bootstrap


def test_an_exact_run_passes_and_aborted_transactions_do_not_count(
    cluster: LocalCluster, truth: list[Emission]
) -> None:
    found = assert_exact(again(cluster, truth), cluster=CLUSTER, job=JOB, run=RUN)
    assert (found.records_in, found.outputs.seen) == (ROWS, ROWS)
    assert found.state.keys > 100
    assert sum(map(len, found.output_times.values())) == ROWS
    assert {partition: len(times) for partition, times in found.output_times.items()} == {
        partition: len(times) for partition, times in found.input_times.items()
    }


def changed(written: list[Emission], is_meant: Callable[[Emission], bool], **changes: Any) -> list[Emission]:
    """Return all, with the value of the first that is meant changed in ``changes``."""
    place = next(number for number, each in enumerate(written) if is_meant(each))
    each = written[place]
    value = json.dumps({**json.loads(each.value), **changes}).encode()
    return [*written[:place], Emission(each.topic, each.partition, each.key, value), *written[place + 1 :]]


def test_every_way_not_to_be_exact_is_found(cluster: LocalCluster, truth: list[Emission]) -> None:
    delays = [each for each in truth if each.topic == "flight-delays"]
    lost, doubled = delays[100], delays[700]
    spoiled = [each for each in truth if each is not lost]
    spoiled.append(doubled)
    spoiled = changed(spoiled, lambda each: each is delays[500], flights=999_999)
    spoiled = changed(spoiled, lambda each: each.topic == CHANGELOG, distance=-1)
    bootstrap = again(cluster, spoiled)
    found = verify(bootstrap, CHANGELOG)
    outputs = found.outputs
    assert (outputs.lost, outputs.duplicated, outputs.mismatched, outputs.misordered) == (1, 1, 1, 0)
    assert found.state.mismatched == 1
    with pytest.raises(AssertionError, match="1 lost, 1 duplicated, 1 mismatched"):
        assert_exact(bootstrap, cluster=CLUSTER, job=JOB, run=RUN)
