"""All kinds of Kafka clients that a job uses; the only place where clients are created.

A setting that one kind accepts may be refused by another: transactional producers and consumers have different
rules. So a job's settings are checked by creating one client of each kind (`check_clients`), which needs no broker.
Clients are always created by their kind, with the settings of that kind.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from standby.adapters.kafka import partitions
from standby.config import CHANGELOG_RECORD_BYTES, JobConfig, KafkaSettings, kafka_settings
from standby.errors import BadConfiguration
from standby.security.disclosure import HIDDEN, shown
from standby.shared.clock import REAL

#: librdkafka's own log.
LIBRARY_LOG: Final = logging.getLogger("librdkafka")

C = TypeVar("C", Producer, Consumer, AdminClient)

#: Maximum back-off of a client before it reconnects to an unavailable broker. After an outage of some seconds,
#: librdkafka's default of 10 s would delay the recovery by as much.
RECONNECT_MS: Final = 1_000

#: Maximum age of a client's cached partition leaders. The cache is not refreshed when a broker answers that it is
#: not the leader, as after a restart (FENCED_LEADER_EPOCH) or after the creation of a partition: with librdkafka's
#: default, requests would fail for up to 15 minutes.
LEADERS_RENEWED_MS: Final = 2_000

#: Memory for prefetched changelog records, for all readers of a job in a container together.
_QUEUE_BYTES: Final = 64 << 20

#: Settings that the Python client reserves for functions and objects; a text is not a valid value.
_OBJECTS: Final = frozenset(
    {
        "default.topic.config",
        "error_cb",
        "logger",
        "oauth_cb",
        "on_commit",
        "on_delivery",
        "stats_cb",
        "throttle_cb",
    }
)

#: Settings of every client. Nothing takes its statistics, which it would keep: 7 KB each, without any topic.
_OF_ALL: Final = {"statistics.interval.ms": 0}

#: Prefixes of settings by which a client finds and accesses brokers.
_OF_CONNECTION: Final = (
    "api.version.",
    "bootstrap.servers",
    "broker.",
    "client.",
    "debug",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "log",
    "metadata.broker.list",
    "plugin.library.paths",
    "sasl.",
    "security.",
    "socket.connection.",
    "socket.keepalive.",
    "socket.nagle.",
    "ssl.",
)

#: Setting names in the text of a refusal by librdkafka.
_NAMED: Final = re.compile(r"[`\"]([a-z_][a-z0-9_.]*)[`\"]")

#: The prefix of such a text if the client was created partly.
_PREFIX: Final = re.compile(r"Failed to create [a-z ]+: ")

#: Client settings that are derived from a key of the job file.
_FROM_KEY: Final = {"transaction.timeout.ms": "job.transaction.timeout.ms"}


@dataclass(frozen=True, slots=True)
class ClientNames:
    """Names of a job's clients."""

    group: str
    transactional_id: str = ""


#: For `check_clients`: no job has these names, in case a broker ever sees them.
_CHECKED: Final = ClientNames("standfast-check", "standfast-check")


