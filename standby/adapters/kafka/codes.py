"""Classifies Kafka's error codes for all clients: which errors may be retried. Pure."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from standby.errors import Transient, Unavailable
from standby.kernel.ports import ON_DAMAGE

# ruff: noqa: SLF001 - librdkafka's own errors are named like this

#: Errors that a retry cannot fix: a permission, a login, a setting or a release must be changed first.
REFUSED: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.UNSUPPORTED_VERSION,
        # An invalid topic name.
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_GROUP_ID,
        # Above the brokers' transaction.max.timeout.ms.
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
    }
)

#: The topic or partition does not exist: requests are retried, writes are refused.
MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)

#: A partition has nothing at the requested position.
OUT_OF_RANGE: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}
)

#: Data in a partition is unreadable. librdkafka reports this once per batch, and skips the batch.
DAMAGED: Final = frozenset(
    {
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        # A batch in an unknown format.
        KafkaError._NOT_IMPLEMENTED,
        KafkaError._UNDERFLOW,
        # CORRUPT_MESSAGE in Kafka's protocol.
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    }
)

#: Records are larger than a topic, a broker or the client accepts.
TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

#: A later producer uses the same transactional id.
FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


def translate(reason: object, what: str) -> Unavailable:
    """Return our error for one of Kafka that occurred while doing ``what``.

    ``reason`` is the argument of a `KafkaException`. Returns `Transient`, unless a retry cannot help.
    """
    if not isinstance(reason, KafkaError):
        return Transient(f"{what}: {reason}")
    text = f"{what}: {reason.name()}: {reason.str()}"
    if reason.code() in DAMAGED:
        return Unavailable(f"{text}; {ON_DAMAGE}")
    return Unavailable(text) if reason.code() in REFUSED else Transient(text)
