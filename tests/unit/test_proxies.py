"""A proxy in the environment: what talks to the cluster or to this machine never asks it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from appmaster.adapters.credentials.authority import PemKeyPair, skein_pair
from appmaster.adapters.skein_library import load_skein
from appmaster.cli.shared.yarn import as_security
from embedded import probes
from standby.adapters.channels import open_channel
from tests.patience import PATIENCE_SECONDS

VARIABLES = (
    "http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "GRPC_PROXY",
)  # fmt: skip


@pytest.fixture(autouse=True)
def proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variable that names a proxy, each with one where nothing listens."""
    for each in VARIABLES:
        monkeypatch.setenv(each, "http://127.0.0.1:9")
    for each in ("no_proxy", "NO_PROXY", "no_grpc_proxy", "NO_GRPC_PROXY"):
        monkeypatch.delenv(each, raising=False)


@pytest.fixture
def driver() -> Iterator[tuple[str, PemKeyPair]]:
    """The address of a server that shows a certificate as Skein's driver does, and the pair of both."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    pair = skein_pair(days=1)
    credentials = grpc.ssl_server_credentials([(pair.key.encode(), pair.certificate.encode())])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}", pair
    finally:
        server.stop(None).wait()


def test_skein_reaches_its_driver_and_its_masters(driver: tuple[str, PemKeyPair]) -> None:
    address, pair = driver
    with load_skein().core.secure_channel(address, as_security(pair)) as channel:
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_SECONDS)


def test_channel_of_ours_reaches_its_server(driver: tuple[str, PemKeyPair]) -> None:
    address, pair = driver
    trusting = grpc.ssl_channel_credentials(pair.certificate.encode())
    options = (("grpc.ssl_target_name_override", "skein-internal"),)
    with open_channel(address, trusting, options) as channel:
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_SECONDS)


def test_embedded_clusters_resource_manager_is_asked() -> None:
    class Nodes(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"nodes": {"node": [{"nodeHostName": "h1", "state": "RUNNING"}]}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Nodes) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert list(probes.nodes(f"http://127.0.0.1:{server.server_port}")) == ["h1"]