@dataclass(frozen=True, slots=True)
class ClientKind(Generic[C]):
    """A kind of client. Clients are created by `make`; all kinds are in `KINDS` (`_kind`)."""

    what: str
    """A description, such as "the writer of a task's transactions"."""
    library: Callable[..., C]
    ours: KafkaSettings
    """Settings that override the job's."""
    defaults: KafkaSettings
    """Defaults, which the job may override."""
    of_job: Callable[[JobConfig, ClientNames], KafkaSettings]
    """Returns further overriding settings, which depend on the job or its names."""
    is_connection_only: bool
    """Whether it uses only those of the job's settings that concern the connection."""

    def make(self, settings: KafkaSettings, own: KafkaSettings | None = None, **more: Any) -> C:
        """Return a new client with the job's ``settings`` and with ``own``, the result of `of_job`.

        ``more`` is passed to the client's class: callbacks and loggers. Sends no request. Raises `BadConfiguration`
        with the settings that librdkafka refuses, their values and the violated rule.
        """
        # The client must not be referenced here: an exception of the client would keep this frame alive.
        try:
            return self.library(self._merged(settings, own or {}), **more)
        except (KafkaException, TypeError, ValueError, AttributeError) as error:
            raise BadConfiguration(self._refusal(settings, own or {}, more, _said(error))) from error

    def _merged(self, settings: KafkaSettings, own: KafkaSettings) -> dict[str, Any]:
        """Return all settings, ours last: if a setting has two names, the later one wins."""
        ours = {**_OF_ALL, **self.ours, **own}
        theirs = {
            name: value
            for name, value in settings.items()
            if name not in ours and (not self.is_connection_only or name.startswith(_OF_CONNECTION))
        }
        return {**self.defaults, **theirs, **ours}

    def _refusal(
        self, settings: KafkaSettings, own: KafkaSettings, more: Mapping[str, Any], said: str
    ) -> str:
        """Return the message about refused settings."""
        left = dict(settings)
        # They are determined by elimination, because the text may contain other names of the same settings.
        for name in settings:
            without = {each: value for each, value in left.items() if each != name}
            if self._tried(without, own, more) == said:
                left = without
        keys = [f"kafka.{name}: {shown(f'kafka.{name}', str(value), ())}" for name, value in left.items()]
        why = self._explained(said, settings, own)
        return f"{', '.join(keys) or 'kafka.*'}: {self.what} cannot be created with that: {why}"

    def _tried(self, settings: KafkaSettings, own: KafkaSettings, more: Mapping[str, Any]) -> str:
        """Return why a client with these settings is refused; empty when it is not."""
        try:
            client = self.library(self._merged(settings, own), **more)
        except (KafkaException, TypeError, ValueError, AttributeError) as error:
            return _said(error)
        end_client(client)
        return ""

    def _explained(self, said: str, settings: KafkaSettings, own: KafkaSettings) -> str:
        """Return librdkafka's message, with the values of our settings that it refers to."""
        known = {**self.defaults, **self.ours, **own}
        bounds = [
            f"{name} is {known[name]}{f', by {_FROM_KEY[name]}' if name in _FROM_KEY else ''}"
            for name in dict.fromkeys(_NAMED.findall(said))
            if name in known and name not in settings
        ]
        for name, value in settings.items():
            if shown(f"kafka.{name}", str(value), ()) == HIDDEN:
                said = said.replace(f'"{value}"', f'"{HIDDEN}"')
        return f"{said} ({'; '.join(bounds)})" if bounds else said


def _said(error: Exception) -> str:
    """Return the message of a refusal by librdkafka or the Python client."""
    reason = error.args[0] if error.args else error
    text = reason.str() if isinstance(reason, KafkaError) else str(reason)
    return _PREFIX.sub("", text.strip())


#: How long to wait for a consumer to close: closing takes milliseconds, or may never end.
_CLOSE_SECONDS: Final = 5.0


