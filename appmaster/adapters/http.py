"""The candidate's HTTP port: read-only, without credentials.

Any candidate serves `/metrics`, `/healthz`, `/sd`, `/api/v1/cluster` and `/api/v1/changes/<id>`; only the leader serves
`/api/v1/status`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from appmaster.adapters.prometheus import Metrics
from standby.adapters.acceptor import Acceptor
from standby.adapters.http_port import HttpPages, HttpRequest, HttpResponse
from standby.errors import BadConfiguration, StandfastError, Unavailable

Status = Callable[[], Mapping[str, Any]]

#: Returns a queued change by its id; raises `StandfastError` if there is none.
ChangeStatus = Callable[[str], Mapping[str, Any]]

#: Returns the targets to scrape; raises `StandfastError` if they are not known at the moment.
Targets = Callable[[], Sequence[Mapping[str, Any]]]

#: Returns content type and body.
_Page = Callable[[HttpRequest], tuple[str, bytes]]

_JSON: Final = "application/json"

_API: Final = "/api/"
_CHANGES: Final = f"{_API}v1/changes/"
_CHANGE: Final = f"{_CHANGES}<id>"


class HttpPort:
    """Serves on one port of a host until closed."""

    def __init__(
        self,
        host: str,
        metrics: Metrics,
        status: Status,
        targets: Targets,
        wanted_port: int = 0,
        *,
        info: Status = dict,
        change: ChangeStatus = lambda _: {},
        shows_all: bool = True,
    ) -> None:
        """Start serving on ``wanted_port``, or on a free port if it is 0 or taken.

        It may be taken by another candidate on the same host: both are found through `/sd` of either. Raises
        `Unavailable` if the host is not this one. Clients are not authenticated: without ``shows_all`` there are only
        the pages that monitoring needs, and everything else requires calls with credentials.
        """
        self._http = _listening(host, wanted_port)
        pages: dict[str, _Page] = {
            "/healthz": lambda _: ("text/plain", b"ok\n"),
            "/metrics": lambda request: metrics.render(request.accept),
            "/api/v1/status": lambda _: (_JSON, json.dumps(status()).encode()),
            "/api/v1/cluster": lambda _: (_JSON, json.dumps(info()).encode()),
            "/sd": lambda _: (_JSON, json.dumps(targets()).encode()),
            _CHANGE: lambda request: (
                _JSON,
                json.dumps(change(request.path.removeprefix(_CHANGES))).encode(),
            ),
        }
        self._pages = {path: each for path, each in pages.items() if shows_all or _API not in path}
        self.gate: Acceptor = self._http.gate
        self.port: int = self._http.port
        self._http.start(self._answer)

    def close(self) -> None:
        """Stop serving."""
        self._http.close()

    def _answer(self, request: HttpRequest) -> HttpResponse:
        """Answer with a page; 503 if its content is not known now, so that Prometheus keeps what it has."""
        page = self._pages.get(_CHANGE if request.path.startswith(_CHANGES) else request.path)
        if page is None:
            return HttpResponse(HTTPStatus.NOT_FOUND, "text/plain", " ".join(self._pages).encode() + b"\n")
        try:
            content_type, body = page(request)
        except BadConfiguration as error:
            return HttpResponse(HTTPStatus.NOT_FOUND, "text/plain", f"{error}\n".encode())
        except StandfastError as error:
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n".encode())
        return HttpResponse(HTTPStatus.OK, content_type, body)


def _listening(host: str, port: int) -> HttpPages:
    try:
        return HttpPages(host, port)
    except Unavailable:
        if not port:
            raise
        # Another candidate on this host has it.
        return HttpPages(host)
