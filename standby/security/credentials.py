"""By what the processes of a cluster know each other: a certificate for each role, from the cluster's own authority.

`standfast submit` gives every process what it begins with in one file of its working directory; what a rotation
replaces comes through ZooKeeper (`standby.adapters.zookeeper.credentials`). Pure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from standby.errors import BadConfiguration

#: Its name in the working directory of every container and candidate.
FILE: Final = "credentials.json"


class Credentials(msgspec.Struct, frozen=True):
    """What one process shows and trusts, in PEM."""

    number: int
    """Counts what was given out to a cluster; the higher one holds."""
    trust: str
    """Certificates of the authorities whose certificates are trusted: of two while they change."""
    certificate: str
    key: str

    def __repr__(self) -> str:
        return f"Credentials({self.number}, …)"


class Bootstrap(msgspec.Struct, frozen=True):
    """`FILE`: what a process has before it has talked to anybody."""

    credentials: Credentials
    secret: str
    """What its sessions with ZooKeeper prove."""
    owner: str
    """The digest by which ZooKeeper knows the cluster's owner; tells nothing of the owner's secret."""

    def __repr__(self) -> str:
        return f"Bootstrap({self.credentials!r}, …)"


def encode(what: Credentials | Bootstrap) -> bytes:
    """Return it as it is kept."""
    return msgspec.json.encode(what)


def decode(data: bytes, path: str) -> Credentials:
    """Return the credentials that ``path`` holds; raises `BadConfiguration`."""
    try:
        return msgspec.json.decode(data, type=Credentials)
    except msgspec.DecodeError as error:
        raise BadConfiguration(f"{path}: no credentials: {error}") from error


def load(directory: Path) -> Bootstrap:
    """Return what a process has in its working directory; raises `BadConfiguration` naming what is wrong.

    A stream without credentials is never opened: whoever can talk to a container can make it write.
    """
    path = directory / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Bootstrap)
    except OSError as error:
        raise BadConfiguration(
            f"{path}: {error.strerror}; `standfast submit` puts the cluster's credentials into the working directory "
            "of every process, and this one is to be started by YARN"
        ) from error
    except msgspec.DecodeError as error:
        raise BadConfiguration(f"{path}: no credentials: {error}") from error