def close_consumer(consumer: Consumer) -> None:
    """Close a consumer; if it does not end within some seconds, return anyway, and leave the client behind.

    In librdkafka 2.16, an answer OFFSET_OUT_OF_RANGE to a fetch while the client is being destroyed causes a
    deadlock: the client's thread waits for a lock that it holds itself (`rd_kafka_offset_reset`), and the
    destruction waits for the thread.
    """
    closing = threading.Thread(target=consumer.close, name="consumer-close", daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
    if closing.is_alive():
        LIBRARY_LOG.warning(
            "a consumer has not ended within %g s; its threads stay until the process ends", _CLOSE_SECONDS
        )


#: How long an admin client waits for an answer before it asks again who the controller is.
_SOON_SECONDS: Final = 0.25

#: How long it waits for that answer: meanwhile it does not notice another one.
_ANY_BROKER_SECONDS: Final = 1.0


def answer_of(client: AdminClient, future: Future[Any], timeout_seconds: float, topic: str | None) -> Any:
    """Return the result of a request of ``client``. Raises `KafkaException`, also when there is no answer at all.

    While there is none, the client is made to ask for the brokers. It sends most requests to the controller of which it
    has heard last: with KRaft, each answer names any of the brokers that are alive. If that one dies, the client waits
    for it, and does not ask for another one by itself (librdkafka 2.16; docs/decisions/0054). ``topic`` is one that it
    may ask about, which need not exist; None: the request is for another broker.
    """
    deadline = REAL.monotonic() + timeout_seconds
    while True:
        try:
            return future.result(max(0.0, min(_SOON_SECONDS, deadline - REAL.monotonic())))
        except NoAnswer as error:
            if REAL.monotonic() >= deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from error  # noqa: SLF001
        if topic is not None:
            # An answer about a topic, which is short, has the brokers as well.
            with contextlib.suppress(KafkaException):
                left = deadline - REAL.monotonic()
                client.list_topics(topic, timeout=max(0.0, min(_ANY_BROKER_SECONDS, left)))


def committed_offsets(
    member: Consumer, asked: list[TopicPartition], timeout_seconds: float
) -> list[TopicPartition]:
    """Return the offsets of the consumer's group. Raises `KafkaException`, also when only one has no answer."""
    found = member.committed(asked, timeout=timeout_seconds)
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return found


def end_client(client: Producer | Consumer | AdminClient) -> None:
    """Close an unused client; producers and admin clients end when they are released."""
    if isinstance(client, Consumer):
        client.close()


#: All kinds, in the order in which they are checked.
KINDS: Final[list[ClientKind[Any]]] = []


def _nothing(config: JobConfig, names: ClientNames) -> KafkaSettings:
    return {}


def _of_group(config: JobConfig, names: ClientNames) -> KafkaSettings:
    # A consumer requires a group. Without a subscription it does not join it; offsets are committed by group name.
    return {"group.id": names.group}


def _of_transactions(config: JobConfig, names: ClientNames) -> KafkaSettings:
    return {
        "transactional.id": names.transactional_id,
        "transaction.timeout.ms": config.transaction_timeout_ms,
    }


def _kind(
    what: str,
    library: Callable[..., C],
    ours: KafkaSettings,
    of_job: Callable[[JobConfig, ClientNames], KafkaSettings] = _nothing,
    *,
    defaults: KafkaSettings | None = None,
    is_connection_only: bool = False,
) -> ClientKind[C]:
    """Return a new kind, added to `KINDS`."""
    found = ClientKind(what, library, ours, defaults or {}, of_job, is_connection_only)
    KINDS.append(found)
    return found


# ---- of the command line and of candidates ----

TOPICS: Final = _kind(
    "the client that asks about topics", AdminClient, {"metadata.max.age.ms": LEADERS_RENEWED_MS}
)

BROKERS: Final = _kind("the client that asks what the brokers are", AdminClient, {})

OFFSETS: Final = _kind(
    "the client that commits where added partitions begin",
    Consumer,
    {"enable.auto.commit": False},
    _of_group,
)

EVENTS_WRITER: Final = _kind(
    "the writer of the event log",
    Producer,
    {"linger.ms": 5, "enable.idempotence": True, "message.timeout.ms": 300_000},
)

EVENTS_READER: Final = _kind(
    "the reader of the event log",
    Consumer,
    {
        "group.id": "standfast-events-reader",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 50,
        "allow.auto.create.topics": False,
    },
)

OUTPUTS_READER: Final = _kind(
    "the reader of a job's outputs",
    Consumer,
    {
        "group.id": "standfast-outputs-reader",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 50,
        "allow.auto.create.topics": False,
    },
    is_connection_only=True,
)

INPUTS_WRITER: Final = _kind(
    "the writer of a job's inputs",
    Producer,
    {"enable.idempotence": True, "linger.ms": 5, partitions.SETTING: partitions.DEFAULT},
    is_connection_only=True,
)

#: It only initialises and writes nothing: a job's producer settings must not prevent the job from being ended.
FENCE: Final = _kind(
    "the producer that fences a task's writers",
    Producer,
    {},
    _of_transactions,
    is_connection_only=True,
)

# ---- of containers ----

QUESTIONS: Final = _kind(
    "the client that asks what topics are",
    AdminClient,
    {"metadata.max.age.ms": LEADERS_RENEWED_MS, "reconnect.backoff.max.ms": RECONNECT_MS},
)

_OFFSETS: Final[KafkaSettings] = {
    "enable.auto.commit": False,
    "allow.auto.create.topics": False,
    "metadata.max.age.ms": LEADERS_RENEWED_MS,
    "reconnect.backoff.max.ms": RECONNECT_MS,
}

STABLE_OFFSETS: Final = _kind(
    "the client that asks where committed records begin and end",
    Consumer,
    {**_OFFSETS, "isolation.level": "read_committed"},
    _of_group,
)

OFFSETS_OF_ALL: Final = _kind(
    "the client that asks where records begin and end",
    Consumer,
    {**_OFFSETS, "isolation.level": "read_uncommitted"},
    _of_group,
)

_MEMBER: Final[KafkaSettings] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "check.crcs": True,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.max.ms": RECONNECT_MS,
}

