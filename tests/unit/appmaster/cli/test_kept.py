"""Logs of applications that have ended: found by what the event log keeps of their containers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from appmaster.cli.reading import logs
from appmaster.cli.reading.kept import kept
from appmaster.cli.reading.logs import Log

ONE, OTHER = "application_1700000000000_0001", "application_1700000000000_0002"
MASTER = "container_1700000000000_0001_01_000001"
FAILED = "container_e17_1700000000000_0001_01_000003"
LATER = "container_1700000000000_0002_01_000002"
TRACEBACK = "Traceback (most recent call last):\nValueError: no number"


def entry(
    kind: str, container: str | None, host: str | None, job: str | None = "j", **data: Any
) -> dict[str, Any]:
    return {"kind": kind, "container": container, "host": host, "job": job, "data": data}


ENTRIES = [
    entry("leader_elected", MASTER, "h1", None),
    entry("container_registered", FAILED, "h2"),
    entry("container_registered", "container_1700000000000_0009_01_000002", "h2", "other"),
    entry("decided_failures", None, None, traceback=TRACEBACK),
    entry("replica_failed", FAILED, "h2", traceback=TRACEBACK),
    entry("container_registered", LATER, "h3"),
    entry("container_gone", LATER, ""),
]


def test_the_event_log_tells_which_applications_and_containers_there_were() -> None:
    past = kept(ENTRIES, "j")
    assert past.applications(2) == [ONE, OTHER]
    assert past.applications(1) == [OTHER]
    assert past.of([ONE], None).missing([]) == {MASTER: "h1", FAILED: "h2"}
    assert past.of([ONE], None).missing([Log(MASTER, "h1", "x.log", "")]) == {FAILED: "h2"}
    assert past.of([ONE], MASTER).missing([]) == {MASTER: "h1"}
    many = kept([entry("container_registered", f"{MASTER[:-2]}{each}", "h1") for each in range(10, 60)], "j")
    assert list(many.missing([])) == [f"{MASTER[:-2]}{each}" for each in range(40, 60)], "the last ones"


def test_a_traceback_is_shown_where_the_containers_own_log_is_gone() -> None:
    past = kept(ENTRIES, "j")
    (shown,) = past.of([ONE, OTHER], None).logs([])
    assert (shown.container, shown.node, shown.text) == (FAILED, "h2", TRACEBACK)
    assert past.logs([Log(FAILED, "h2:1", "host-0.log", "all of it")]) == []
    assert past.of([OTHER], None).logs([]) == []
    assert past.of([ONE], MASTER).logs([]) == []


@dataclass
class Node:
    host: str
    http_address: str


class Nodes:
    """A client of YARN's that knows one host."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get_nodes(self) -> list[Node]:
        return [Node("h2", self.address)]


@contextmanager
def serving(answers: dict[str, tuple[int, str]]) -> Iterator[str]:
    """Give the address of a server; of a redirect the text is where to."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path.partition("?")[0], (404, ""))
            self.send_response(status)
            if status == 307:
                self.send_header("Location", text)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


LISTING = '{"containerLogsInfo": {"containerLogInfo": [{"fileName": "host-0.log", "fileSize": "9"}]}}'
FRAMED = "Container: x\nLogContents:\nall of it\nEnd of LogType:host-0.log\n"


@pytest.mark.parametrize("is_aggregated", [False, True])
def test_a_host_is_asked_for_a_container_by_its_id_and_may_name_who_has_its_logs(
    *, is_aggregated: bool
) -> None:
    """With aggregation on, a NodeManager names the log server (``yarn.log.server.web-service.url``)."""
    path = f"containers/{FAILED}/logs"
    file = f"containerlogs/{FAILED}/host-0.log"
    with serving({f"/ws/v1/history/{path}": (200, LISTING), "/kept": (200, FRAMED)}) as history:
        here = {f"/ws/v1/node/{path}": (200, LISTING), f"/ws/v1/node/{file}": (200, FRAMED)}
        elsewhere = {
            f"/ws/v1/node/{path}": (307, f"http://{history}/ws/v1/history/{path}"),
            f"/ws/v1/node/{file}": (307, f"http://{history}/kept"),
        }
        with serving(elsewhere if is_aggregated else here) as node:
            found = logs.of_containers(Nodes(node), {FAILED: "h2", LATER: "h3"}, 10)
    assert [(each.container, each.name, each.text) for each in found] == [(FAILED, "host-0.log", "all of it")]
