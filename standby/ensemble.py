"""Where the servers of ZooKeeper are, and how they are talked to: in clear, or over TLS. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from standby.errors import BadConfiguration

#: For commands that have no job file, and for what a job file does not say.
CA, CERTIFICATE, KEY = "STANDFAST_ZOOKEEPER_CA", "STANDFAST_ZOOKEEPER_CERTIFICATE", "STANDFAST_ZOOKEEPER_KEY"

#: The keys of a job file that say the same.
KEYS: Final[Mapping[str, str]] = {
    "zookeeper.ssl.ca.location": CA,
    "zookeeper.ssl.certificate.location": CERTIFICATE,
    "zookeeper.ssl.key.location": KEY,
}


#: A name or an address, with a port if it is not ZooKeeper's own; an IPv6 address is in brackets.
_SERVER: Final = re.compile(r"(?:[^\s:/?#@\[\]]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


def wrong_servers(connect: str) -> Iterator[str]:
    """Yield what is wrong with servers, ``host:port,host:port``, and the chroot, ``/path``, that may follow them."""
    servers, slash, chroot = connect.partition("/")
    for each in servers.split(","):
        found = _SERVER.fullmatch(each.strip())
        if found is None or not 0 < int(found[1] or 1) < 1 << 16:
            yield f"{each.strip()!r} is no server: it has to be like zk1:2181"
    if "," in chroot:
        yield f"{slash}{chroot!s}: a path goes once, behind the last server, and holds for all of them"
    elif chroot and any(each in ("", ".", "..") for each in chroot.split("/")):
        yield f"{slash}{chroot} is no path in ZooKeeper: it has to be like /apps/standfast"


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM on every host: whose servers are talked to, and what is shown to them."""

    ca: str = ""
    certificate: str = ""
    """Empty: nothing is shown."""
    key: str = ""


def wrong(tls: Tls, names: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with what was given, by the ``names`` of the three."""
    if (tls.certificate or tls.key) and not tls.ca:
        yield f"{names[0]}: missing; {names[1]} and {names[2]} go with it"
    if bool(tls.certificate) != bool(tls.key):
        yield f"{names[2] if tls.certificate else names[1]}: missing; a certificate goes with its key"
    for name, path in zip(names, (tls.ca, tls.certificate, tls.key), strict=True):
        if path and not path.startswith("/"):
            yield f"{name}: {path!r} is not an absolute path"


def tls_of(environment: Mapping[str, str]) -> Tls | None:
    """Return how commands talk to servers; None: in clear. Raises `BadConfiguration`."""
    names = (CA, CERTIFICATE, KEY)
    found = Tls(*(environment.get(each, "") for each in names))
    if said := "; ".join(wrong(found, names)):
        raise BadConfiguration(said)
    return found if found.ca else None