#: Only a consumer has a group's metadata; it never subscribes, so it does not join the group.
MEMBER: Final = _kind("the client that asks for committed offsets", Consumer, _MEMBER, _of_group)

#: It also gets offsets that an open transaction hides from others.
HASTY_MEMBER: Final = _kind(
    "the client that asks for offsets that are not stable",
    Consumer,
    {**_MEMBER, "isolation.level": "read_uncommitted"},
    _of_group,
)

#: For readers up to an end. Without the second one they would wait, in vain, for a record behind the last marker.
_TO_AN_END: Final[KafkaSettings] = {"auto.offset.reset": "earliest", "enable.partition.eof": True}

RECORDS: Final = _kind(
    "the reader of commit records and of Kafka's log of transactions",
    Consumer,
    {**_MEMBER, **_TO_AN_END, "isolation.level": "read_uncommitted"},
    _of_group,
)

STABLE_RECORDS: Final = _kind(
    "the reader of commit records of transactions that have ended",
    Consumer,
    {**_MEMBER, **_TO_AN_END},
    _of_group,
)

#: For readers at explicit positions.
_READER: Final[KafkaSettings] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "reconnect.backoff.max.ms": RECONNECT_MS,
}

_WHOLE_READER: Final[KafkaSettings] = {
    **_READER,
    # A position outside of the partition must raise an error, never be reset.
    "auto.offset.reset": "error",
    # Without this, corrupt batches are not detected.
    "check.crcs": True,
    # With the default of 1 s, a reader that is faster than its queue stalls.
    "fetch.queue.backoff.ms": 5,
}


def _of_changelog(config: JobConfig, names: ClientNames) -> KafkaSettings:
    # The reader of the in-sync replicas needs its share, too.
    queue_bytes = _QUEUE_BYTES // (config.restore_threads + 1)
    return {
        **_of_group(config, names),
        "fetch.max.bytes": max(queue_bytes, CHANGELOG_RECORD_BYTES),
        # At least 1 is allowed, and a job that an earlier release recorded may have any number of threads.
        "queued.max.messages.kbytes": max(1, queue_bytes >> 10),
    }


CHANGELOG: Final = _kind(
    "the reader of changelogs",
    Consumer,
    {
        **_WHOLE_READER,
        "allow.auto.create.topics": False,
        "fetch.message.max.bytes": CHANGELOG_RECORD_BYTES,
        "fetch.min.bytes": 1,
        "queued.min.messages": 1_000_000,
    },
    _of_changelog,
)

INPUT: Final = _kind(
    "the reader of inputs",
    Consumer,
    {**_WHOLE_READER, "queued.max.messages.kbytes": 16_384},
    _of_group,
)

WRITER: Final = _kind(
    "the writer of a task's transactions",
    Producer,
    {
        "linger.ms": 0,
        # The default back-off of 100 ms affects every fourth of consecutive transactions: 121 ms at the 99th
        # percentile, 25 ms with these values (measured).
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 10,
        "reconnect.backoff.max.ms": RECONNECT_MS,
    },
    _of_transactions,
    defaults={
        # Also limits outputs, but the output topic's own setting is usually smaller.
        "message.max.bytes": CHANGELOG_RECORD_BYTES,
        # Same partitioning as the Java clients, so that outputs can be joined with their topics.
        partitions.SETTING: partitions.DEFAULT,
    },
)


def check_clients(config: JobConfig) -> None:
    """Create and close a client of every kind with a job's settings; sends no request.

    Raises `BadConfiguration` for a refused setting, like `ClientKind.make`.
    """
    settings = kafka_settings(config)
    names = [name for name in settings if name in _OBJECTS]
    if names:
        raise BadConfiguration(
            f"kafka.{names[0]}: its value is a function of a program that uses Kafka's client, not a text; remove it"
        )
    for kind in KINDS:
        end_client(kind.make(settings, kind.of_job(config, _CHECKED), logger=LIBRARY_LOG))
