"""Credentials of a cluster's processes: a certificate for each role, from the cluster's own authority. Pure.

`standfast submit` gives every process its initial credentials in a file of its working directory; rotated
credentials are distributed through ZooKeeper (`standby.adapters.zookeeper.credentials`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from standby.errors import BadConfiguration

#: The name of the file in the working directory of every container and candidate.
FILE: Final = "credentials.json"


class Credentials(msgspec.Struct, frozen=True):
    """The certificate, key and trust of a process, in PEM."""

    number: int
    """Increases with each issue of credentials for a cluster; the highest one is current."""
    trust: str
    """Certificates of the trusted authorities: two during a rotation."""
    certificate: str
    key: str

    def __repr__(self) -> str:
        return f"Credentials({self.number}, …)"


class Bootstrap(msgspec.Struct, frozen=True):
    """The content of `FILE`: what a process has from its start."""

    credentials: Credentials
    secret: str
    """The secret of its ZooKeeper sessions."""
    owner: str
    """The digest of the cluster's owner in ZooKeeper; it does not reveal the owner's secret."""

    def __repr__(self) -> str:
        return f"Bootstrap({self.credentials!r}, …)"


def encode(what: Credentials | Bootstrap) -> bytes:
    """Return the encoded form."""
    return msgspec.json.encode(what)


def decode(data: bytes, path: str) -> Credentials:
    """Return the credentials in ``data`` from ``path``. Raises `BadConfiguration`."""
    try:
        return msgspec.json.decode(data, type=Credentials)
    except msgspec.DecodeError as error:
        raise BadConfiguration(f"{path}: no credentials: {error}") from error


def load(directory: Path) -> Bootstrap:
    """Return the initial credentials of a process in its working directory. Raises `BadConfiguration`.

    A stream without credentials is never opened: a client that can talk to a container can make it write.
    """
    remedy = (
        "`standfast submit` puts the cluster's credentials into the working directory of every process, and this one "
        "must be started by YARN"
    )
    return read(directory / FILE, remedy)


def read(path: Path, remedy: str) -> Bootstrap:
    """Return the initial credentials in a file. Raises `BadConfiguration`, with ``remedy`` if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Bootstrap)
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror}; {remedy}") from error
    except msgspec.DecodeError as error:
        raise BadConfiguration(f"{path}: no credentials: {error}") from error
