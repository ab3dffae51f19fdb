"""Which topics a job's own principal may write to, for a transaction that failed without saying why.

Where a right is missing, the brokers refuse to take the partition into the transaction, and librdkafka drops what was
to be sent: of the record itself it is told that it was purged.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Collection
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]

from standby.adapters.kafka.lasting import Lasting
from standby.kernel.ports import ANSWER_SECONDS

_log: Final = logging.getLogger(__name__)


class Rights:
    """Asks the brokers, by a client that is no part of the transaction. From any thread."""

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
