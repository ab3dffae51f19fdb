"""Permissions of the processes and operators of a cluster, by the role in their certificates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

#: Domain of the names in certificates, which consist of a role and this domain: never a host's name.
_DOMAIN: Final = ".standfast.internal"


class PeerRole(str, Enum):
    """The role of a certificate's holder, which determines its permissions (docs/security.md)."""

    CONTAINER = "container"
    """Register, report, fetch state and code."""
    MASTER = "master"
    """Lead, and serve code: a candidate."""
    OPERATOR = "operator"
    """Submit, change, upload, query."""

    @property
    def server_name(self) -> str:
        """The name in certificates of this role, which a client requires of its server."""
        return f"{self.value}{_DOMAIN}"


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a connection, according to its certificate."""

    role: PeerRole
    name: str
    """For people: for an operator, the name for which the certificate was issued."""

    def __str__(self) -> str:
        return self.name if self.role is PeerRole.OPERATOR else f"the cluster's {self.role.value}"


def caller_of(names: Iterable[str], common_name: str) -> Caller | None:
    """Return the caller whose certificate has these ``names``; None: no role."""
    for each in names:
        for role in PeerRole:
            if each == role.server_name:
                return Caller(role, common_name)
    return None


def caller_of_peer(certificate: Mapping[str, Any] | None) -> Caller | None:
    """Return the caller with this certificate, as decoded by `ssl.SSLSocket.getpeercert`; None: no role."""
    if not certificate:
        return None
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    subject = dict(pair for each in certificate.get("subject", ()) for pair in each)
    return caller_of(names, str(subject.get("commonName", "")))
