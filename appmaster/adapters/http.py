"""The candidate's HTTP port: reading only, without credentials.

`/metrics`, `/healthz`, `/sd`, `/api/v1/cluster`, `/api/v1/requests/<id>` of any candidate, `/api/v1/status` of the
leader.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from appmaster.adapters.prometheus import Metrics
from standby.errors import BadConfiguration, StandfastError, Unavailable

Status = Callable[[], Mapping[str, Any]]

#: A queued change by its id; raises `StandfastError` when there is none.
Request = Callable[[str], Mapping[str, Any]]

#: What is to be scraped; raises `StandfastError` when that is not known at the moment.
Targets = Callable[[], Sequence[Mapping[str, Any]]]

#: From the request's ``Accept``, or a name, to content type and body.
_Page = Callable[[str], tuple[str, bytes]]

_JSON: Final = "application/json"

_API: Final = "/api/"
_REQUESTS: Final = f"{_API}v1/requests/"


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
        request: Request = lambda _: {},
        shows_all: bool = True,
    ) -> None:
        """Begin to serve on ``wanted_port``, or on a free one when it is 0 or taken.

        Taken it is by another candidate on the same host: both are found through `/sd` of either. Raises
        `Unavailable` when the host is not this one. Nobody is asked who he is: without ``shows_all`` there are only
        the pages that monitoring needs, and the rest is to be had by calls with credentials.
        """
        self._server = _listening(host, wanted_port)
        pages: dict[str, _Page] = {
            "/healthz": lambda _: ("text/plain", b"ok\n"),
            "/metrics": metrics.render,
            "/api/v1/status": lambda _: (_JSON, json.dumps(status()).encode()),
            "/api/v1/cluster": lambda _: (_JSON, json.dumps(info()).encode()),
            "/sd": lambda _: (_JSON, json.dumps(targets()).encode()),
        }
        below: dict[str, _Page] = {_REQUESTS: lambda name: (_JSON, json.dumps(request(name)).encode())}
        self._server.pages = {path: each for path, each in pages.items() if shows_all or _API not in path}
        self._server.below = below if shows_all else {}
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    pages: Mapping[str, _Page]
    below: Mapping[str, _Page]
    """Beginning of a path → what answers the rest of it."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    #: A client that connects and says nothing does not keep its thread.
    timeout = 10.0

    def do_GET(self) -> None:
        """Answer with a page; 503 when what it shows is not known now: Prometheus then keeps what it has."""
        path = self.path.partition("?")[0]
        page, asked = self.server.pages.get(path), self.headers.get("Accept") or ""
        for beginning, answer in self.server.below.items():
            if path.startswith(beginning):
                page, asked = answer, path[len(beginning) :]
        if page is None:
            known = " ".join((*self.server.pages, *(f"{each}<id>" for each in self.server.below)))
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", known.encode() + b"\n")
            return
        try:
            content_type, body = page(asked)
        except BadConfiguration as error:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"{error}\n".encode())
            return
        except StandfastError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n".encode())
            return
        self._answer(HTTPStatus.OK, content_type, body)

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
        """Say nothing: a scrape every few seconds is no event."""


def _listening(host: str, port: int) -> _Server:
    for each in dict.fromkeys((port, 0)):
        try:
            return _Server((host, each), _Request)
        except OSError as error:
            if each == 0:
                raise Unavailable(f"NM_HOST: cannot listen on {host}: {error.strerror or error}") from error
    raise AssertionError("port 0 is always tried last")
