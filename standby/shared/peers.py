"""What containers of a cluster ask of each other over HTTP: requests, answers, routes. Pure.

They talk on a port of its own, with mutual TLS (`standby.security.credentials`), so a state is readable by nobody else
on the network. The plain port shows metrics only.
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

#: First part of the path under which candidates give code (`standby.adapters.peers.code`).
CODE_ROUTE: Final = "code"


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Where a container answers its peers."""

    container: str
    host: str
    port: int
    """0: it does not, being of an older version."""


@dataclass(frozen=True, slots=True, order=True)
class BundleSource:
    """A candidate that holds a bundle of code, and where it gives it."""

    candidate: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A request of somebody who has credentials of the cluster."""

    caller: Caller
    method: str
    path: tuple[str, ...]
    """The path's parts, decoded; the first one has chosen the route."""
    query: Mapping[str, str] = field(default_factory=dict)
    start: int = 0
    """First byte that is wanted (``Range: bytes=<start>-``)."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What is answered."""

    status: int
    body: bytes | Iterable[bytes] = b""
    """Bytes, or pieces that are made while they are sent, on the request's own thread."""
    content_type: str = "application/json"
    length: int | None = None
    """Of pieces: how many bytes they have together; None: the connection ends behind them."""
    headers: Mapping[str, str] = field(default_factory=dict)


#: Answers the requests whose path begins with its name; called on a thread per connection.
Route = Callable[[PeerRequest], PeerAnswer]


def only(roles: Collection[PeerRole], route: Route) -> Route:
    """Return the route for callers of these roles; others are refused."""

    def answer(request: PeerRequest) -> PeerAnswer:
        if request.caller.role not in roles:
            said = f"not for {request.caller}: {', '.join(sorted(each.value for each in roles))} only\n"
            return PeerAnswer(HTTPStatus.FORBIDDEN, said.encode(), "text/plain")
        return route(request)

    return answer


#: First part of the path → its route.
Routes = Mapping[str, Route]
