"""TLS between the processes of a cluster, over HTTP: one pair of credentials, checked on both sides."""

from __future__ import annotations

import ssl
from pathlib import Path

from standby.adapters.grpc import CERTIFICATE_FILE, KEY_FILE
from standby.errors import BadConfiguration


def server_context(directory: Path) -> ssl.SSLContext:
    """Return what a server needs that talks to nobody without the pair in ``directory``.

    Raises `BadConfiguration` when there is no such pair.
    """
    context = _with_pair(
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), directory / CERTIFICATE_FILE, directory / KEY_FILE
    )
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    directory: Path, certificate: str = CERTIFICATE_FILE, key: str = KEY_FILE
) -> ssl.SSLContext:
    """Return what a client needs that talks only to a server with the pair in ``directory``.

    To be used with `standby.wire.CERTIFICATE_NAME` as the server's name: the certificate is the
    cluster's, not a host's. Raises `BadConfiguration` when there is no such pair.
    """
    return _with_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), directory / certificate, directory / key)


def _with_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> ssl.SSLContext:
    try:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        # Self-signed: it is its own authority.
        context.load_verify_locations(certificate)
    except OSError as error:
        raise BadConfiguration(
            f"{certificate}, {key.name}: no usable pair of credentials: {error.strerror or error}"
        ) from error
    return context
