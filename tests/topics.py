"""Topics for tests, created and known to the broker before they are used."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from standby.adapters.kafka.clients import answer_of
from tests.patience import PATIENCE_SECONDS, TRY_SECONDS, soon

#: Topics that were created and not deleted since, by broker; only of brokers that outlive a test.
_MADE: Final[dict[str, set[str]]] = {}


def outlives_tests(bootstrap: str) -> None:
    """Let `delete_made_topics` delete the topics of a broker; a test's own broker ends with its topics."""
    _MADE[bootstrap] = set()


def delete_made_topics() -> None:
    """Delete all topics that `make_topics` has created since: topics keep a broker busy for as long as it runs.

    A test may have deleted some of them itself.
    """
    for bootstrap, made in _MADE.items():
        if made:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for future in admin.delete_topics(sorted(made), request_timeout=PATIENCE_SECONDS).values():
                with contextlib.suppress(KafkaException):
                    future.result(2 * PATIENCE_SECONDS)
            made.clear()


def make_topics(bootstrap: str, topics: Iterable[NewTopic]) -> None:
    """Create topics and wait until each of their partitions reports its end.

    A broker can name the leader of a new partition, even itself, before it knows that partition. librdkafka gives up a
    record that is sent in between (its issue 4904).
    """
    wanted = {each.topic: each.num_partitions for each in topics}
    # Kept until everything has arrived: a client's requests end with it.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if bootstrap in _MADE:
        _MADE[bootstrap].update(wanted)
    for name, future in admin.create_topics(list(topics)).items():
        answer_of(admin, future, PATIENCE_SECONDS, name)
    soon(lambda: not _unknown(bootstrap, wanted), lambda: f"the ends of {_unknown(bootstrap, wanted)}")


def create_again(bootstrap: str, topic: NewTopic) -> None:
    """Delete a topic and create it again, as its owner would."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deleted = admin.delete_topics([topic.topic], operation_timeout=PATIENCE_SECONDS)
    deleted[topic.topic].result(PATIENCE_SECONDS)

    def is_created() -> bool:
        try:
            admin.create_topics([topic])[topic.topic].result(PATIENCE_SECONDS)
        except KafkaException:
            # It may still be on its way out.
            return False
        return True

    soon(is_created, f"{topic.topic} is created again")


def _unknown(bootstrap: str, wanted: dict[str, int]) -> dict[str, Exception]:
    """Return which topics do not report their ends, and why.

    With a new client each time: a client that once saw a new topic without a leader (librdkafka 2.16) sometimes finds
    none for half a minute and more.
    """
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {
        TopicPartition(topic, each): latest
        for topic, partitions in wanted.items()
        for each in range(partitions)
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: dict[str, Exception] = {}
    for place, answer in admin.list_offsets(asked, request_timeout=TRY_SECONDS).items():
        try:
            answer.result(2 * TRY_SECONDS)
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            found[place.topic] = error
    return found
