"""Where partitions begin and end, through confluent-kafka.

A consumer is asked, by `offsets_for_times`, and never the admin client's `list_offsets`. That one may end the process:
when it does not know a partition's leader it has the client's own thread wait for one, and reads on in what that thread
has freed if the answer comes at once (librdkafka 2.16, `rd_kafka_topic_partition_list_query_leaders_async`).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)

from standby.adapters.kafka import clients
from standby.adapters.kafka.codes import translate
from standby.adapters.kafka.lasting import Lasting
from standby.adapters.kafka.refusals import Refusals
from standby.errors import StandfastError, Transient
from standby.kernel.ports import ANSWER_SECONDS
from standby.model import InputPartition

Settings = Mapping[str, "str | int | bool"]

#: What is asked for, in place of a time.
EARLIEST: Final[int] = OFFSET_BEGINNING
LATEST: Final[int] = OFFSET_END

_KINDS: Final = {
    IsolationLevel.READ_COMMITTED: clients.STABLE_OFFSETS,
    IsolationLevel.READ_UNCOMMITTED: clients.OFFSETS_OF_ALL,
}


def offset_in(answer: TopicPartition, what: str) -> int:
    """Return the offset in an answer to `offsets_for_times`; raises `StandfastError` where there is none.

    What nobody has answered for in time comes back as it was asked.
    """
    if answer.error is not None:
        raise translate(answer.error, what)
    if answer.offset < 0:
        raise Transient(f"{what}: no answer in time")
    return answer.offset


class Offsets:
    """Asks where partitions begin and end, over one connection for each isolation level; from any thread."""

    def __init__(self, settings: Settings, group: str, **more: Any) -> None:
        """``group`` is one whose coordinator the clients may look for; ``more`` is as in `ClientKind.make`."""
        self._settings, self._group, self._more = settings, group, more
        self._lock = threading.Lock()
        self._clients: dict[IsolationLevel, Lasting[Consumer]] = {}

    def ask(
        self,
        places: Collection[InputPartition],
        level: IsolationLevel,
        specs: Sequence[int],
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> tuple[dict[InputPartition, tuple[int, ...]], StandfastError | None]:
        """Return what each place has for ``specs``, and why some are not among them; raises when none is."""
        if not places:
            return {}, None
        with self._client(level).use() as consumer:
            answers = [_ask(consumer, places, spec, timeout_seconds) for spec in specs]
            found: dict[InputPartition, tuple[int, ...]] = {}
            failure: StandfastError | None = None
            for each in places:
                what = f"asking where {each[0]}[{each[1]}] {'ends' if len(specs) == 1 else 'begins and ends'}"
                try:
                    found[each] = tuple(offset_in(answer[each], what) for answer in answers)
                except StandfastError as error:
                    failure = error
            if failure is not None and not found:
                raise failure
        return found, failure

    def _client(self, level: IsolationLevel) -> Lasting[Consumer]:
        with self._lock:
            if level not in self._clients:
                refusals, kind = Refusals(), _KINDS[level]
                self._clients[level] = Lasting(
                    lambda: kind.make(
                        self._settings, {"group.id": self._group}, error_cb=refusals.note, **self._more
                    ),
                    explain=refusals.explain,
                )
            return self._clients[level]


def _ask(
    consumer: Consumer, places: Collection[InputPartition], spec: int, timeout_seconds: float
) -> dict[InputPartition, TopicPartition]:
    asked = [TopicPartition(*each, spec) for each in places]
    try:
        return {
            (each.topic, each.partition): each for each in consumer.offsets_for_times(asked, timeout_seconds)
        }
    except KafkaException as error:
        # Of all of them: that no leader is known, or nobody answers.
        names = ", ".join(f"{topic}[{number}]" for topic, number in sorted(places))
        raise translate(error.args[0], f"asking for the offsets of {names}") from error
