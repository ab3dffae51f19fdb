"""HTTP between containers of a cluster: requests, answers, routes. Pure.

They use a separate port with mutual TLS (`standby.security.credentials`), so no other host on the network can read a
state. The plain port serves metrics only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from standby.shared.roles import Caller, PeerRole

#: First part of the path under which state is looked up (`standby.process.lookup`).
STATE_ROUTE: Final = "state"

#: First part of the paths under which copies of states are given (`standby.kernel.restore.snapshots`).
SNAPSHOTS_ROUTE: Final = "snapshots"

#: First part of the paths under which a job's transform is run for other containers (`standby.process.lending`).
TRANSFORMS_ROUTE: Final = "transforms"

#: Maximum size of a request's body: most requests carry names only.
BODY_BYTES: Final = 1 << 20

#: The same for `TRANSFORMS_ROUTE`, whose requests carry rows.
ROWS_BYTES: Final = 16 << 20

#: Key in the query of a request for a copy, or for a file of it, for which an active waits.
URGENT: Final = "urgent"

#: First part of the path under which candidates give code (`standby.adapters.peers.code`).
CODE_ROUTE: Final = "code"


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The address of a container for its peers."""

    container: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, order=True)
class BundleSource:
    """A candidate that holds a code bundle, and the address where it serves it."""

    candidate: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A request of a client with credentials of the cluster."""

    caller: Caller
    method: str
    path: tuple[str, ...]
    """The decoded components of the path; the first one has selected the route."""
    query: Mapping[str, str] = field(default_factory=dict)
    start: int = 0
    """First requested byte (``Range: bytes=<start>-``)."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """An answer."""

    status: int
    body: bytes | Iterable[bytes] = b""
    """Bytes, or pieces that are generated while they are sent, on the request's thread."""
    content_type: str = "application/json"
    length: int | None = None
    """For pieces: their total size; None: the connection is closed after them."""
    headers: Mapping[str, str] = field(default_factory=dict)


#: Answers the requests whose path begins with the route's name; called on a thread per connection.
PeerRoute = Callable[[PeerRequest], PeerAnswer]


def refusal(status: HTTPStatus, text: str) -> PeerAnswer:
    """Return the answer that says in words why there is no other."""
    return PeerAnswer(status, text.encode() + b"\n", "text/plain")


def only(roles: Collection[PeerRole], route: PeerRoute) -> PeerRoute:
    """Return the route for callers of these roles; others are refused."""

    def answer(request: PeerRequest) -> PeerAnswer:
        if request.caller.role not in roles:
            allowed = ", ".join(sorted(each.value for each in roles))
            return refusal(HTTPStatus.FORBIDDEN, f"not for {request.caller}: {allowed} only")
        return route(request)

    return answer


#: First part of the path → its route.
Routes = Mapping[str, PeerRoute]
