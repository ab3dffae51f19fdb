"""The candidate's HTTP port: reading only. `/metrics`, `/healthz`, `/sd`, `/api/v1/status`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from appmaster.adapters.prometheus import CONTENT_TYPE, Metrics

Status = Callable[[], Mapping[str, Any]]


class HttpPort:
    """Serves on a free port of a host until closed."""

    def __init__(self, host: str, metrics: Metrics, status: Status) -> None:
        pages: dict[str, Callable[[], tuple[str, bytes]]] = {
            "/healthz": lambda: ("text/plain", b"ok\n"),
            "/metrics": lambda: (CONTENT_TYPE, metrics.render()),
            "/api/v1/status": lambda: ("application/json", json.dumps(status()).encode()),
            "/sd": lambda: ("application/json", json.dumps(_targets(status())).encode()),
        }

        class Request(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                if page is None:
                    self.send_error(404)
                    return
                content_type, body = page()
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
                """Say nothing: a scrape every few seconds is no event."""

        self._server = ThreadingHTTPServer((host, 0), Request)
        self._server.daemon_threads = True
        self.port: int = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _targets(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return Prometheus's HTTP service discovery: every container that serves metrics."""
    return [
        {
            "targets": [f"{each['host']}:{each['http_port']}"],
            "labels": {"container": each["container"], "cluster": status["cluster"]},
        }
        for each in status["containers"]
        if each["http_port"]
    ]
