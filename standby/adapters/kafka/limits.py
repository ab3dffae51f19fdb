"""What the brokers let a job's transactions write: which topics, and records of what size."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from standby.adapters.kafka.lasting import Lasting
from standby.config import CHANGELOG_RECORD_BYTES, JobConfig
from standby.kernel.ports import ANSWER_SECONDS

_log: Final = logging.getLogger(__name__)

#: A topic's bound on what is sent to it in one piece, and the client's on one record.
_OF_TOPIC: Final = "max.message.bytes"
_OF_CLIENT: Final = "message.max.bytes"

#: What a piece has beside its records, and a record beside its key and value, at most (Kafka's record format 2).
_OVERHEAD_BYTES: Final = 128


class Rights:
    """Which topics a job's own principal may write to, for a transaction that failed without saying why.

    Where a right is missing, the brokers refuse to take the partition into the transaction, and librdkafka drops what
    was to be sent: of the record itself it is told that it was purged. So the brokers are asked, by a client that is no
    part of the transaction. From any thread.
    """

    def __init__(self, admin: Lasting[AdminClient]) -> None:
        self._admin = admin

    def not_writable(self, topics: Collection[str]) -> list[str]:
        """Return those of ``topics`` that may not be written to; one of which that is not told is left out."""
        found = []
        for topic in sorted(topics):
            try:
                with self._admin.use() as admin:
                    asked = admin.describe_topics(
                        TopicCollection([topic]),
                        include_authorized_operations=True,
                        request_timeout=ANSWER_SECONDS,
                    )[topic]
                    allowed = asked.result(ANSWER_SECONDS + 1).authorized_operations
            except (KafkaException, concurrent.futures.TimeoutError) as error:
                _log.warning("what is allowed on %s is not known: %s", topic, error)
                continue
            # None: a broker that does not tell.
            if allowed is not None and not {AclOperation.WRITE, AclOperation.ALL} & set(allowed):
                found.append(topic)
        return found


class Sizes:
    """How large a job's records may be, and what is told of one that Kafka refuses.

    Its writers share what was learned from a refusal. From any thread.
    """

    def __init__(self, config: JobConfig, admin: Lasting[AdminClient]) -> None:
        self._admin = admin
        self._of_client = int(config.kafka.get(_OF_CLIENT, CHANGELOG_RECORD_BYTES))
        self.batch_bytes: int | None = None
        """Most bytes that writers may send in one piece; None: as many as ever."""

    def refused(self, largest: Mapping[str, int], reason: str) -> str:
        """Return what is told of a transaction of which something was refused, and have smaller pieces sent after it.

        ``largest`` are the bytes of its largest record for each topic, ``reason`` the client library's words.
        """
        over = {topic: size for topic, size in largest.items() if _is_over(size, self._of_client)}
        if over:
            return _told(over, dict.fromkeys(over, self._of_client), f"kafka.{_OF_CLIENT}")
        if not largest:
            return reason
        limits = {topic: self._limit_of(topic) for topic in largest}
        known = {topic: limit for topic, limit in limits.items() if limit is not None}
        # Without the right to ask, each record is sent by itself.
        piece = max(1, min(known.values()) - _OVERHEAD_BYTES) if len(known) == len(limits) else 1
        self.batch_bytes = piece if self.batch_bytes is None else min(piece, self.batch_bytes)
        over = {
            topic: size for topic, size in largest.items() if topic in known and _is_over(size, known[topic])
        }
        if over:
            return _told(over, known, f"the topic's {_OF_TOPIC}")
        return f"{reason}; the largest records: {', '.join(f'{topic} {size} bytes' for topic, size in largest.items())}"

    def is_over(self, largest: Mapping[str, int]) -> bool:
        """Return whether a record of a transaction, ``largest`` as in `refused`, is known to be too large."""
        limits = {topic: self._limit_of(topic) for topic in largest}
        return any(limit is not None and _is_over(largest[topic], limit) for topic, limit in limits.items())

    def _limit_of(self, topic: str) -> int | None:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        try:
            with self._admin.use() as admin:
                answer = admin.describe_configs([asked], request_timeout=ANSWER_SECONDS)[asked]
                return int(answer.result(ANSWER_SECONDS + 1)[_OF_TOPIC].value)
        except (KafkaException, concurrent.futures.TimeoutError, KeyError, ValueError) as error:
            _log.warning("%s of %s is not known: %s", _OF_TOPIC, topic, error)
            return None


def _is_over(size: int, limit: int) -> bool:
    return size + _OVERHEAD_BYTES > limit


def _told(over: Mapping[str, int], limits: Mapping[str, int], setting: str) -> str:
    return "; ".join(
        f"a record of {size} bytes, key and value, is too large for {topic}: {setting} is {limits[topic]}"
        for topic, size in over.items()
    )
