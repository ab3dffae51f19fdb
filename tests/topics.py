"""Topics for tests, made and known before anybody uses them."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tests.patience import PATIENCE_SECONDS, TRY_SECONDS, soon

#: What was made and not deleted since, by broker: of those that outlive a test.
_MADE: Final[dict[str, set[str]]] = {}


def outlives_tests(bootstrap: str) -> None:
    """Have `delete_made_topics` delete what is made on a broker; one of a test's own ends with what is on it."""
    _MADE[bootstrap] = set()


def delete_made_topics() -> None:
    """Delete all that `make_topics` has made since: what is left there keeps a broker busy for as long as it runs.

    A test may have deleted some of it itself.
    """
    for bootstrap, made in _MADE.items():
        if made:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for future in admin.delete_topics(sorted(made), request_timeout=PATIENCE_SECONDS).values():
                with contextlib.suppress(KafkaException):
                    future.result(2 * PATIENCE_SECONDS)
            made.clear()


def make_topics(bootstrap: str, topics: Iterable[NewTopic]) -> None:
    """Make topics and return when each of their partitions tells where it ends.

    A broker can name the leader of a new partition, be it itself, before it knows that partition. A record that comes
    in between is given up by librdkafka (its issue 4904).
    """
    wanted = {each.topic: each.num_partitions for each in topics}
    # Kept until all has come: what a client was asked for ends with it.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if bootstrap in _MADE:
        _MADE[bootstrap].update(wanted)
    for future in admin.create_topics(list(topics)).values():
        future.result(PATIENCE_SECONDS)
    soon(lambda: not _unknown(bootstrap, wanted), lambda: f"the ends of {_unknown(bootstrap, wanted)}")


def _unknown(bootstrap: str, wanted: dict[str, int]) -> dict[str, Exception]:
    """Return which topics do not tell their ends, and why.

    By a client of its own each time: one that was told once that a new topic has no leader yet (librdkafka 2.16)
    sometimes finds none for half a minute and more.
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
