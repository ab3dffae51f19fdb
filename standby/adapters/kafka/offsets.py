"""Requests the bounds of partitions, through confluent-kafka.

This uses a consumer's `offsets_for_times`, never the admin client's `list_offsets`, which may crash the process:
when a partition's leader is unknown, it lets the client's thread wait for one, and reads memory that this thread has
freed if the answer arrives at once (librdkafka 2.16, `rd_kafka_topic_partition_list_query_leaders_async`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from standby.adapters.kafka import clients
from standby.adapters.kafka.codes import translate
from standby.adapters.kafka.renewable_client import CLOSED, RenewableClient, lasting
from standby.config import KafkaSettings
from standby.errors import StandfastError, Transient
from standby.kernel.ports import ANSWER_SECONDS
from standby.shared.model import InputPartition

_log: Final = logging.getLogger(__name__)

#: Special values instead of a time.
EARLIEST: Final[int] = OFFSET_BEGINNING
LATEST: Final[int] = OFFSET_END

_WHAT: Final = {EARLIEST: "begins", LATEST: "ends"}

_KINDS: Final = {
    IsolationLevel.READ_COMMITTED: clients.STABLE_OFFSETS,
    IsolationLevel.READ_UNCOMMITTED: clients.OFFSETS_OF_ALL,
}


#: Time-out of the combined request, before leaders are asked separately; also how long to wait for further answers
#: after the first.
_AT_ONCE_SECONDS: Final = 0.5

#: An offset, or the error.
_Answer = TopicPartition | KafkaError


def offset_in(answer: TopicPartition | KafkaError, what: str) -> int:
    """Return the offset in an answer to `offsets_for_times`. Raises `StandfastError` when there is none.

    A partition without a timely answer is returned unchanged by the client.
    """
    if isinstance(answer, KafkaError):
        raise translate(answer, what)
    if answer.error is not None:
        raise translate(answer.error, what)
    if answer.offset < 0:
        raise Transient(f"{what}: no answer in time")
    return answer.offset


class OffsetClient:
    """Requests the bounds of partitions, with one client per isolation level. Thread-safe."""

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        """``group``: the clients may look up its coordinator."""
        self._settings, self._group = settings, group
        self._lock = threading.Lock()
        # Guards everything below.
        self._clients: dict[IsolationLevel, RenewableClient[Consumer]] = {}
        self._is_closed = False

    def ask(
        self,
        places: Collection[InputPartition],
        level: IsolationLevel,
        specs: Sequence[int],
        timeout_seconds: float = ANSWER_SECONDS,
        *,
        needs_all: bool = False,
    ) -> tuple[dict[InputPartition, tuple[int, ...]], StandfastError | None]:
        """Return each place's offsets for ``specs``, and the error if some are missing. Raises if all are missing.

        ``needs_all``: some of them are of no use, so that a leader that is slow is waited for although others answer.
        """
        if not places:
            return {}, None
        with self._client(level).use() as consumer:
            found: dict[InputPartition, tuple[int, ...]] = dict.fromkeys(places, ())
            failure: StandfastError | None = None
            for spec in specs:
                answers = _ask(consumer, found, spec, timeout_seconds, needs_all=needs_all)
                for place, before in list(found.items()):
                    what = f"asking where {place[0]}[{place[1]}] {_WHAT[spec]}"
                    try:
                        found[place] = (*before, offset_in(answers[place], what))
                    except StandfastError as error:
                        failure = error
                        # A place without an answer to one request is left out of the next.
                        del found[place]
                if failure is not None and not found:
                    raise failure
        return found, failure

    def connect(self, topic: str, level: IsolationLevel) -> None:
        """Connect the client for ``level`` to the cluster that has ``topic``, on another thread, if there is none."""
        with self._lock:
            if level in self._clients or self._is_closed:
                return
        threading.Thread(
            target=self._connect, args=(topic, level), name="offsets-connect", daemon=True
        ).start()

    def close(self) -> None:
        """Release the clients; see `RenewableClient.close`."""
        with self._lock:
            self._is_closed = True
            made = tuple(self._clients.values())
        for each in made:
            each.close()

    def _connect(self, topic: str, level: IsolationLevel) -> None:
        # Whoever asks next reports what is wrong.
        with suppress(KafkaException, StandfastError), self._client(level).use() as consumer:
            consumer.list_topics(topic, ANSWER_SECONDS)

    def _client(self, level: IsolationLevel) -> RenewableClient[Consumer]:
        with self._lock:
            if self._is_closed:
                raise Transient(CLOSED)
            if level not in self._clients:
                own = {"group.id": self._group}
                self._clients[level] = lasting(_KINDS[level], self._settings, own)
            return self._clients[level]


def _ask(
    consumer: Consumer,
    places: Collection[InputPartition],
    spec: int,
    timeout_seconds: float,
    *,
    needs_all: bool,
) -> dict[InputPartition, _Answer]:
    """Return an answer for each place.

    First, one request is sent for all places, which fails if one of the leaders is unavailable. Then each leader is
    asked separately, and after the first answer, the others get a little more time, or all of it if ``needs_all``.
    """
    try:
        return _ask_at_once(consumer, places, spec, min(timeout_seconds, _AT_ONCE_SECONDS))
    except KafkaException as error:
        _log.debug("asking for offsets: %s", error)
    leaders: dict[int, list[InputPartition]] = {}
    answers: dict[InputPartition, _Answer] = {}
    for place, leader in _leaders(consumer, places, timeout_seconds).items():
        if isinstance(leader, KafkaError):
            answers[place] = leader
        else:
            leaders.setdefault(leader, []).append(place)

    def ask(of_one: list[InputPartition]) -> dict[InputPartition, _Answer]:
        try:
            return _ask_at_once(consumer, of_one, spec, timeout_seconds)
        except KafkaException as error:
            return dict.fromkeys(of_one, error.args[0])

    threads = ThreadPoolExecutor(max(1, len(leaders)), "offsets")
    asked = {threads.submit(ask, of_one): of_one for of_one in leaders.values()}
    threads.shutdown(wait=False)
    done, waiting = wait(asked, timeout_seconds, FIRST_COMPLETED)
    # Do not wait the full time-out of an unavailable leader once others have answered.
    more, late = wait(waiting, timeout_seconds if needs_all else _AT_ONCE_SECONDS)
    for each in done | more:
        answers.update(each.result())
    for each in late:
        answers.update(dict.fromkeys(asked[each], KafkaError(KafkaError._TIMED_OUT)))  # noqa: SLF001
    return answers


def _ask_at_once(
    consumer: Consumer, places: Collection[InputPartition], spec: int, timeout_seconds: float
) -> dict[InputPartition, _Answer]:
    asked = [TopicPartition(*each, spec) for each in places]
    return {(each.topic, each.partition): each for each in consumer.offsets_for_times(asked, timeout_seconds)}


def _leaders(
    consumer: Consumer, places: Collection[InputPartition], timeout_seconds: float
) -> dict[InputPartition, int | KafkaError]:
    """Return the leader of each place, or the error. Raises `StandfastError` when there is no answer."""
    names = sorted({topic for topic, _ in places})
    try:
        topics = {name: consumer.list_topics(name, timeout_seconds).topics[name] for name in names}
    except KafkaException as error:
        raise translate(error.args[0], f"asking for the leaders of {', '.join(names)}") from error
    found: dict[InputPartition, int | KafkaError] = {}
    for topic, number in places:
        partition = topics[topic].partitions.get(number)
        if partition is not None and partition.leader >= 0:
            found[topic, number] = partition.leader
        else:
            why = topics[topic].error if partition is None else partition.error
            found[topic, number] = why or KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    return found
