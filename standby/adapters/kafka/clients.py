"""Every kind of Kafka client that a job makes, and the one place where clients are made.

A setting that one kind takes may be refused by another: a transactional producer has rules of its own, a consumer
others. So whoever is asked whether a job's settings will do makes one client of each kind (`check`), which needs no
broker's answer; and who wants a client makes it of its kind, with what that kind sets itself.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from standby.config import CHANGELOG_RECORD_BYTES, JobConfig, KafkaSettings, kafka_settings
from standby.errors import BadConfiguration
from standby.security.disclosure import HIDDEN, shown

#: librdkafka's own log.
LIBRARY_LOG: Final = logging.getLogger("librdkafka")

C = TypeVar("C", Producer, Consumer, AdminClient)

#: How long a client waits at most before it tries again to reach a broker that is away. After an outage of some
#: seconds librdkafka's default of 10 s would add as much to the recovery.
RECONNECT_MS: Final = 1_000

#: How old a client's idea of the leaders may be. It looks them up in its cache, and does not renew that when a broker
#: answers that it is none, as one that was restarted does (FENCED_LEADER_EPOCH) or that has just made a partition: by
#: librdkafka's default it would ask in vain for up to 15 minutes.
LEADERS_RENEWED_MS: Final = 2_000

#: Memory for fetched changelog records that nobody has taken yet, all readers of a job in a container together.
_QUEUE_BYTES: Final = 64 << 20

#: Names that the client library for Python keeps for functions and objects: no text can be one.
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

#: Beginnings of the names of settings by which a client finds brokers and is let in.
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

#: What librdkafka names in the text of a refusal.
_NAMED: Final = re.compile(r"[`\"]([a-z_][a-z0-9_.]*)[`\"]")

#: What it begins such a text with, where the client was put together already.
_PREFIX: Final = re.compile(r"Failed to create [a-z ]+: ")

#: Settings of a client's own that follow from a key of the job file.
_FROM_KEY: Final = {"transaction.timeout.ms": "job.transaction.timeout.ms"}


@dataclass(frozen=True, slots=True)
class Names:
    """What a job's clients are called."""

    group: str
    transactional_id: str = ""


#: For `check`: as no job's are, should one of them ever be seen by a broker.
_CHECKED: Final = Names("standfast-check", "standfast-check")


@dataclass(frozen=True, slots=True)
class ClientKind(Generic[C]):
    """One kind of client; each is made by `make`, and is in `KINDS` (`_kind`)."""

    what: str
    """What it is, for people: "the writer of a task's transactions"."""
    library: Callable[..., C]
    ours: KafkaSettings
    """Set by us, whatever the job says."""
    defaults: KafkaSettings
    """Where the job says nothing."""
    of_job: Callable[[JobConfig, Names], KafkaSettings]
    """Gives what is set by us and depends on the job, its names, or what was learned meanwhile."""
    is_connection_only: bool
    """Whether of the job's settings it takes only those by which brokers are found and let it in."""

    def make(self, settings: KafkaSettings, own: KafkaSettings | None = None, **more: Any) -> C:
        """Return a new client with the job's ``settings`` and with ``own``, which is as `of_job` gives it.

        ``more`` goes to the client's class: callbacks and loggers. Asks nobody anything. Raises `BadConfiguration`
        with the settings that librdkafka refuses, their values and the rule that they break.
        """
        # The client is never held here: an exception of its keeps the frames that it came through.
        try:
            return self.library(self._merged(settings, own or {}), **more)
        except (KafkaException, TypeError, ValueError, AttributeError) as error:
            raise BadConfiguration(self._refusal(settings, own or {}, more, _said(error))) from error

    def _merged(self, settings: KafkaSettings, own: KafkaSettings) -> dict[str, Any]:
        """Return all settings, ours last: one of two names of the same setting wins by being the later one."""
        ours = {**self.ours, **own}
        theirs = {
            name: value
            for name, value in settings.items()
            if name not in ours and (not self.is_connection_only or name.startswith(_OF_CONNECTION))
        }
        return {**self.defaults, **theirs, **ours}

    def _refusal(
        self, settings: KafkaSettings, own: KafkaSettings, more: Mapping[str, Any], said: str
    ) -> str:
        """Return what is told of settings that are refused."""
        left = dict(settings)
        # Which they are is found out by leaving out: names may be other names of those in the text.
        for name in settings:
            without = {each: value for each, value in left.items() if each != name}
            if self._tried(without, own, more) == said:
                left = without
        keys = [f"kafka.{name}: {shown(f'kafka.{name}', str(value), ())}" for name, value in left.items()]
        why = self._explained(said, settings, own)
        return f"{', '.join(keys) or 'kafka.*'}: {self.what} cannot be made with that: {why}"

    def _tried(self, settings: KafkaSettings, own: KafkaSettings, more: Mapping[str, Any]) -> str:
        """Return why a client with these settings is refused; empty when it is not."""
        try:
            client = self.library(self._merged(settings, own), **more)
        except (KafkaException, TypeError, ValueError, AttributeError) as error:
            return _said(error)
        end(client)
        return ""

    def _explained(self, said: str, settings: KafkaSettings, own: KafkaSettings) -> str:
        """Return librdkafka's words, with the values of our own settings that are their bounds."""
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
    """Return librdkafka's words of a refusal, or the Python client's."""
    reason = error.args[0] if error.args else error
    text = reason.str() if isinstance(reason, KafkaError) else str(reason)
    return _PREFIX.sub("", text.strip())


