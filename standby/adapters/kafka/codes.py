"""What Kafka's error codes mean to whoever may try again: the one list, for all clients. Pure."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from standby.errors import Transient, Unavailable
from standby.kernel.ports import ON_DAMAGE

# ruff: noqa: SLF001 - librdkafka's own errors are named like this

#: What no repetition mends: a right, a login, a setting or a release has to be changed first.
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
        # No name that a topic can have.
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_GROUP_ID,
        # Above the brokers' transaction.max.timeout.ms.
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
    }
)

#: There is no such topic or partition: what is asked is asked again, what is written is refused.
MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)

#: A partition has nothing at the position that was asked for.
OUT_OF_RANGE: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}
)

#: What lies in a partition cannot be read. librdkafka tells it once for each batch, and goes on behind it.
DAMAGED: Final = frozenset(
    {
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        # A batch of another format than any that is known.
        KafkaError._NOT_IMPLEMENTED,
        KafkaError._UNDERFLOW,
        # CORRUPT_MESSAGE, as Kafka's protocol calls it.
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    }
)

#: Records that are larger than a topic, a broker or the client takes.
TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

#: Another producer with the same transactional id came later.
FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


def translate(reason: object, what: str) -> Unavailable:
    """Return the error of ours for one of Kafka's that came while doing ``what``.

    ``reason`` is what a `KafkaException` holds. `Transient`, unless no repetition helps.
    """
    if not isinstance(reason, KafkaError):
        return Transient(f"{what}: {reason}")
    text = f"{what}: {reason.name()}: {reason.str()}"
    if reason.code() in DAMAGED:
        return Unavailable(f"{text}; {ON_DAMAGE}")
    return Unavailable(text) if reason.code() in REFUSED else Transient(text)
