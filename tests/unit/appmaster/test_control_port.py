"""Who gets through to the leader's control port: nobody without the cluster's credentials."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from appmaster.adapters.grpc import CALL, ControlServer
from standby import wire
from standby.adapters.grpc import Credentials
from tests.fakes.certificates import new_credentials, shared_credentials
from tests.floods import flood
from tests.patience import PATIENCE_SECONDS

_OPTIONS = (("grpc.ssl_target_name_override", wire.CERTIFICATE_NAME), ("grpc.enable_http_proxy", 0))


class Port:
    """A control server, and what has come through to it."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.posted: list[object] = []
        pair = shared_credentials()
        self.server = ControlServer(
            self.posted.append, self._answer, lambda: 0, lambda: 1, pair.certificate, pair.key
        )
        self.number = self.server.start("127.0.0.1")

    def _answer(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(asked)
        return {"said": "yes"}

    def call(self, credentials: grpc.ChannelCredentials | None) -> Any:
        address = f"127.0.0.1:{self.number}"
        channel = (
            grpc.insecure_channel(address, _OPTIONS)
            if credentials is None
            else grpc.secure_channel(address, credentials, _OPTIONS)
        )
        with channel:
            return json.loads(channel.unary_unary(CALL, None, None)(b'{"operation":"status"}', timeout=3))


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.server.stop()


def pair_of(pair: Credentials) -> grpc.ChannelCredentials:
    """Return credentials of somebody with ``pair`` who believes that he talks to the right server."""
    return grpc.ssl_channel_credentials(shared_credentials().certificate, pair.key, pair.certificate)


def test_holder_of_the_pair_is_answered(port: Port) -> None:
    assert port.call(pair_of(shared_credentials())) == {"said": "yes"}


@pytest.mark.parametrize(
    "credentials",
    [
        None,
        grpc.ssl_channel_credentials(shared_credentials().certificate),
        pair_of(new_credentials()),
    ],
    ids=["no TLS", "no certificate", "another pair"],
)
def test_anybody_else_is_not_even_heard(port: Port, credentials: grpc.ChannelCredentials | None) -> None:
    with pytest.raises(grpc.RpcError):
        port.call(credentials)
    assert port.asked == []
    assert port.posted == []


def test_client_does_not_talk_to_a_server_without_the_pair(tmp_path: Path) -> None:
    other = new_credentials()
    (tmp_path / "crt").write_bytes(other.certificate)
    (tmp_path / "pem").write_bytes(other.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "pem")
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with grpc.secure_channel(address, pair_of(shared_credentials()), _OPTIONS) as channel:
            future = channel.unary_unary(CALL, None, None).future(b"{}", timeout=4)
            connection, _ = server.accept()
            with connection, pytest.raises(ssl.SSLError):
                context.wrap_socket(connection, server_side=True).recv(1)
            with pytest.raises(grpc.RpcError):
                future.result()


def test_flood_leaves_open_streams_alone_and_ends_with_its_handshakes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = psutil.Process()
    monkeypatch.setattr("appmaster.adapters.grpc._MOST_CONNECTIONS", 100)
    bounded = Port()
    try:
        with grpc.secure_channel(
            f"127.0.0.1:{bounded.number}", pair_of(shared_credentials()), _OPTIONS
        ) as channel:
            ask = channel.unary_unary(CALL, None, None)
            assert ask(b"{}", timeout=PATIENCE_SECONDS)
            descriptors = own.num_fds()
            with flood() as strangers:
                strangers.pour("127.0.0.1", [bounded.number], 1_000)
                # Half of them are of this side.
                assert own.num_fds() - descriptors - strangers.count <= 100
                assert ask(b"{}", timeout=PATIENCE_SECONDS)
                assert strangers.are_closed()
            assert bounded.call(pair_of(shared_credentials())) == {"said": "yes"}
    finally:
        bounded.server.stop()
    assert len(bounded.asked) == 3
