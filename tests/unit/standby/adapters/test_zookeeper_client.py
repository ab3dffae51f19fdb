"""A client of ZooKeeper goes on connecting, whatever keeps it from it for a while."""

from __future__ import annotations

import errno
import socket
import threading
from pathlib import Path

import pytest

from standby.adapters.zookeeper.access import Access, make_client
from standby.ensemble import Tls
from standby.errors import BadConfiguration
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.patience import PATIENCE_SECONDS

SESSION_MS = 6_000


def test_a_client_that_cannot_look_up_its_servers_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ended: the process never reached ZooKeeper again, and no promotion in it came to its end."""
    looks: list[str] = []
    has_tried_again = threading.Event()

    def short_of_descriptors(host: str, *_: object) -> None:
        looks.append(host)
        if len(looks) == 3:
            has_tried_again.set()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "getaddrinfo", short_of_descriptors)
    client = make_client("zk.example:2181", SESSION_MS)
    client.start_async()
    try:
        assert has_tried_again.wait(PATIENCE_SECONDS)
    finally:
        client.stop()
        client.close()


def test_files_for_tls_that_are_missing_for_a_while_are_an_error_of_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kazoo's thread ended with any other error, so that the files of a host could not be replaced in two steps."""
    authority = tmp_path / "ca.pem"
    authority.write_text(keys_of(PeerRole.CONTAINER).now.trust)
    client = make_client("localhost:2181", SESSION_MS, Access(tls=Tls(str(authority))))
    authority.unlink()
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(2):
            with pytest.raises(ConnectionError, match=r"ca\.pem: cannot be used for TLS"):
                client.handler.create_connection(
                    server.getsockname(), hostname="localhost", timeout=PATIENCE_SECONDS
                )
    assert "cannot be used for TLS" in client.refusal
    assert len(caplog.records) == 1, "the same is said once"
    with pytest.raises(BadConfiguration, match=r"ca\.pem"):
        make_client("localhost:2181", SESSION_MS, Access(tls=Tls(str(authority))))
