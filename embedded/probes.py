"""Whether a server really serves: each probe does what a client would do."""

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

#: A probe fails until it does not; kazoo's warnings about that would only worry the user.
_quiet = logging.getLogger(f"{__name__}.quiet")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@dataclass(frozen=True, slots=True)
class Patience:
    """Until when a probe goes on, and what ends it before."""

    deadline: float
    #: Raises when there is nothing to wait for any more, such as a server that has ended.
    check: Callable[[], None]
    cancelled: threading.Event

    def wait(self) -> None:
        """Wait a moment; raises :class:`TimeoutError` past the deadline, and what ``check`` raises."""
        self.check()
        if self.cancelled.wait(_POLL_SECONDS) or time.monotonic() > self.deadline:
            raise TimeoutError

    @property
    def seconds_left(self) -> float:
        """How long it lasts yet."""
        return max(0.0, self.deadline - time.monotonic())


def zookeeper(connect: str, patience: Patience) -> None:
    """Return when a session can be made and a node be created; `ruok` alone says less."""
    _port(connect, patience)
    while True:
        # A connection that is made a moment too soon is never answered: a short session gives it up soon.
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
    """Return when topics can be listed, a transactional producer begins, and consumer groups are kept.

    The first producer and the first group make the broker create ``__transaction_state`` and
    ``__consumer_offsets``, which takes a second or more and would else fall on the user's first job.
    """
    for address in bootstrap.split(","):
        _port(address, patience)
    quiet: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient({**quiet, "reconnect.backoff.max.ms": 200})
    producer = Producer({**quiet, "transactional.id": _PROBE, "retry.backoff.ms": 50})
    # Not the AdminClient's list_consumer_group_offsets: librdkafka 2.16 ends the process with a segmentation
    # fault (rd_kafka_cgrp_op) when the group's coordinator is not there yet, which is what we wait for.
    consumer = Consumer({**quiet, "group.id": _PROBE, "retry.backoff.ms": 50})
    any_partition = [TopicPartition("__transaction_state", 0)]
    steps: tuple[Callable[[], Any], ...] = (
        lambda: admin.list_topics(timeout=5),
        # Short, as every step: one that goes on cannot be cancelled.
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
    """Return when the ResourceManager's list of hosts is as wanted."""
    while True:
        try:
            if is_ready(nodes(resource_manager_url)):
                return
        except OSError:
            pass
        patience.wait()


@dataclass(frozen=True, slots=True)
class YarnNode:
    """A host as the ResourceManager sees it."""

    host: str
    #: YARN's own word: NEW, RUNNING, UNHEALTHY, LOST, …
    state: str
    #: Where its NodeManager's page is; another one after each start.
    web_address: str
    containers: int


def nodes(resource_manager_url: str) -> dict[str, YarnNode]:
    """Return the ResourceManager's hosts by name; raises :class:`OSError` when it does not answer."""
    return {
        each["nodeHostName"]: YarnNode(
            host=each["nodeHostName"],
            state=each["state"],
            web_address=each.get("nodeHTTPAddress", ""),
            containers=int(each.get("numContainers", 0)),
        )
        for each in _listed_nodes(resource_manager_url)
    }


def running_node_ids(resource_manager_url: str) -> tuple[str, ...]:
    """Return ``host:port`` of every running NodeManager; raises :class:`OSError` when nobody answers."""
    listed = _listed_nodes(resource_manager_url)
    return tuple(sorted(each["id"] for each in listed if each["state"] == "RUNNING"))


def _listed_nodes(resource_manager_url: str) -> list[dict[str, Any]]:
    url = f"{resource_manager_url}/ws/v1/cluster/nodes"
    try:
        with open_url(url, timeout=3) as response:
            return list((json.load(response).get("nodes") or {}).get("node") or [])
    except ValueError as error:
        raise OSError(f"{url} answers something else than JSON") from error


def _port(address: str, patience: Patience) -> None:
    host, _, port = address.partition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            patience.wait()
