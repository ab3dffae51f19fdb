"""What a container reads before it does anything, and what it says of itself."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from standby.adapters.http_port import HttpPages
from standby.adapters.liveness import LivenessPort
from standby.adapters.peers.server import PeerServer
from standby.control.state import ControlPolicy, ControlState
from standby.errors import BadConfiguration, Unavailable
from standby.process.container import Health, read_place
from standby.shared.model import NodeOffer
from standby.shared.records import ContainerRecord
from standby.shared.roles import PeerRole
from standby.shared.wire import PROTOCOL
from tests.cases import case
from tests.fakes.certificates import keys_of
from tests.fakes.clock import held
from tests.patience import PATIENCE_SECONDS


def test_the_place_is_what_yarn_and_skein_say_and_what_is_missing_is_named() -> None:
    place = read_place(
        {"CONTAINER_ID": "c1", "NM_HOST": "h1", "SKEIN_CONTAINER_ID": "anywhere_3", "LOG_DIRS": "/a,/b"}
    )
    assert (place.container, place.host, place.skein_id) == ("c1", "h1", "anywhere_3")
    assert place.log_dirs == ("/a", "/b")
    assert read_place({"CONTAINER_ID": "c1", "NM_HOST": "h1"}).skein_id == ""
    offer = '{"group": "gpu", "tasks": 4, "attributes": {"zone": "a"}}'
    found = read_place({"CONTAINER_ID": "c1", "NM_HOST": "h1", "STANDFAST_OFFER": offer}).offer
    assert found == NodeOffer("gpu", tasks=4, attributes={"zone": "a"})
    for named, environment in {
        "CONTAINER_ID and NM_HOST: ": {},
        "NM_HOST: ": {"CONTAINER_ID": "c1"},
        "CONT": {"NM_HOST": "h"},
    }.items():
        with case(named), pytest.raises(BadConfiguration, match=f"^{named}"):
            read_place(environment)


def test_a_loop_that_does_not_turn_for_five_seconds_is_not_healthy() -> None:
    clock = held()
    state = ControlState(
        ContainerRecord("c", "anywhere_0", 1, "h", 1, 2, 3, PROTOCOL, "1"), ControlPolicy(orphan_timeout_ms=1)
    )
    loop: Any = SimpleNamespace(turns=7, state=state)
    health = Health(loop, clock)
    for turned, passed, is_well in ((0, 0, True), (0, 4, True), (0, 1, False), (1, 1, True), (0, 4, True)):
        loop.turns += turned
        clock.advance(passed)
        assert health.look()[0] is is_well, (turned, passed)


def test_the_port_accepts_until_it_is_closed() -> None:
    port = LivenessPort("127.0.0.1")
    for _ in range(300):
        socket.create_connection(("127.0.0.1", port.port), timeout=PATIENCE_SECONDS).close()
    port.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.port), timeout=PATIENCE_SECONDS)


def test_the_port_is_the_first_thing_that_closes_when_the_process_dies() -> None:
    port = LivenessPort("127.0.0.1")
    try:
        with socket.socket() as later:
            assert port._socket.fileno() > later.fileno(), "Linux closes from the highest number down"
    finally:
        port.close()


def test_a_low_limit_of_descriptors_is_no_obstacle() -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, allowed[1]))
    try:
        port = LivenessPort("127.0.0.1")
        socket.create_connection(("127.0.0.1", port.port), timeout=PATIENCE_SECONDS).close()
        port.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, allowed)


def test_a_host_that_is_not_this_one_is_named_by_each_port() -> None:
    ports: tuple[Callable[[str], object], ...] = (
        LivenessPort,
        HttpPages,
        lambda host: PeerServer(host, keys_of(PeerRole.CONTAINER)),
    )
    for each in ports:
        with case(each), pytest.raises(Unavailable, match=r"NM_HOST: .*192\.0\.2\.1"):
            each("192.0.2.1")
