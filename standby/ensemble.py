"""Addresses of the ZooKeeper servers, and TLS settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from standby.errors import BadConfiguration

#: Environment variables for commands without a job file, and defaults for job files.
CA, CERTIFICATE, KEY = "STANDFAST_ZOOKEEPER_CA", "STANDFAST_ZOOKEEPER_CERTIFICATE", "STANDFAST_ZOOKEEPER_KEY"

#: The corresponding keys of a job file.
KEYS: Final[Mapping[str, str]] = {
    "zookeeper.ssl.ca.location": CA,
    "zookeeper.ssl.certificate.location": CERTIFICATE,
    "zookeeper.ssl.key.location": KEY,
}


#: A name or an address, with an optional port; an IPv6 address is in brackets.
_SERVER: Final = re.compile(r"(?:[^\s:/?#@\[\]]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


def read_servers(connect: str) -> tuple[tuple[str, ...], str]:
    """Return the servers of a list, ``host:port,host:port``, and its chroot: ``/path``, or empty.

    There are no spaces around them: kazoo refuses a port with spaces, and keeps those of a path.
    """
    servers, slash, chroot = connect.strip().partition("/")
    return tuple(each.strip() for each in servers.split(",")), f"{slash}{chroot}"


def wrong_servers(connect: str) -> Iterator[str]:
    """Yield errors in a server list, ``host:port,host:port``, with an optional chroot, ``/path``."""
    servers, path = read_servers(connect)
    for each in servers:
        if not _is_server(each):
            yield f"{each!r} is not a server: it must have a form like zk1:2181"
    chroot = path[1:]
    if "," in chroot:
        yield f"{path}: give the path once, after the last server; it applies to all of them"
    elif chroot and any(each in ("", ".", "..") for each in chroot.split("/")):
        yield f"{path} is not a path in ZooKeeper: it must have a form like /apps/standfast"


def _is_server(text: str) -> bool:
    found = _SERVER.fullmatch(text)
    if found is None or not 0 < int(found[1] or 1) < 1 << 16:
        return False
    try:
        # As kazoo reads it; this refuses brackets around something other than an IPv6 address.
        return urlsplit(f"//{text}").hostname is not None
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files on every host: the trusted authority of the servers, and the client certificate."""

    ca: str = ""
    certificate: str = ""
    """Empty: no client certificate."""
    key: str = ""


def wrong(tls: Tls, names: Sequence[str]) -> Iterator[str]:
    """Yield errors in the given files; ``names`` are the names of the three settings."""
    if (tls.certificate or tls.key) and not tls.ca:
        yield f"{names[0]}: missing; {names[1]} and {names[2]} require it"
    if bool(tls.certificate) != bool(tls.key):
        yield f"{names[2] if tls.certificate else names[1]}: missing; a certificate and its key are required together"
    for name, path in zip(names, (tls.ca, tls.certificate, tls.key), strict=True):
        if path and not path.startswith("/"):
            yield f"{name}: {path!r} is not an absolute path"


def tls_of(environment: Mapping[str, str]) -> Tls | None:
    """Return the TLS settings of commands; None: plain text. Raises `BadConfiguration`."""
    names = (CA, CERTIFICATE, KEY)
    found = Tls(*(environment.get(each, "") for each in names))
    if said := "; ".join(wrong(found, names)):
        raise BadConfiguration(said)
    return found if found.ca else None
