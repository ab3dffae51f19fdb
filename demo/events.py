"""Follows the cluster's event log: a Kafka topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from demo.topics import QUIET
from standby.errors import Unavailable

_POLL_SECONDS: Final = 0.2


class Event(msgspec.Struct, frozen=True):
    """One entry of the log."""

    at_ms: int
    kind: str
    epoch: int = 0
    job: str | None = None
    task: Any = None
    copy: int | None = None
    container: str | None = None
    host: str | None = None
    reason: str | None = None
    data: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """Return the event as one line for display."""
        where = " ".join(filter(None, (self.container, f"on {self.host}" if self.host else None)))
        return " · ".join(filter(None, (self.kind.replace("_", " "), where, self.reason)))


class EventLog:
    """Collects the events of a topic on a separate thread, from `start` until `stop`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._events: list[Event] = []
        self._came = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Start reading at the log's beginning; the topic need not exist yet."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def events(self) -> tuple[Event, ...]:
        """Return all events so far, in the log's order."""
        with self._came:
            return tuple(self._events)

    def wait_for(
        self, is_there: Callable[[tuple[Event, ...]], bool], timeout_seconds: float
    ) -> tuple[Event, ...] | None:
        """Return all events as soon as ``is_there`` holds for them; None if it does not in time."""
        deadline = time.monotonic() + timeout_seconds
        with self._came:
            while not is_there(tuple(self._events)):
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._came.wait(left)
            return tuple(self._events)

    def _run(self) -> None:
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self._bootstrap,
                "group.id": "standfast-demo-events",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # The master creates the topic; until then the client retries at this interval.
                "topic.metadata.refresh.interval.ms": 1_000,
                "allow.auto.create.topics": False,
            }
        )
        try:
            # The log has one partition: its order is the order of the leader's decisions.
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            while not self._stop.is_set():
                message = consumer.poll(_POLL_SECONDS)
                if message is None or message.error() is not None:
                    continue
                event = decode(message.value())
                if event is not None:
                    with self._came:
                        self._events.append(event)
                        self._came.notify_all()
        except KafkaException as error:
            raise Unavailable(f"{self._topic} cannot be read: {error.args[0].str()}") from error
        finally:
            consumer.close()


def decode(value: bytes | None) -> Event | None:
    """Return the event in ``value``; None if another version of the program wrote it."""
    try:
        return msgspec.json.decode(value or b"", type=Event)
    except msgspec.MsgspecError:
        return None
