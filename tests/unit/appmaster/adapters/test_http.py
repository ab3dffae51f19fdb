"""The candidate's HTTP port: what it answers, and what it refuses to guess."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from appmaster.adapters.http import HttpPort
from appmaster.adapters.prometheus import Metrics
from appmaster.api.discovery import targets
from appmaster.planning.state.view import ClusterView
from appmaster.records import CandidateRecord
from embedded.web import open_url
from standby.errors import BadConfiguration, Transient, Unavailable
from standby.shared.records import ContainerRecord
from tests.patience import PATIENCE_SECONDS

CANDIDATES = (
    CandidateRecord("a-1", "127.0.0.11", 4000, 4001, 1, 7, "container_1", 0, "0.1"),
    CandidateRecord("b-1", "127.0.0.12", 4000, 4002, 2, 8, "container_2", 0, "0.1"),
)
CONTAINERS = (
    ContainerRecord("container_9", "anywhere_0", 1, "127.0.0.13", 5000, 5001, 9, 1, "0.1"),
    ContainerRecord("container_8", "anywhere_1", 1, "127.0.0.12", 5000, 0, 9, 1, "0.1"),
)


def discovered() -> Sequence[Mapping[str, Any]]:
    return targets("c", CANDIDATES, CONTAINERS)


def change_of(name: str) -> Mapping[str, Any]:
    if name != "r1":
        raise BadConfiguration(f"there is no change {name}")
    return {"id": name, "state": "done"}


@contextmanager
def serving(find: Any = discovered, wanted_port: int = 0, *, shows_all: bool = True) -> Iterator[HttpPort]:
    metrics = Metrics(lambda: ClusterView(epoch=4))
    port = HttpPort(
        "127.0.0.1",
        metrics,
        lambda: {"cluster": "c"},
        find,
        wanted_port,
        info=lambda: {"leader": None},
        change=change_of,
        shows_all=shows_all,
    )
    try:
        yield port
    finally:
        port.close()


def get(port: HttpPort, path: str, **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port.port}{path}", headers=headers)
    try:
        with open_url(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_discovery_lists_every_candidate_and_container_that_serves_metrics() -> None:
    with serving() as port:
        status, kind, text = get(port, "/sd")
    assert (status, kind) == (200, "application/json")
    found = json.loads(text)
    assert [each["targets"] for each in found] == [
        ["127.0.0.11:4001"],
        ["127.0.0.12:4002"],
        ["127.0.0.13:5001"],
    ]
    first, _, last = (each["labels"] for each in found)
    assert first == {"cluster": "c", "component": "candidate", "host": "127.0.0.11", "candidate": "a-1"}
    assert last == {
        "cluster": "c",
        "component": "container",
        "host": "127.0.0.13",
        "container": "container_9",
    }


def test_discovery_without_zookeeper_is_an_error_and_not_an_empty_list() -> None:
    """Prometheus keeps its targets on an error; an empty list would end every scrape."""

    def away() -> Sequence[Mapping[str, Any]]:
        raise Transient("ZooKeeper did not answer")

    with serving(away) as port:
        status, _, text = get(port, "/sd")
        assert (status, text) == (503, "ZooKeeper did not answer\n")
        assert get(port, "/healthz")[0] == 200


def test_scrape_comes_in_the_format_that_was_asked_for() -> None:
    with serving() as port:
        _, kind, text = get(port, "/metrics")
        assert kind.startswith("text/plain")
        assert "standfast_controller_epoch 4.0\n" in text
        assert "_created" not in text
        _, kind, text = get(port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")


def test_reads_are_open_and_nothing_else_is_there() -> None:
    with serving() as port:
        assert json.loads(get(port, "/api/v1/status")[2]) == {"cluster": "c"}
        assert get(port, "/healthz?verbose")[2] == "ok\n"
        assert json.loads(get(port, "/api/v1/cluster")[2]) == {"leader": None}
        assert json.loads(get(port, "/api/v1/changes/r1")[2]) == {"id": "r1", "state": "done"}
        assert get(port, "/api/v1/changes/r2")[::2] == (404, "there is no change r2\n")
        assert get(port, "/elsewhere")[0] == 404


def test_monitoring_alone_sees_nothing_of_the_jobs() -> None:
    with serving(shows_all=False) as port:
        assert [get(port, path)[0] for path in ("/metrics", "/healthz", "/sd")] == [200, 200, 200]
        for path in ("/api/v1/status", "/api/v1/cluster", "/api/v1/changes/r1"):
            assert get(port, path)[::2] == (404, "/healthz /metrics /sd\n")


def test_port_that_is_asked_for_is_used_until_it_is_closed_and_a_taken_one_is_no_obstacle() -> None:
    with serving() as first, serving(wanted_port=first.port) as second:
        assert second.port != first.port
        assert get(second, "/healthz")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first.port), timeout=PATIENCE_SECONDS)
    with serving(wanted_port=first.port) as third:
        assert third.port == first.port


def test_host_that_is_not_this_one_is_named() -> None:
    with pytest.raises(Unavailable, match=r"192\.0\.2\.1"):
        HttpPort("192.0.2.1", Metrics(ClusterView), dict, discovered)
