"""The check of every test for exactness: the flights are the input, and the batch model has the expected result.

Typical use, with the flights job (or any job with its step and stores) on a cluster::

    fresh_topics(bootstrap, partitions=4)
    produce(bootstrap, rows=20_000)
    ...                                    # run the job, kill what the test is about
    wait_until_processed(bootstrap, cluster="c", job="flights", run=run_id)
    assert_exact(bootstrap, cluster="c", job="flights", run=run_id)
"""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.topics import end_offsets
from demo.traffic import Traffic
from demo.verification import Verification, verify
from examples.flights.replay import INPUT_TOPIC, OUTPUT_TOPICS, create_topics
from examples.flights.source import flights
from standby.shared import naming
from tests.patience import PATIENCE_SECONDS, TRY_SECONDS, looks, soon

__all__ = [
    "INPUT_TOPIC",
    "OUTPUT_TOPICS",
    "assert_exact",
    "fresh_topics",
    "produce",
    "stream",
    "wait_until_processed",
]

_STAGE = "main"


def fresh_topics(bootstrap: str, partitions: int = 4) -> None:
    """Create the job's topics, empty: an earlier test's are deleted first."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    ours = {INPUT_TOPIC, *OUTPUT_TOPICS}
    old = sorted(ours & set(client.list_topics(timeout=PATIENCE_SECONDS).topics))
    for future in client.delete_topics(old, operation_timeout=PATIENCE_SECONDS).values() if old else ():
        future.result()
    # A deleted topic is still listed for a moment, and cannot be created until then.
    soon(
        lambda: ours.isdisjoint(client.list_topics(timeout=PATIENCE_SECONDS).topics),
        "the topics of an earlier test are gone",
    )
    create_topics(bootstrap, partitions)


def stream(bootstrap: str, *, rows: int, rate: float) -> Traffic:
    """Start producing ``rows`` flights at ``rate`` per second; stop it in the end."""
    traffic = Traffic(bootstrap, list(flights(rows)), rate)
    traffic.start()
    return traffic


def produce(bootstrap: str, *, rows: int) -> None:
    """Produce ``rows`` flights as fast as possible, and wait for the broker."""
    traffic = stream(bootstrap, rows=rows, rate=100_000)
    assert traffic.join(PATIENCE_SECONDS), f"the input could not be produced within {PATIENCE_SECONDS:g} s"


def wait_until_processed(bootstrap: str, *, cluster: str, job: str, run: str) -> None:
    """Wait until the job's committed offsets are at the end of the input; otherwise fail with what is left."""
    ends = {partition: end for partition, end in end_offsets(bootstrap, INPUT_TOPIC).items() if end}
    group = naming.consumer_group(cluster, job, _STAGE, run)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    left = ends
    try:
        for _ in looks():
            asked = [TopicPartition(INPUT_TOPIC, partition) for partition in ends]
            try:
                committed = {
                    each.partition: each.offset for each in consumer.committed(asked, timeout=TRY_SECONDS)
                }
            except KafkaException:
                continue
            left = {
                partition: end - max(0, committed.get(partition, 0))
                for partition, end in ends.items()
                if committed.get(partition, 0) < end
            }
            if not left:
                break
    finally:
        consumer.close()
    assert not left, f"not processed within {PATIENCE_SECONDS:g} s: {left} records per partition"


def assert_exact(bootstrap: str, *, cluster: str, job: str, run: str) -> Verification:
    """Compare outputs and state, record for record, with the batch model; fail with the differences."""
    found = verify(bootstrap, naming.changelog_topic(cluster, job, _STAGE, run))
    assert found.is_exact, found.findings()
    assert found.outputs.expected == found.records_in > 0
    return found
