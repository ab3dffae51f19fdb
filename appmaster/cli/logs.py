"""The logs of an application's containers, asked of the NodeManagers that hold them (YARN's REST API)."""

from __future__ import annotations

import http.client
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from appmaster.cli import yarn
from standby.errors import Unavailable

_TIMEOUT_SECONDS: Final = 5.0
_BYTES_PER_LINE: Final = 400

#: Files that YARN itself writes to every log directory.
_OF_YARN: Final = frozenset({"directory.info", "launch_container.sh", "prelaunch.out", "prelaunch.err"})


@dataclass(frozen=True, slots=True)
class Log:
    """The end of one log file of one container."""

    container: str
    node: str
    name: str
    text: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return asdict(self)


def collect(application: str, container: str | None, lines: int) -> list[Log]:
    """Return the ends of all logs of the application's containers, the master's first.

    A node that does not answer (it may be dead) is told of in place of its logs.
    """
    found: list[Log] = []
    with yarn.skein_client() as client:
        nodes = client.get_nodes()
        for node in nodes:
            found += _of_node(node.http_address, application, container, lines)
    return sorted(found, key=lambda each: ("_000001" not in each.container[-7:], each.container, each.name))


def _of_node(address: str, application: str, container: str | None, lines: int) -> list[Log]:
    try:
        listing = _get(f"http://{address}/ws/v1/node/apps/{application}")
        present = json.loads(listing).get("app", {}).get("containerids", [])
    except Unavailable as error:
        if "404" in str(error):
            return []  # it never ran anything of this application
        return [Log("-", address, "-", str(error))]
    logs: list[Log] = []
    for each in present:
        if container is not None and container != each:
            continue
        infos = json.loads(_get(f"http://{address}/ws/v1/node/containers/{each}/logs"))
        for info in _files(infos):
            if int(info["fileSize"] or 0) == 0 or info["fileName"] in _OF_YARN:
                continue
            size = min(int(info["fileSize"]), lines * _BYTES_PER_LINE)
            text = _get(f"http://{address}/ws/v1/node/containerlogs/{each}/{info['fileName']}?size=-{size}")
            # YARN frames the text with a header and a footer of its own.
            kept = (
                text.decode(errors="replace").partition("LogContents:\n")[2].partition("\nEnd of LogType:")[0]
            )
            logs.append(Log(each, address, str(info["fileName"]), "\n".join(kept.splitlines()[-lines:])))
    return logs


def _files(document: Any) -> list[dict[str, Any]]:
    """Return the file entries, in whichever of its shapes this Hadoop gives the list."""
    infos = document if isinstance(document, list) else [document.get("containerLogsInfo", document)]
    files: list[dict[str, Any]] = []
    for each in infos:
        entry = each.get("containerLogsInfo", each) if isinstance(each, dict) else {}
        inner = entry.get("containerLogInfo", [])
        files += inner if isinstance(inner, list) else [inner]
    return files


def _get(url: str) -> bytes:
    address, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", f"/{path}", headers={"Accept": "application/json, text/plain"})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url}: {error}") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise Unavailable(f"{url}: {response.status} {response.reason}")
    return body
