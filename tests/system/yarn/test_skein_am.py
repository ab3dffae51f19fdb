"""Skein's application master, of our build: what it serves to its own, and what strangers get of it."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography import x509

from appmaster.adapters.credentials.authority import PemKeyPair, skein_pair
from appmaster.adapters.skein_library import SKEIN_JAR, load_skein
from appmaster.cli.shared.yarn import as_security
from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS, soon

_STRANGERS = 50

#: Connections at once, `MAX_CONNECTIONS` in third_party/skein/skein.patch.
_MOST = 1_024


@pytest.fixture(scope="module")
def pair() -> PemKeyPair:
    return skein_pair(days=1)


@pytest.fixture(scope="module")
def application(cluster: LocalCluster, pair: PemKeyPair) -> Iterator[Any]:
    """The client of an application that does nothing, with a service of no instances."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment().items():
            patch.setenv(name, value)
        skein = load_skein()
        security = as_security(pair)
        java_options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        spec = skein.ApplicationSpec(
            name="still",
            services={
                "s": skein.Service(
                    instances=0,
                    resources=skein.Resources("64 MiB", 1),
                    script="exec sleep 1000",
                    allow_failures=True,
                    max_restarts=0,
                )
            },
            master=skein.Master(
                resources=skein.Resources("256 MiB", 1), script="exec sleep 1000", security=security
            ),
        )
        with skein.Client(log=False, security=security, java_options=java_options) as client:
            connected = client.connect(client.submit(spec), security=security)
            yield connected
            connected.shutdown()


def master_of(application: Any) -> psutil.Process:
    """Return the JVM of the application's master."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = each.cmdline()
            if each.name() == "java" and "com.anaconda.skein.ApplicationMaster" in command:
                found += [each] if any(application.id in word for word in command) else []
    assert len(found) == 1, found
    return found[0]


def address_of(application: Any) -> tuple[str, int]:
    host, _, port = application.address.rpartition(":")
    return host, int(port)


def stranger() -> ssl.SSLContext:
    """Return what speaks TLS like a client of the application, and shows nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def with_pair(pair: PemKeyPair, directory: Path) -> ssl.SSLContext:
    """Return a client that shows a pair."""
    context = stranger()
    (directory / "crt").write_text(pair.certificate, encoding="ascii")
    (directory / "key").write_text(pair.key, encoding="ascii")
    context.load_cert_chain(directory / "crt", directory / "key")
    return context


def of_long_ago() -> ssl.SSLContext:
    """Return a client that speaks nothing newer than TLS 1.1."""
    context = stranger()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        # Python warns of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def is_refused(application: Any, context: ssl.SSLContext) -> bool:
    """Return whether a client of that sort is cut off before it gets any answer; it asks for HTTP/2's settings."""
    with socket.create_connection(address_of(application), PATIENCE_SECONDS) as plain:
        try:
            with context.wrap_socket(plain) as client:
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
                # With TLS 1.3 the refusal comes with the first thing that is read.
                return client.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            return True


def states(application: Any, container: str) -> set[str]:
    every = ("WAITING", "REQUESTED", "RUNNING", "SUCCEEDED", "FAILED", "KILLED")
    return {str(each.state) for each in application.get_containers(states=every) if each.id == container}


def test_master_is_what_this_release_ships_at_one_port_of_its_host(
    application: Any, pair: PemKeyPair
) -> None:
    shipped = Path(master_of(application).cwd()) / ".skein.jar"
    assert hashlib.sha256(shipped.read_bytes()).digest() == hashlib.sha256(SKEIN_JAR.read_bytes()).digest()
    listening = [
        tuple(each.laddr)
        for each in master_of(application).net_connections(kind="inet")
        if each.status == psutil.CONN_LISTEN
    ]
    host, port = address_of(application)
    found = {(str(address).removeprefix("::ffff:"), number) for address, number in listening}
    assert found == {(socket.gethostbyname(host), port)}, "and there is no page"
    shown = ssl.get_server_certificate((host, port), timeout=PATIENCE_SECONDS)
    assert x509.load_pem_x509_certificate(shown.encode()) == x509.load_pem_x509_certificate(
        pair.certificate.encode()
    )


def test_containers_start_and_end_and_tell_by_their_keys(application: Any) -> None:
    container = application.add_container("s", env={"A": "b"})
    soon(lambda: states(application, container.id) == {"RUNNING"}, "a container is granted")
    with application.kv.events(key="k") as events:
        application.kv.put("k", b"v", owner=container.id)
        assert application.kv["k"] == b"v"
        application.kill_container(container.id)
        told = [events.get(timeout=PATIENCE_SECONDS) for _ in range(2)]
    assert [str(each.event_type) for each in told] == ["PUT", "DELETE"]
    assert told[0].result.value == b"v"
    soon(lambda: states(application, container.id) == {"KILLED"}, "the container is killed")
    assert "k" not in application.kv
    with pytest.raises(ValueError, match="Unknown service 'other'"):
        application.add_container("other")


def test_a_stranger_gets_no_answer(application: Any, pair: PemKeyPair, tmp_path: Path) -> None:
    for said in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 64):
        with socket.create_connection(address_of(application), PATIENCE_SECONDS) as plain:
            plain.sendall(said)
            heard = b""
            with contextlib.suppress(ConnectionResetError):
                while part := plain.recv(4096):
                    heard += part
        # At most a TLS alert (record type 21).
        assert not heard or (heard[0] == 21 and len(heard) < 32), (said, heard)
    assert is_refused(application, stranger())
    assert is_refused(application, of_long_ago())
    assert is_refused(application, with_pair(skein_pair(days=1), tmp_path))
    assert not is_refused(application, with_pair(pair, tmp_path))


def test_connections_that_say_nothing_are_closed_while_its_own_are_served(application: Any) -> None:
    address = address_of(application)
    strangers = [socket.create_connection(address, PATIENCE_SECONDS) for _ in range(_STRANGERS)]
    try:
        application.get_specification()
        for each in strangers:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
    finally:
        for each in strangers:
            each.close()
    application.get_specification()


def test_connections_are_bounded_in_number_while_its_own_are_served(application: Any) -> None:
    address, master = address_of(application), master_of(application)
    with contextlib.ExitStack() as ours:
        for _ in range(_MOST + 200):
            ours.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
        application.get_specification()
        held = [
            each for each in master.net_connections(kind="inet") if tuple(each.laddr)[1:] == (address[1],)
        ]
        assert sum(each.status == psutil.CONN_ESTABLISHED for each in held) <= _MOST
        application.get_specification()
    application.get_specification()
