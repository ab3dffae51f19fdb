"""What a probe of a port makes of a host with several addresses."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from appmaster.leadership.port_probe import probe
from appmaster.leadership.suspicion import PortAnswer
from tests.patience import PATIENCE_SECONDS

V4, V6 = (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")


class Connection(socket.socket):
    """Of IPv6, it finds no route."""

    def connect(self, address: Any) -> None:
        if self.family is socket.AF_INET6:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        super().connect(address)


@pytest.mark.parametrize("addresses", [(V4, V6), (V6, V4)], ids=["IPv4 first", "IPv6 first"])
def test_an_address_to_which_there_is_no_route_hides_no_answer_of_another(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[tuple[socket.AddressFamily, str], ...]
) -> None:
    """Such addresses come last: a dead leader counted as silent, and was deposed seconds later than it could be."""

    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 6, "", (each, port)) for family, each in addresses]

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr(socket, "socket", Connection)
        assert probe("both.example", port, PATIENCE_SECONDS) is PortAnswer.ACCEPTED
    assert probe("both.example", port, PATIENCE_SECONDS) is PortAnswer.REFUSED


def test_a_host_with_no_address_to_which_there_is_a_route_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", Connection)
    assert probe("::1", 9, PATIENCE_SECONDS) is PortAnswer.NONE
    assert probe("no-such-host.invalid", 9, PATIENCE_SECONDS) is PortAnswer.NOT_ASKED
