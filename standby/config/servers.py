"""Where Kafka and ZooKeeper are."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import key


@dataclass(frozen=True, kw_only=True)
class ServerKeys:
    """Where Kafka and ZooKeeper are."""

    kafka_bootstrap: str = key(
        "kafka.bootstrap.servers",
        "Kafka brokers; by default $STANDFAST_KAFKA.",
        example="broker1:9092,broker2:9092",
        applies="never",
    )
    zookeeper: str = key(
        "zookeeper.connect",
        "ZooKeeper servers; by default $STANDFAST_ZOOKEEPER. With a path after the last server, all nodes of the "
        "cluster are below it; a submit creates it if it is missing.",
        example="zk1:2181,zk2:2181/apps",
        applies="never",
    )
    zookeeper_ca: str = key(
        "zookeeper.ssl.ca.location",
        "Connect to ZooKeeper over TLS, and accept servers whose certificates, for their names as in "
        "`zookeeper.connect`, are of an authority in this file (PEM, on every host); by default "
        "$STANDFAST_ZOOKEEPER_CA.",
        "",
        scope="cluster",
    )
    zookeeper_certificate: str = key(
        "zookeeper.ssl.certificate.location",
        "Client certificate for ZooKeeper's servers (PEM, on every host); by default "
        "$STANDFAST_ZOOKEEPER_CERTIFICATE.",
        "",
        scope="cluster",
    )
    zookeeper_key: str = key(
        "zookeeper.ssl.key.location",
        "Its private key (PEM without a password, on every host); by default $STANDFAST_ZOOKEEPER_KEY.",
        "",
        scope="cluster",
    )
