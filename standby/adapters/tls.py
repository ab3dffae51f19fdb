"""TLS between the processes of a cluster: their certificates and trust, which may change at run time.

Open connections are kept; new ones use the current credentials.
"""

from __future__ import annotations

import ssl
import tempfile
import threading
from collections.abc import Callable
from typing import Final

import grpc

from standby.errors import BadConfiguration
from standby.security.credentials import Credentials
from standby.shared.roles import PeerRole

_TOO_OLD: Final = ssl.TLSVersion.TLSv1_2


class TlsCredentials:
    """The current credentials of a process. Thread-safe.

    Raises `BadConfiguration` when the first ones cannot be used.
    """

    def __init__(self, first: Credentials) -> None:
        self._lock = threading.Lock()
        self._now = first
        self._server, self._client = _server_context(first), _client_context(first)

    @property
    def now(self) -> Credentials:
        """The current credentials."""
        return self._now

    def renew(self, credentials: Credentials) -> bool:
        """Use these credentials from now on, if they are newer; return whether they are.

        Raises `BadConfiguration` when they cannot be used; the former ones are kept then.
        """
        with self._lock:
            if credentials.number <= self._now.number:
                return False
            server, client = _server_context(credentials), _client_context(credentials)
            self._now, self._server, self._client = credentials, server, client
            return True

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a server, which requires a client certificate of the cluster's authority."""
        return self._server

    def client_context(self) -> ssl.SSLContext:
        """Return the context of a client, which must request its server's `Role.server_name`."""
        return self._client

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the same for a gRPC client."""
        now = self._now
        return grpc.ssl_channel_credentials(now.trust.encode(), now.key.encode(), now.certificate.encode())

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return the same for a gRPC server, which fetches the current ones for each connection."""
        given = [self._now]

        def later() -> grpc.ServerCertificateConfiguration | None:
            now = self._now
            if now is given[0]:
                return None
            given[0] = now
            return _configuration(now)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given[0]),
            later,  # type: ignore[arg-type] # None: unchanged, as documented
            require_client_authentication=True,
        )


def channel_options(role: PeerRole) -> list[tuple[str, str]]:
    """Return the options of a gRPC channel to a server that must have ``role``."""
    return [("grpc.ssl_target_name_override", role.server_name), ("grpc.default_authority", role.server_name)]


#: Called for each new connection.
Context = Callable[[], ssl.SSLContext]


def _configuration(credentials: Credentials) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(credentials.key.encode(), credentials.certificate.encode())], credentials.trust.encode()
    )


def _server_context(credentials: Credentials) -> ssl.SSLContext:
    context = _filled(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), credentials)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _client_context(credentials: Credentials) -> ssl.SSLContext:
    return _filled(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), credentials)


def _filled(context: ssl.SSLContext, credentials: Credentials) -> ssl.SSLContext:
    try:
        context.minimum_version = _TOO_OLD
        # The library reads a certificate with its key from files only; this file is private, and deleted at once.
        with tempfile.NamedTemporaryFile("w", prefix="standfast-", suffix=".pem") as pair:
            pair.write(credentials.certificate + credentials.key)
            pair.flush()
            context.load_cert_chain(pair.name)
        context.load_verify_locations(cadata=credentials.trust)
    except (OSError, ValueError) as error:
        raise BadConfiguration(
            f"credentials {credentials.number} of this cluster cannot be used: {error}"
        ) from error
    return context
