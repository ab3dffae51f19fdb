"""A second Kafka broker in a test's own cluster, because with only one no partition can be without a leader."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded.cluster import LocalCluster
from embedded.jars.cache import open_cache
from embedded.java import LEAN, find_java
from standby.adapters.kafka.clients import answer_of
from tests.patience import PATIENCE_SECONDS, soon

#: The ids of the cluster's own broker and of this one.
FIRST: Final = 1
SECOND: Final = 2


@contextmanager
def second_broker(
    cluster: LocalCluster, directory: Path, number: int = SECOND
) -> Iterator[subprocess.Popen[bytes]]:
    """Have a broker serve in the block, which may kill it; new topics may be placed on it meanwhile.

    ``number`` is its id. Nobody can have that of one that was killed until the cluster notices the loss.
    """
    own = cluster.directory / "kafka"
    settings = {
        **_read(own / "server.properties"),
        "process.roles": "broker",
        "node.id": str(number),
        "listeners": "BROKER://127.0.0.1:0",
        "log.dirs": str(directory / "data"),
    }
    # It tells the port that it got.
    del settings["advertised.listeners"]
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    # With the cluster's marks in it this ends with the cluster, whatever becomes of the test.
    environment = cluster.environment()
    java = [str(find_java(environment).command), "-Xmx256m", *LEAN, "-cp"]
    java.append(":".join(map(str, open_cache().classpath("kafka"))))
    cluster_id = _read(own / "data" / "meta.properties")["cluster.id"]
    with (directory / "log").open("wb") as log:
        format_it = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file)]
        subprocess.run(
            format_it, env=environment, stdout=log, stderr=log, check=True, timeout=PATIENCE_SECONDS
        )
        broker = subprocess.Popen([*java, "kafka.Kafka", str(file)], env=environment, stdout=log, stderr=log)
    client = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
    try:
        _await_registered(client, number)
        yield broker
    finally:
        broker.kill()
        broker.wait()


def leader(client: AdminClient, topic: str, partition: int) -> int:
    """Return the leader of a partition; -1: none."""
    return client.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions[partition].leader


def await_leaderless(client: AdminClient, topic: str, partition: int) -> None:
    """Return once a partition has no leader."""
    soon(lambda: leader(client, topic, partition) == -1, f"no leader of {topic}[{partition}]")


def _await_registered(client: AdminClient, number: int) -> None:
    """Return once a topic can be made on the second broker; being listed comes before that."""
    topic = "only-to-see"

    def is_made() -> bool:
        try:
            made = client.create_topics([NewTopic(topic, 1, replica_assignment=[[number]])])
            answer_of(client, made[topic], PATIENCE_SECONDS, topic)
        except KafkaException:
            return False
        return True

    soon(is_made, "the second broker joins")
    answer_of(client, client.delete_topics([topic])[topic], PATIENCE_SECONDS, topic)


def _read(properties: Path) -> dict[str, str]:
    lines = properties.read_text(encoding="utf-8").splitlines()
    pairs = (each.partition("=") for each in lines if each and not each.startswith("#"))
    return {name: value for name, _, value in pairs}