#: For so long whoever closes a consumer waits for it. It takes milliseconds, or may never end.
_CLOSE_SECONDS: Final = 5.0


def close(consumer: Consumer) -> None:
    """Close a consumer; after some seconds without an end whoever closes goes on, and the client is left behind.

    In librdkafka 2.16 a broker that answers a fetch with OFFSET_OUT_OF_RANGE while its client is being destroyed has
    that client's thread wait for a lock that it holds itself (`rd_kafka_offset_reset`), and destroying waits for the
    thread.
    """
    closing = threading.Thread(target=consumer.close, name="consumer-close", daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
    if closing.is_alive():
        LIBRARY_LOG.warning(
            "a consumer has not ended within %g s; its threads stay until the process ends", _CLOSE_SECONDS
        )


def end(client: Producer | Consumer | AdminClient) -> None:
    """End a client that has done nothing; the others end when they are dropped."""
    if isinstance(client, Consumer):
        client.close()


#: Every kind, in the order in which they are looked at.
KINDS: Final[list[ClientKind[Any]]] = []


def _nothing(config: JobConfig, names: Names) -> KafkaSettings:
    return {}


def _of_group(config: JobConfig, names: Names) -> KafkaSettings:
    # A consumer insists on one. Without a subscription it is never joined; where offsets are committed, by name.
    return {"group.id": names.group}


def _of_transactions(config: JobConfig, names: Names) -> KafkaSettings:
    return {
        "transactional.id": names.transactional_id,
        "transaction.timeout.ms": config.transaction_timeout_ms,
    }


def _kind(
    what: str,
    library: Callable[..., C],
    ours: KafkaSettings,
    of_job: Callable[[JobConfig, Names], KafkaSettings] = _nothing,
    *,
    defaults: KafkaSettings | None = None,
    is_connection_only: bool = False,
) -> ClientKind[C]:
    """Return a kind that is in `KINDS` from now on."""
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

#: It initialises, and writes nothing: what a job says of writing does not keep it from being ended.
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

#: Only a consumer knows a group's metadata; it never subscribes, so it never joins.
MEMBER: Final = _kind("the client that asks for committed offsets", Consumer, _MEMBER, _of_group)

#: It is told of offsets that an open transaction hides, too.
HASTY_MEMBER: Final = _kind(
    "the client that asks for offsets that are not stable",
    Consumer,
    {**_MEMBER, "isolation.level": "read_uncommitted"},
    _of_group,
)

RECORDS: Final = _kind(
    "the reader of commit records and of Kafka's log of transactions",
    Consumer,
    {**_MEMBER, "isolation.level": "read_uncommitted", "auto.offset.reset": "earliest"},
    _of_group,
)

STABLE_RECORDS: Final = _kind(
    "the reader of commit records of transactions that have ended",
    Consumer,
    {**_MEMBER, "auto.offset.reset": "earliest"},
    _of_group,
)

#: Of those that read at positions that they are given.
_READER: Final[KafkaSettings] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "reconnect.backoff.max.ms": RECONNECT_MS,
}

_WHOLE_READER: Final[KafkaSettings] = {
    **_READER,
    # A position outside the partition is an error of ours, never a jump.
    "auto.offset.reset": "error",
    # Else a batch that is damaged is records like any others.
    "check.crcs": True,
    # With the default, 1 s, a reader that is faster than its queue stalls.
    "fetch.queue.backoff.ms": 5,
}


def _of_changelog(config: JobConfig, names: Names) -> KafkaSettings:
    # The one that follows the replicas in step has its part, too.
    queue_bytes = _QUEUE_BYTES // (config.restore_threads + 1)
    return {
        **_of_group(config, names),
        "fetch.max.bytes": max(queue_bytes, CHANGELOG_RECORD_BYTES),
        "queued.max.messages.kbytes": queue_bytes >> 10,
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

AHEAD: Final = _kind(
    "the client that looks ahead in inputs",
    Consumer,
    {
        **_READER,
        # A place behind the end of its partition: nothing comes from there.
        "auto.offset.reset": "latest",
        # Nor is it worth a warning.
        "log_level": 3,
        "fetch.message.max.bytes": 1_024,
        "fetch.wait.max.ms": 10,
        "queued.max.messages.kbytes": 1_024,
    },
    _of_group,
)

WRITER: Final = _kind(
    "the writer of a task's transactions",
    Producer,
    {
        "linger.ms": 0,
        # The default back-off of 100 ms hits every fourth transaction in a row: 121 ms at the 99th percentile, 25 ms
        # with these (measured).
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 10,
        "reconnect.backoff.max.ms": RECONNECT_MS,
    },
    _of_transactions,
    defaults={
        # Also a bound on outputs; of those the topic's own setting, smaller as a rule, has the last word.
        "message.max.bytes": CHANGELOG_RECORD_BYTES,
        # As the Java clients do it, so that others can join with what we write.
        "partitioner": "murmur2_random",
    },
)


def check(config: JobConfig) -> None:
    """Make a client of every kind with a job's settings, and end it; asks no broker anything.

    Raises `BadConfiguration` for what one of them refuses, in the words of `ClientKind.make`.
    """
    settings = kafka_settings(config)
    names = [name for name in settings if name in _OBJECTS]
    if names:
        raise BadConfiguration(
            f"kafka.{names[0]}: it names a function of a program that uses Kafka's client, and no text; leave it out"
        )
    for kind in KINDS:
        end(kind.make(settings, kind.of_job(config, _CHECKED), logger=LIBRARY_LOG))
