"""What is handed on to Kafka's clients, and what a job cannot set of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standby.config.whole import JobConfig
from standby.security.secret_files import resolved

#: Of one client, by librdkafka's names.
KafkaSettings = Mapping[str, "str | int | bool"]

#: The largest record that a changelog takes, key and value: the topic, its writers and its readers agree on it.
CHANGELOG_RECORD_BYTES: Final = 8 << 20

#: Settings that the exactly-once kernel owns; a job that sets one would break what it rests on.
OWNED_BY_KERNEL: Final = frozenset(
    {
        "kafka.transactional.id",
        "kafka.enable.idempotence",
        "kafka.enable.auto.commit",
        "kafka.enable.auto.offset.store",
        "kafka.auto.offset.reset",
        "kafka.isolation.level",
        "kafka.group.id",
        "kafka.acks",
    }
)


#: Settings of the Java client (without prefix) that librdkafka refuses: logins that cannot be translated for Spark.
_JAVA_ONLY: Final = frozenset({"sasl.jaas.config", "sasl.login.callback.handler.class"})


def kafka_settings(config: JobConfig) -> dict[str, str | int | bool]:
    """Return librdkafka settings: the job's `kafka.*` keys; raises as `librdkafka_settings`."""
    return librdkafka_settings(config.kafka_bootstrap, config.kafka)


def librdkafka_settings(bootstrap: str, further: Mapping[str, str]) -> dict[str, str | int | bool]:
    """Return settings for librdkafka, without those of ``further`` that are for Spark's reader alone.

    Secrets that files hold are read here, on this host; raises as `standby.security.secret_files.resolved`.
    """
    return {
        "bootstrap.servers": bootstrap,
        **{name: value for name, value in resolved(further, "kafka.").items() if name not in _JAVA_ONLY},
    }
