"""What is shown of the logs that a NodeManager holds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from appmaster.cli.reading.logs import _of_container as logs_of
from appmaster.cli.reading.logs import last_lines


@contextmanager
def node(files: dict[str, str]) -> Iterator[str]:
    """Serve a container's logs as YARN does; give the address."""

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.partition("?")[0].rpartition("/")[2]
            if name == "logs":
                infos = [{"fileName": each, "fileSize": str(len(text))} for each, text in files.items()]
                body = json.dumps({"containerLogsInfo": {"containerLogInfo": infos}})
            else:
                body = f"LogType:{name}\nLogContents:\n{files[name]}\nEnd of LogType:{name}"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_lines_of_before_a_file_was_cut_come_first() -> None:
    files = {"anywhere_0.log": "three\nfour", "anywhere_0.log.1": "one\ntwo", "launch_container.sh": "x"}
    with node(files) as address:
        [log] = logs_of(address, "container_1", 3)
        assert (log.name, log.text) == ("anywhere_0.log", "two\nthree\nfour")
        assert last_lines(address, "container_1") == ("one", "two", "three", "four")


def test_file_that_has_just_been_cut_is_shown_by_its_former_part() -> None:
    with node({"anywhere_0.log": "", "anywhere_0.log.1": "one\ntwo"}) as address:
        assert [each.text for each in logs_of(address, "container_1", 3)] == ["one\ntwo"]
