"""Settings that are passed on to Kafka clients, and those that a job must not set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standby.config.whole import JobConfig
from standby.security.secret_files import resolved

#: Settings of one client, with librdkafka's names.
KafkaSettings = Mapping[str, "str | int | bool"]

#: Maximum size of a changelog record, key and value; used for the topic, its writers and its readers.
CHANGELOG_RECORD_BYTES: Final = 8 << 20

#: Settings that exactly-once processing depends on, so a job must not set them.
OWNED_BY_KERNEL: Final = frozenset(
    {
        "kafka.transactional.id",
        "kafka.enable.idempotence",
        "kafka.enable.auto.commit",
        "kafka.enable.auto.offset.store",
        "kafka.auto.offset.reset",
        "kafka.isolation.level",
        "kafka.enable.partition.eof",
        "kafka.group.id",
        "kafka.acks",
    }
)


def kafka_settings(config: JobConfig) -> dict[str, str | int | bool]:
    """Return the librdkafka settings of the job's `kafka.*` keys. Raises like `librdkafka_settings`."""
    return librdkafka_settings(config.kafka_bootstrap, config.kafka)


def librdkafka_settings(bootstrap: str, further: Mapping[str, str]) -> dict[str, str | int | bool]:
    """Return settings for librdkafka.

    Secrets in files are read here, on this host. Raises like `standby.security.secret_files.resolved`.
    """
    return {"bootstrap.servers": bootstrap, **resolved(further, "kafka.")}
