"""The releases of Kafka's brokers, and the replication of topics, as far as they can be found out."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigEntry,
    ConfigResource,
    TopicDescription,
)

from appmaster.topics.brokers import Brokers
from appmaster.topics.ports import TopicShape
from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import answer_of
from standby.errors import BadConfiguration

#: Kafka's own topics that are part of every transaction.
OWN_TOPICS: Final = ("__transaction_state", "__consumer_offsets")

#: Settings of a broker.
_REPLICAS: Final = "default.replication.factor"
_TRANSACTION: Final = "transaction.max.timeout.ms"

_ANSWER_SECONDS: Final = 5.0
_MOST_BROKERS: Final = 50
_API_VERSIONS: Final = 18
_NAME: Final = b"standfast"


def inspect_brokers(settings: Mapping[str, Any], topics: Sequence[str]) -> Brokers:
    """Return what can be found out about the brokers, and about those of ``topics`` and Kafka's own that exist.

    What is refused, or not answered in time, is left out: the caller has already asked for what it needs.
    """
    try:
        admin = clients.BROKERS.make(settings, logger=clients.LIBRARY_LOG)
        metadata = admin.list_topics(timeout=_ANSWER_SECONDS)
    except (KafkaException, BadConfiguration):
        return Brokers({}, {})
    brokers = sorted(metadata.brokers.items())[:_MOST_BROKERS]

    def level_of(host: str, port: int) -> int | None:
        try:
            return feature_level(settings, host, port)
        except (OSError, ValueError):
            return None

    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = pool.map(lambda each: level_of(each[1].host, each[1].port), brokers)
        levels = {number: level for (number, _), level in zip(brokers, answers, strict=True)}
    there = [each for each in dict.fromkeys((*topics, *OWN_TOPICS)) if each in metadata.topics]
    numbers = _numbers(admin, brokers[0][0]) if brokers else {}
    return Brokers(levels, _shapes(admin, there), numbers.get(_REPLICAS), numbers.get(_TRANSACTION))


def _numbers(admin: AdminClient, broker: int) -> dict[str, int]:
    """Return the settings of a broker that are needed, as far as they are known."""
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    found: dict[str, int] = {}
    with contextlib.suppress(KafkaException):
        asked = admin.describe_configs([resource], request_timeout=_ANSWER_SECONDS)[resource]
        settings = answer_of(admin, asked, _ANSWER_SECONDS, None)
        for name in (_REPLICAS, _TRANSACTION):
            with contextlib.suppress(KeyError, ValueError):
                found[name] = int(settings[name].value)
    return found


def _shapes(admin: AdminClient, names: Sequence[str]) -> dict[str, TopicShape]:
    if not names:
        return {}
    resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}
    described = admin.describe_topics(TopicCollection(list(names)), request_timeout=_ANSWER_SECONDS)
    settings = admin.describe_configs(list(resources.values()), request_timeout=_ANSWER_SECONDS)
    found: dict[str, TopicShape] = {}
    for name, resource in resources.items():
        with contextlib.suppress(KafkaException):
            topic = answer_of(admin, described[name], _ANSWER_SECONDS, name)
            found[name] = shape_of(topic, answer_of(admin, settings[resource], _ANSWER_SECONDS, name))
    return found


def shape_of(described: TopicDescription, settings: Mapping[str, ConfigEntry]) -> TopicShape:
    """Return a topic's shape from Kafka's answers."""
    return TopicShape(
        len(described.partitions),
        min(len(each.replicas) for each in described.partitions),
        {key: str(entry.value) for key, entry in settings.items()},
    )


def feature_level(settings: Mapping[str, Any], host: str, port: int) -> int:
    """Return the highest ``metadata.version`` that a broker supports, which indicates its release.

    The client library does not report it, so the broker is asked in Kafka's protocol, before any login, with an
    ApiVersions request of version 3, which every release since 2.4 answers. Raises `OSError` without an answer, and
    `ValueError` for an answer that does not contain it, such as that of a broker before 3.0.
    """
    with socket.create_connection((host, port), _ANSWER_SECONDS) as plain:
        is_encrypted = "SSL" in str(settings.get("security.protocol", "plaintext")).upper()
        with _encrypted(settings, plain, host) if is_encrypted else plain as connection:
            name = bytes([len(_NAME) + 1]) + _NAME
            header = struct.pack(">hhih", _API_VERSIONS, 3, 1, len(_NAME)) + _NAME + b"\0"
            # The client software: its name, its version, and no more fields.
            request = header + name + b"\x02" + b"1" + b"\0"
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as answer:
                try:
                    return _level_in(_body(answer))
                except struct.error as error:
                    raise ValueError("the answer ends early") from error


def _encrypted(settings: Mapping[str, Any], plain: socket.socket, host: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(
        cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
    )
    if str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if certificate := settings.get("ssl.certificate.location"):
        context.load_cert_chain(
            certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password")
        )
    return context.wrap_socket(plain, server_hostname=host)


def _body(answer: BinaryIO) -> bytes:
    head = answer.read(4)
    if len(head) < 4:
        raise ValueError("no answer")
    (size,) = struct.unpack(">i", head)
    return answer.read(size)


def _level_in(body: bytes) -> int:
    """Return the level in a response: correlation id, error, the APIs, the throttle time, and tagged fields."""
    count, at = _number(body, 6)
    for _ in range(count - 1):
        # Key, lowest and highest version, and no tagged fields.
        _, at = _number(body, at + 6)
    tags, at = _number(body, at + 4)
    for _ in range(tags):
        tag, at = _number(body, at)
        size, at = _number(body, at)
        end = at + size
        if tag == 0:
            features, at = _number(body, at)
            for _ in range(features - 1):
                length, at = _number(body, at)
                name, at = body[at : at + length - 1], at + length - 1
                _, most = struct.unpack_from(">hh", body, at)
                if name == b"metadata.version":
                    return int(most)
                _, at = _number(body, at + 4)
        at = end
    raise ValueError("it does not contain the level")


def _number(body: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned varint at ``at``, and the start of the next field."""
    value = shift = 0
    while at < len(body):
        byte, at = body[at], at + 1
        value, shift = value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("the answer ends early")
