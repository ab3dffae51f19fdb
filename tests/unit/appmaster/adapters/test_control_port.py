"""Access to the leader's control port: only with the cluster's credentials, and by role."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from appmaster.adapters.credentials.keyring import Keyring, user_name
from appmaster.adapters.grpc import CALL, ControlServer
from standby.adapters.channels import open_channel
from standby.adapters.tls import channel_options
from standby.security.credentials import Credentials
from standby.shared import wire
from standby.shared.roles import Caller, PeerRole
from tests.fakes.certificates import alert_to_an_old_client, keys_of, new_keyring, shared_keyring
from tests.floods import flood
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS, soon

_OPTIONS = (*channel_options(PeerRole.MASTER), ("grpc.enable_http_proxy", 0))


class Port:
    """A control server, and what has come through to it."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.callers: list[Caller] = []
        self.refused: list[tuple[Caller, str]] = []
        self.posted: list[object] = []
        self.keys = keys_of(PeerRole.MASTER)
        self.server = ControlServer(
            self.posted.append,
            self._answer,
            lambda: 0,
            lambda: 1,
            self.keys,
            refused=lambda *what: self.refused.append(what),
        )
        self.number = self.server.start("127.0.0.1")

    def _answer(self, caller: Caller, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(asked)
        self.callers.append(caller)
        return {"said": "yes"}

    def call(self, credentials: grpc.ChannelCredentials | None) -> Any:
        address = f"127.0.0.1:{self.number}"
        channel = (
            grpc.insecure_channel(address, _OPTIONS)  # noqa: TID251 - without credentials
            if credentials is None
            else open_channel(address, credentials, _OPTIONS)
        )
        with channel:
            return json.loads(
                channel.unary_unary(CALL, None, None)(b'{"operation":"status"}', timeout=PATIENCE_SECONDS)
            )


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.server.stop()


def of(role: PeerRole, ring: Keyring | None = None) -> grpc.ChannelCredentials:
    """Return what the holder of a role shows to a server that it trusts."""
    pair = keys_of(role, ring).now
    return grpc.ssl_channel_credentials(
        shared_keyring().authorities().encode(), pair.key.encode(), pair.certificate.encode()
    )


def test_an_operator_is_answered_and_known_by_name(port: Port, tmp_path: Path) -> None:
    assert port.call(of(PeerRole.OPERATOR)) == {"said": "yes"}
    ann = shared_keyring().issue("ann", tmp_path / "ann")
    assert port.call(of(PeerRole.OPERATOR, ann)) == {"said": "yes"}
    assert [each.name for each in port.callers] == [user_name(), "ann"]


def test_no_other_client_can_ask_for_a_change_and_an_operator_is_no_container(port: Port) -> None:
    for role in (PeerRole.CONTAINER, PeerRole.MASTER):
        with pytest.raises(grpc.RpcError, match="for operators only"):
            port.call(of(role))
        caller, what = port.refused.pop()
        assert (caller.role, what) == (role, "call")
    assert port.asked == []
    with open_channel(f"127.0.0.1:{port.number}", of(PeerRole.OPERATOR), _OPTIONS) as channel:
        stream = channel.stream_stream(wire.METHOD, None, None)
        with pytest.raises(grpc.RpcError, match="for containers only"):
            list(stream(iter([b"{}"]), timeout=PATIENCE_SECONDS))
    assert port.posted == []


def test_anybody_else_is_not_even_heard(port: Port) -> None:
    for credentials in (
        None,
        grpc.ssl_channel_credentials(shared_keyring().authorities().encode()),
        of(PeerRole.OPERATOR, new_keyring()),
    ):
        with pytest.raises(grpc.RpcError):
            port.call(credentials)
    assert (port.asked, port.posted, port.refused) == ([], [], [])


def test_nothing_before_tls_1_2_is_spoken(port: Port) -> None:
    # The library hangs up without a word; a client's own refusal has another name.
    assert alert_to_an_old_client(port.number) == "UNEXPECTED_EOF_WHILE_READING"


def test_credentials_change_under_a_running_server(port: Port) -> None:
    former, following = shared_keyring(), new_keyring()
    now, later = (each.credentials(PeerRole.MASTER) for each in (former, following))
    with pytest.raises(grpc.RpcError):
        port.call(of(PeerRole.OPERATOR, following))
    # Old and new side by side: the new ones are trusted before anybody shows them.
    port.keys.renew(Credentials(2, now.trust + later.trust, now.certificate, now.key))
    assert port.call(of(PeerRole.OPERATOR, following)) == {"said": "yes"}
    assert port.call(of(PeerRole.OPERATOR, former)) == {"said": "yes"}
    port.keys.renew(Credentials(3, later.trust, later.certificate, later.key))
    assert port.call(keys_of(PeerRole.OPERATOR, following).channel_credentials()) == {"said": "yes"}
    with pytest.raises(grpc.RpcError):
        port.call(keys_of(PeerRole.OPERATOR, former).channel_credentials())


def test_flood_leaves_open_streams_alone(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process()
    monkeypatch.setattr("appmaster.adapters.grpc._MOST_CONNECTIONS", 100)
    # Only the bound closes any.
    monkeypatch.setattr("appmaster.adapters.grpc._HANDSHAKE_MS", int(NEVER_SECONDS * 1_000))
    bounded = Port()

    def is_served() -> bool:
        with contextlib.suppress(grpc.RpcError):
            bounded.call(of(PeerRole.OPERATOR))
            return True
        return False

    try:
        with open_channel(f"127.0.0.1:{bounded.number}", of(PeerRole.OPERATOR), _OPTIONS) as channel:
            ask = channel.unary_unary(CALL, None, None)
            assert ask(b"{}", timeout=PATIENCE_SECONDS)
            descriptors = own.num_fds()
            with flood() as strangers:
                strangers.pour("127.0.0.1", [bounded.number], 1_000)
                # Half of them are of this side.
                soon(lambda: own.num_fds() - descriptors - strangers.count <= 100, "they are not closed")
                assert ask(b"{}", timeout=PATIENCE_SECONDS)
            soon(is_served, "the strangers have left, and no client gets through")
    finally:
        bounded.server.stop()
    assert len(bounded.asked) == 3
    with flood() as strangers:
        strangers.pour("127.0.0.1", [port.number], 10)
        assert strangers.are_closed(), "they show no certificate in time"
