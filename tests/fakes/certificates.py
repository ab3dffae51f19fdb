"""A pair of credentials as every Skein application has one."""

from __future__ import annotations

import functools
from pathlib import Path

from skein import Security

from standby.adapters.grpc import CERTIFICATE_FILE, KEY_FILE, Credentials


def new_credentials() -> Credentials:
    """Return a pair made by Skein's own code, so that the tests have exactly its kind of certificate."""
    security = Security.new_credentials()
    return Credentials(security.cert_bytes, security.key_bytes)


@functools.cache
def shared_credentials() -> Credentials:
    """Return one pair for all tests of this process: making one takes a tenth of a second."""
    return new_credentials()


def write_credentials(directory: Path, credentials: Credentials) -> None:
    """Put the pair where Skein puts it in a container's working directory."""
    (directory / CERTIFICATE_FILE).write_bytes(credentials.certificate)
    (directory / KEY_FILE).write_bytes(credentials.key)


def user_directory(directory: Path) -> Path:
    """Return ``directory``, with the pair as Skein keeps it for a user who has submitted before (SKEIN_CONFIG)."""
    directory.mkdir(exist_ok=True)
    (directory / "skein.crt").write_bytes(shared_credentials().certificate)
    (directory / "skein.pem").write_bytes(shared_credentials().key)
    return directory
