"""The brokers' restrictions on a job's transactions: writable topics, and record sizes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from standby.adapters.kafka.clients import answer_of
from standby.adapters.kafka.renewable_client import RenewableClient
from standby.config import CHANGELOG_RECORD_BYTES, JobConfig
from standby.kernel.ports import ANSWER_SECONDS

_log: Final = logging.getLogger(__name__)

#: A topic's limit for a record batch, and the client's limit for a record.
_OF_TOPIC: Final = "max.message.bytes"
_OF_CLIENT: Final = "message.max.bytes"

#: Maximum overhead of a batch, and of a record (Kafka's record format 2).
_OVERHEAD_BYTES: Final = 128


class WriteRights:
    """Determines the topics that a job's principal may write to, when a transaction failed for an unknown reason.

    If a permission is missing, the brokers refuse to add the partition to the transaction, and librdkafka reports
    the pending records as purged, without the reason. So another client asks the brokers. Thread-safe.
    """

    def __init__(self, admin: RenewableClient[AdminClient]) -> None:
        self._admin = admin

    def not_writable(self, topics: Collection[str]) -> list[str]:
        """Return those of ``topics`` that must not be written to; topics with unknown permissions are left out."""
        found = []
        for topic in sorted(topics):
            try:
                with self._admin.use() as admin:
                    asked = admin.describe_topics(
                        TopicCollection([topic]),
                        include_authorized_operations=True,
                        request_timeout=ANSWER_SECONDS,
                    )[topic]
                    allowed = answer_of(admin, asked, ANSWER_SECONDS + 1, topic).authorized_operations
            except KafkaException as error:
                _log.warning("the permissions on %s are not known: %s", topic, error)
                continue
            # None: the broker does not report it.
            if allowed is not None and not {AclOperation.WRITE, AclOperation.ALL} & set(allowed):
                found.append(topic)
        return found


class RecordSizes:
    """The size limits of a job's records, and the message about refused ones.

    The job's writers share what was learned from refusals. Thread-safe.
    """

    def __init__(self, config: JobConfig, admin: RenewableClient[AdminClient]) -> None:
        self._admin = admin
        self._of_client = int(config.kafka.get(_OF_CLIENT, CHANGELOG_RECORD_BYTES))
        self.batch_bytes: int | None = None
        """Maximum batch size for writers; None: the default."""

    def refused(self, largest: Mapping[str, int], reason: str) -> str:
        """Return the message about a transaction with a refused record, and reduce the size of later batches.

        ``largest`` has the size of its largest record for each topic, ``reason`` is the client's message.
        """
        over = {topic: size for topic, size in largest.items() if _is_over(size, self._of_client)}
        if over:
            return _message(over, dict.fromkeys(over, self._of_client), f"kafka.{_OF_CLIENT}")
        if not largest:
            return reason
        limits = {topic: self._limit_of(topic) for topic in largest}
        known = {topic: limit for topic, limit in limits.items() if limit is not None}
        # Without the permission to read the limits, each record is sent by itself.
        piece = max(1, min(known.values()) - _OVERHEAD_BYTES) if len(known) == len(limits) else 1
        self.batch_bytes = piece if self.batch_bytes is None else min(piece, self.batch_bytes)
        over = {
            topic: size for topic, size in largest.items() if topic in known and _is_over(size, known[topic])
        }
        if over:
            return _message(over, known, f"the topic's {_OF_TOPIC}")
        return f"{reason}; the largest records: {', '.join(f'{topic} {size} bytes' for topic, size in largest.items())}"

    def is_over(self, largest: Mapping[str, int]) -> bool:
        """Return whether a record of a transaction is known to be too large; ``largest`` as in `refused`."""
        limits = {topic: self._limit_of(topic) for topic in largest}
        return any(limit is not None and _is_over(largest[topic], limit) for topic, limit in limits.items())

    def _limit_of(self, topic: str) -> int | None:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        try:
            with self._admin.use() as admin:
                answer = admin.describe_configs([asked], request_timeout=ANSWER_SECONDS)[asked]
                return int(answer_of(admin, answer, ANSWER_SECONDS + 1, topic)[_OF_TOPIC].value)
        except (KafkaException, KeyError, ValueError) as error:
            _log.warning("%s of %s is not known: %s", _OF_TOPIC, topic, error)
            return None


def _is_over(size: int, limit: int) -> bool:
    return size + _OVERHEAD_BYTES > limit


def _message(over: Mapping[str, int], limits: Mapping[str, int], setting: str) -> str:
    return "; ".join(
        f"a record of {size} bytes, key and value, is too large for {topic}: {setting} is {limits[topic]}"
        for topic, size in over.items()
    )
