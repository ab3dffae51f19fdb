"""The logs of an application's containers, fetched from the NodeManagers that hold them (YARN's REST API)."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from standby.adapters.logfiles import FORMER
from standby.errors import Unavailable

_TIMEOUT_SECONDS: Final = 5.0
_BYTES_PER_LINE: Final = 400

#: Lines that are read of a container that ended early; they include what its witness wrote at the very beginning.
_LAST_LINES: Final = 250

_REDIRECTS: Final = (http.client.FOUND, http.client.TEMPORARY_REDIRECT)
_MOST_REDIRECTS: Final = 3

#: Files that YARN itself writes to every log directory.
_OF_YARN: Final = frozenset({"directory.info", "launch_container.sh", "prelaunch.out", "prelaunch.err"})

#: Output of the process that an application's master starts.
_OF_THE_DRIVER: Final = "application.driver.log"


class _Unknown(Unavailable):
    """The server answers, but does not have what was asked for."""


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


def collect(client: Any, application: str, tracking_url: str, container: str | None, lines: int) -> list[Log]:
    """Return the ends of all logs of the application's containers, the master's first.

    ``tracking_url`` is the one in the application's report, empty if there is none. A node that does not answer (it may
    be dead) is represented by the error in place of its logs. Of an application that has ended, the NodeManagers list
    no containers; those of its masters are known to the ResourceManager, and `container_logs` asks for others by their
    ids.
    """
    found: list[Log] = []
    nodes = client.get_nodes()
    for node in nodes:
        found += _of_node(node.http_address, application, container, lines)
    listed = {each.container for each in found}
    for master, address in _masters(tracking_url, application):
        if master not in listed and container in (None, master):
            found += _of_container(address, master, lines)
    of_this = f"_{application.removeprefix('application_')}_"
    if container is not None and of_this in container and not found:
        # A container that has ended is not listed, but the node that has its log still returns it.
        found = [log for node in nodes for log in _of_container(node.http_address, container, lines)]
    return masters_first(found)


def container_logs(client: Any, hosts: Mapping[str, str], lines: int) -> list[Log]:
    """Return the ends of the logs of containers, by the hosts where they ran, as far as those still have them."""
    addresses = {node.host: node.http_address for node in client.get_nodes()}
    return [
        log
        for container, host in hosts.items()
        if host in addresses
        for log in _of_container(addresses[host], container, lines)
    ]


def masters_first(logs: Iterable[Log]) -> list[Log]:
    """Return logs by container, the master's first."""
    return sorted(logs, key=lambda each: ("_000001" not in each.container[-7:], each.container, each.name))


def _of_node(address: str, application: str, container: str | None, lines: int) -> list[Log]:
    url = f"http://{address}/ws/v1/node/apps/{application}"
    try:
        present = _app(_get(url), url).get("containerids") or ()
    except _Unknown:
        return []  # it never ran a container of this application
    except Unavailable as error:
        return [Log("-", address, "-", str(error))]
    wanted = [each for each in present if container in (None, each)]
    return [log for each in wanted for log in _of_container(address, each, lines)]


def _app(answer: bytes, url: str) -> dict[str, Any]:
    """Return what a NodeManager says about an application; raises `Unavailable` if the answer is not one of its own."""
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # A page on which people log in, for example.
        raise Unavailable(f"{url}: not a list of containers")
    return found.get("app") or {}


def master_output(tracking_url: str, application: str, lines: int) -> str:
    """Return the end of the output of an application's last master; empty if it is not available.

    ``tracking_url`` is the one in the application's report; its address is the ResourceManager's.
    """
    for container, address in reversed(_masters(tracking_url, application)):
        for log in _of_container(address, container, lines):
            if log.name == _OF_THE_DRIVER:
                return log.text
    return ""


def last_lines(node: str, container: str) -> tuple[str, ...]:
    """Return the last `_LAST_LINES` lines of output of a container's processes; none if they are not available."""
    return tuple(
        line for log in _of_container(node, container, _LAST_LINES) for line in log.text.splitlines()
    )


def _masters(tracking_url: str, application: str) -> list[tuple[str, str]]:
    """Return container and NodeManager's address of each attempt's master, the first attempt first.

    Empty if the ResourceManager's pages cannot be read.
    """
    scheme, _, rest = tracking_url.partition("://")
    if scheme != "http":
        return []
    try:
        url = f"http://{rest.partition('/')[0]}/ws/v1/cluster/apps/{application}/appattempts"
        found = json.loads(_get(url)).get("appAttempts") or {}
    except (Unavailable, ValueError):
        return []
    attempts = sorted(found.get("appAttempt", ()), key=lambda each: each["id"])
    known = ((each.get("containerId"), each.get("nodeHttpAddress")) for each in attempts)
    return [(str(container), str(address)) for container, address in known if container and address]


def _of_container(address: str, container: str, lines: int) -> list[Log]:
    """Return the ends of one container's logs; none if its NodeManager does not have them (any more)."""
    found: dict[str, list[str]] = {}
    try:
        infos = json.loads(_get(f"http://{address}/ws/v1/node/containers/{container}/logs"))
        sizes = {str(each["fileName"]): int(each["fileSize"] or 0) for each in _files(infos)}
        # What was written before a file was rotated comes before its present content.
        for name in sorted(sizes, key=lambda each: not each.endswith(FORMER)):
            if not sizes[name] or name in _OF_YARN:
                continue
            size = min(sizes[name], lines * _BYTES_PER_LINE)
            text = _get(f"http://{address}/ws/v1/node/containerlogs/{container}/{name}?size=-{size}")
            # YARN frames the text with a header and a footer of its own.
            kept = (
                text.decode(errors="replace").partition("LogContents:\n")[2].partition("\nEnd of LogType:")[0]
            )
            found.setdefault(name.removesuffix(FORMER), []).extend(kept.splitlines())
    except (Unavailable, ValueError):
        pass
    return [Log(container, address, name, "\n".join(text[-lines:])) for name, text in sorted(found.items())]


def _files(document: Any) -> list[dict[str, Any]]:
    """Return the file entries, whichever format of the list this Hadoop uses."""
    infos = document if isinstance(document, list) else [document.get("containerLogsInfo", document)]
    files: list[dict[str, Any]] = []
    for each in infos:
        entry = each.get("containerLogsInfo", each) if isinstance(each, dict) else {}
        inner = entry.get("containerLogInfo", [])
        files += inner if isinstance(inner, list) else [inner]
    return files


def _get(url: str) -> bytes:
    """Return a server's answer; a server that has handed over aggregated logs redirects to their present holder."""
    for _ in range(_MOST_REDIRECTS):
        status, body, location = _answer(url)
        if status not in _REDIRECTS:
            return body
        if not location.startswith("http://"):
            raise Unavailable(f"{url}: redirects to {location or 'nowhere'}, not to http")
        url = location
    raise Unavailable(f"{url}: too many redirects")


def _answer(url: str) -> tuple[int, bytes, str]:
    """Return status, body and redirect address; raises `Unavailable` for a status other than success or redirect."""
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
    if response.status not in (http.client.OK, *_REDIRECTS):
        kind = _Unknown if response.status == http.client.NOT_FOUND else Unavailable
        raise kind(f"{url}: {response.status} {response.reason}")
    return response.status, body, response.headers.get("Location", "")
