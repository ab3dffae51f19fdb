"""What the processes and operators of a cluster may do, by the role that their certificates say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

#: What follows a role in the name that a certificate is for: never a host's.
_DOMAIN: Final = ".standfast.internal"


class PeerRole(str, Enum):
    """What the holder of a certificate may do (docs/security.md)."""

    CONTAINER = "container"
    """Register, report, fetch state and code."""
    MASTER = "master"
    """Lead, and give code: a candidate."""
    OPERATOR = "operator"
    """Submit, change, upload, ask."""

    @property
    def server_name(self) -> str:
        """The name that certificates of this role are for, which a client asks of its server."""
        return f"{self.value}{_DOMAIN}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is at the other end of a connection, as its certificate says."""

    role: PeerRole
    name: str
    """For people: of an operator, the name for which the certificate was issued."""

    def __str__(self) -> str:
        return self.name if self.role is PeerRole.OPERATOR else f"the cluster's {self.role.value}"


def caller_of(names: Iterable[str], common_name: str) -> Caller | None:
    """Return whose certificate is for these ``names``; None: for no role's."""
    for each in names:
        for role in PeerRole:
            if each == role.server_name:
                return Caller(role, common_name)
    return None


def caller_of_peer(certificate: Mapping[str, Any] | None) -> Caller | None:
    """Return whose certificate it is, decoded as by `ssl.SSLSocket.getpeercert`; None: no role's."""
    if not certificate:
        return None
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    subject = dict(pair for each in certificate.get("subject", ()) for pair in each)
    return caller_of(names, str(subject.get("commonName", "")))
