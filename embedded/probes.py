"""Readiness probes of the servers: each probe makes the requests of a client."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from embedded.web import open_url

_POLL_SECONDS: Final = 0.05
_PROBE: Final = "standfast-probe"

#: A probe is expected to fail at first; kazoo's warnings about it would only worry the user.
_quiet = logging.getLogger(f"{__name__}.quiet")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@dataclass(frozen=True, slots=True)
class Patience:
    """The deadline of a probe, and the conditions that end it earlier."""

    deadline: float
    #: Raises if waiting is pointless, for example because the server has ended.
    check: Callable[[], None]
    cancelled: threading.Event

    def wait(self) -> None:
        """Sleep for one poll interval. Raises :class:`TimeoutError` past the deadline, and what ``check`` raises."""
        self.check()
        if self.cancelled.wait(_POLL_SECONDS) or time.monotonic() > self.deadline:
            raise TimeoutError

    @property
    def seconds_left(self) -> float:
        """The time left until the deadline."""
        return max(0.0, self.deadline - time.monotonic())


def zookeeper(connect: str, patience: Patience) -> None:
    """Return when a session can be opened and a node created; `ruok` alone is not sufficient."""
    _port(connect, patience)
    while True:
        # A connection made slightly too early is never answered; a short session timeout abandons it quickly.
        client = KazooClient(connect, timeout=2, logger=_quiet)
        try:
            client.start(timeout=min(2, patience.seconds_left))
            client.create(f"/{_PROBE}-{uuid.uuid4()}", ephemeral=True)
            return
        except (KazooException, KazooTimeoutError):
            patience.wait()
        finally:
            client.stop()
            client.close()


def kafka(bootstrap: str, patience: Patience) -> None:
    """Return when topics can be listed, a transactional producer starts, and consumer groups are available.

    The first producer and the first group make the broker create ``__transaction_state`` and
    ``__consumer_offsets``, which takes a second or more and would otherwise delay the user's first job.
    """
    for address in bootstrap.split(","):
        _port(address, patience)
    quiet: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient({**quiet, "reconnect.backoff.max.ms": 200})
    producer = Producer({**quiet, "transactional.id": _PROBE, "retry.backoff.ms": 50})
    # Not the AdminClient's list_consumer_group_offsets: librdkafka 2.16 ends the process with a segmentation
    # fault (rd_kafka_cgrp_op) while the group's coordinator is not available yet, which is the state awaited here.
    consumer = Consumer({**quiet, "group.id": _PROBE, "retry.backoff.ms": 50})
    any_partition = [TopicPartition("__transaction_state", 0)]
    steps: tuple[Callable[[], Any], ...] = (
        lambda: admin.list_topics(timeout=5),
        # Short, like every step: a step in progress cannot be cancelled.
        lambda: producer.init_transactions(min(5, patience.seconds_left)),
        lambda: consumer.committed(any_partition, timeout=5),
    )
    try:
        for step in steps:
            while True:
                try:
                    step()
                    break
                except KafkaException:
                    patience.wait()
    finally:
        consumer.close()


def yarn(
    resource_manager_url: str, is_ready: Callable[[dict[str, YarnNode]], bool], patience: Patience
) -> None:
    """Return when ``is_ready`` accepts the ResourceManager's hosts."""
    while True:
        try:
            if is_ready(nodes(resource_manager_url)):
                return
        except OSError:
            pass
        patience.wait()


@dataclass(frozen=True, slots=True)
class YarnNode:
    """A host as reported by the ResourceManager."""

    host: str
    #: YARN's state: NEW, RUNNING, UNHEALTHY, LOST, …
    state: str
    #: Address of its NodeManager's page; it changes with each start.
    web_address: str
    containers: int


def nodes(resource_manager_url: str) -> dict[str, YarnNode]:
    """Return the ResourceManager's hosts by name. Raises :class:`OSError` if it does not answer."""
    url = f"{resource_manager_url}/ws/v1/cluster/nodes"
    try:
        with open_url(url, timeout=3) as response:
            listed = (json.load(response).get("nodes") or {}).get("node") or []
    except ValueError as error:
        raise OSError(f"{url} does not answer in JSON") from error
    return {
        each["nodeHostName"]: YarnNode(
            host=each["nodeHostName"],
            state=each["state"],
            web_address=each.get("nodeHTTPAddress", ""),
            containers=int(each.get("numContainers", 0)),
        )
        for each in listed
    }


def _port(address: str, patience: Patience) -> None:
    host, _, port = address.partition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            patience.wait()
