"""Logs that NodeManagers hold, and those of ended applications: found by what the event log keeps."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from appmaster.adapters import node_logs
from appmaster.adapters.node_logs import Log
from appmaster.cli.reading.job_history import read_history
from tests.patience import LOOK_SECONDS

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
    past = read_history(ENTRIES, "j")
    assert past.applications(2) == [ONE, OTHER]
    assert past.applications(1) == [OTHER]
    assert past.of([ONE], None).missing([]) == {MASTER: "h1", FAILED: "h2"}
    assert past.of([ONE], None).missing([Log(MASTER, "h1", "x.log", "")]) == {FAILED: "h2"}
    assert past.of([ONE], MASTER).missing([]) == {MASTER: "h1"}
    many = read_history(
        [entry("container_registered", f"{MASTER[:-2]}{each}", "h1") for each in range(10, 60)], "j"
    )
    assert list(many.missing([])) == [f"{MASTER[:-2]}{each}" for each in range(40, 60)], "the last ones"


def test_a_traceback_is_shown_where_the_containers_own_log_is_gone() -> None:
    past = read_history(ENTRIES, "j")
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
    threading.Thread(target=server.serve_forever, args=(LOOK_SECONDS,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def holding(container: str, at: str = "/ws/v1/node", **files: str) -> dict[str, tuple[int, str]]:
    """Return what a NodeManager that holds these files of a container answers; "__" stands for a dot."""
    named = {name.replace("__", "."): text for name, text in files.items()}
    infos = [{"fileName": name, "fileSize": str(len(text))} for name, text in named.items()]
    listing = json.dumps({"containerLogsInfo": {"containerLogInfo": infos}})
    return {
        f"{at}/containers/{container}/logs": (200, listing),
        **{
            f"{at}/containerlogs/{container}/{name}": (200, f"LogContents:\n{text}\nEnd of LogType:{name}")
            for name, text in named.items()
        },
    }


@pytest.mark.parametrize("is_aggregated", [False, True])
def test_a_host_that_is_asked_for_a_container_may_name_who_has_its_logs(*, is_aggregated: bool) -> None:
    """With aggregation on, a NodeManager names the log server (``yarn.log.server.web-service.url``)."""
    there = "/ws/v1/history" if is_aggregated else "/ws/v1/node"
    with serving(holding(FAILED, there, host__log="all of it")) as holder:
        elsewhere = {
            path.replace(there, "/ws/v1/node"): (307, f"http://{holder}{path}")
            for path in holding(FAILED, there, host__log="all of it")
        }
        with serving(elsewhere) as sent_on:
            node = sent_on if is_aggregated else holder
            found = node_logs.container_logs(Nodes(node), {FAILED: "h2", LATER: "h3"}, 10)
    assert [(each.container, each.name, each.text) for each in found] == [(FAILED, "host.log", "all of it")]


def test_a_host_that_cannot_say_what_it_has_is_named_and_one_that_has_nothing_is_not() -> None:
    # Its number is that of an answer.
    application = "application_1700000000000_0404"
    with serving({f"/ws/v1/node/apps/{application}": (503, "")}) as address:
        (log,) = node_logs.collect(Nodes(address), application, "", None, 3)
        assert (log.node, log.text.partition(": ")[2]) == (address, "503 Service Unavailable")
    with serving({}) as address:
        assert node_logs.collect(Nodes(address), application, "", None, 3) == []


@pytest.mark.parametrize(
    ("status", "said", "shown"),
    [
        pytest.param(200, "<html>log in</html>", "not a list of containers", id="a page"),
        pytest.param(200, "[]", "not a list of containers", id="another document"),
        pytest.param(307, "https://h2:8044/x", "redirects to https://h2:8044/x, not to http", id="https"),
    ],
)
def test_an_answer_that_is_not_a_node_managers_is_named(status: int, said: str, shown: str) -> None:
    with serving({f"/ws/v1/node/apps/{ONE}": (status, said)}) as address:
        (log,) = node_logs.collect(Nodes(address), ONE, "", None, 3)
    assert (log.node, log.text) == (address, f"http://{address}/ws/v1/node/apps/{ONE}: {shown}")


def test_a_node_manager_may_list_no_containers_of_an_application() -> None:
    with serving({f"/ws/v1/node/apps/{ONE}": (200, '{"app": {"containerids": null}}')}) as address:
        assert node_logs.collect(Nodes(address), ONE, "", None, 3) == []


def test_lines_of_before_a_file_was_cut_come_first() -> None:
    files = {"host__log": "three\nfour", "host__log__1": "one\ntwo", "launch_container__sh": "x"}
    with serving(holding(FAILED, **files)) as address:
        (log,) = node_logs.container_logs(Nodes(address), {FAILED: "h2"}, 3)
        assert (log.name, log.text) == ("host.log", "two\nthree\nfour")
        assert node_logs.last_lines(address, FAILED) == ("one", "two", "three", "four")
    with serving(holding(FAILED, host__log="", host__log__1="one\ntwo")) as just_cut:
        (log,) = node_logs.container_logs(Nodes(just_cut), {FAILED: "h2"}, 3)
        assert log.text == "one\ntwo"
