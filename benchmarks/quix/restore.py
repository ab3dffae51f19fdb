"""A contestant of `benchmarks.restore`, run in the virtual environment of Quix Streams (`benchmarks.quix.venv`).

``prepare`` writes a changelog as Quix itself writes it: its own topic name, the column family and the processed
offset in the headers of every record. ``restore`` starts the application on an empty directory and stops it as
soon as its recovery has ended. It uses nothing of standfast but the records and the meter, which need neither.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from quixstreams import Application
from quixstreams.state.recovery import RecoveryManager

from benchmarks import meter
from benchmarks.dataset import TRANSACTION, Dataset, checksum, make_topic


def application(arguments: argparse.Namespace) -> tuple[Application, str]:
    """Return the application, exactly once as the others are, and the name of its changelog."""
    app = Application(
        broker_address=arguments.bootstrap,
        consumer_group=arguments.group,
        state_dir=str(arguments.state),
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        loglevel="WARNING",
    )
    topic = app.topic(arguments.topic, key_deserializer="bytes", value_deserializer="bytes")

    def keep(value: bytes, state: Any) -> None:
        state.set("v", len(value))

    app.dataframe(topic).update(keep, stateful=True)
    changelogs = list(app._topic_manager.changelog_topics_list)  # noqa: SLF001 - nothing public tells its name
    return app, changelogs[0].name


def prepare(arguments: argparse.Namespace, data: Dataset) -> None:
    """Write input of one record a partition, committed, and the changelog."""
    # Before the application is made: it would make the topic itself, with its own number of partitions.
    make_topic(arguments.bootstrap, arguments.topic, data.partitions)
    _, changelog = application(arguments)
    if (
        changelog
        not in AdminClient({"bootstrap.servers": arguments.bootstrap}).list_topics(timeout=20).topics
    ):
        make_topic(arguments.bootstrap, changelog, data.partitions)
    settings = {"bootstrap.servers": arguments.bootstrap, "linger.ms": 20}
    producer = Producer({**settings, "transactional.id": f"fill-{changelog}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(data.partitions):
        producer.produce(arguments.topic, b"0" * 100, b"key", partition)
    producer.commit_transaction(60)
    headers: list[tuple[str, str | bytes | None]] = [
        ("__column_family__", b"default"),
        ("__processed_tp_offsets__", json.dumps({arguments.topic: 0}).encode()),
    ]
    for first in range(0, data.records, TRANSACTION):
        producer.begin_transaction()
        for partition, key, value in data.pairs(first, min(first + TRANSACTION, data.records)):
            producer.produce(changelog, value, key, partition, headers=headers)
            producer.poll(0)
        producer.commit_transaction(60)
    consumer = Consumer({**_reader(arguments), "enable.auto.commit": False})
    # The record and the marker of its transaction.
    ends = [TopicPartition(arguments.topic, each, 2) for each in range(data.partitions)]
    consumer.commit(offsets=ends, asynchronous=False)
    consumer.close()


def restore(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what it took until recovery had ended."""
    app, _ = application(arguments)
    found: dict[str, Any] = {}
    begun = time.monotonic()
    started = psutil.Process().create_time()
    recover = RecoveryManager.do_recovery

    def timed(self: RecoveryManager) -> None:
        from_here = time.monotonic()
        recover(self)
        now = time.monotonic()
        found.update(
            wall_seconds=now - begun,
            from_start_seconds=time.time() - started,
            replay_seconds=now - from_here,
            cpu_seconds=meter.cpu_seconds(),
            peak_bytes=meter.peak_bytes(),
        )
        found["settled_cpu_seconds"] = meter.settled_cpu_seconds()
        app.stop()

    RecoveryManager.do_recovery = timed
    app.run()
    return found


def state_of(directory: Path, group: str) -> dict[str, Any]:
    """Return number of keys and checksum of what lies on the disk."""
    from rocksdict import AccessType, Options, Rdict

    keys = total = 0
    for each in sorted(path.parent for path in directory.rglob("CURRENT")):
        families = Rdict.list_cf(str(each), Options(raw_mode=True))
        database = Rdict(
            str(each),
            Options(raw_mode=True),
            column_families={name: Options(raw_mode=True) for name in families},
            access_type=AccessType.read_only(),
        )
        for key, value in database.items():
            if not (isinstance(key, bytes) and isinstance(value, bytes)):
                raise TypeError(f"{key!r}: {value!r} is not as it lies on the disk")
            total += checksum(key, value)
            keys += 1
        database.close()
    if not keys:
        raise RuntimeError(f"nothing in {directory} of {group}")
    return {"keys": keys, "checksum": f"{total % (1 << 64):016x}"}


def _reader(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"bootstrap.servers": arguments.bootstrap, "group.id": arguments.group}


def main() -> int:
    """Do it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("prepare", "restore"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if arguments.command == "prepare":
        prepare(arguments, Dataset(arguments.records, arguments.records // 2, arguments.partitions))
    else:
        found = restore(arguments)
        meter.answer({**found, **state_of(arguments.state, arguments.group)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
