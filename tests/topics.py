"""Topics for tests, made and known before anybody uses them."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.patience import PATIENCE_SECONDS, soon


def make_topics(bootstrap: str, topics: Iterable[NewTopic]) -> None:
    """Make topics and return when each of their partitions has a leader.

    Each look is a client's first: one that was told that a new topic has no leader yet (librdkafka 2.16) asks again
    only after seconds.
    """
    wanted = {each.topic: each.num_partitions for each in topics}
    # Kept until all has come: what a client was asked for ends with it.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(list(topics)).values():
        future.result(PATIENCE_SECONDS)
    soon(
        lambda: not _without_leader(bootstrap, wanted),
        lambda: f"a leader of {_without_leader(bootstrap, wanted)}",
    )


def _without_leader(bootstrap: str, wanted: dict[str, int]) -> list[str]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_SECONDS).topics
    return [
        name
        for name, partitions in wanted.items()
        if name not in found
        or len(found[name].partitions) < partitions
        or any(each.leader < 0 for each in found[name].partitions.values())
    ]
