"""`standfast drain`: what its exit status says of the hosts, whichever candidate leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from appmaster.cli.clusters import drain
from appmaster.cli.main import main
from standby.errors import Unavailable

EMPTY: Mapping[str, Any] = {
    "leader": {"host": "h9"},
    "hosts": {"h1": {}, "h2": {}},
    "containers": [],
    "tasks": [],
    "requests": [],
    "drained": {"h1": "new disks"},
}

HELD = {**EMPTY, "containers": [{"container": "c1", "host": "h1", "state": "live", "slot": "job/main.0#0"}]}


class Client:
    """A client of a cluster whose leader reports these statuses, the last one for ever; None: no leader."""

    def __init__(self, *statuses: Mapping[str, Any] | None) -> None:
        self.left = list(statuses)
        self.asked: list[tuple[str, str]] = []
        self.hosts: list[str] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def status(self) -> Mapping[str, Any]:
        found = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if found is None:
            raise Unavailable("no leader")
        return found

    def info(self) -> Mapping[str, Any]:
        return {"drained": {"h2": "old disks"}}

    def queue(self, change: str, **arguments: Any) -> str:
        self.asked.append(("queued", change))
        self.hosts = list(arguments["hosts"])
        return "q1"

    def change(self, change: str, **arguments: Any) -> None:
        self.asked.append(("made", change))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return what drains a host, or others, of a client's cluster."""

    def drained(client: Client, *more: str) -> int:
        monkeypatch.setattr(drain, "ClusterClient", lambda *_: client)
        where = ("--cluster", "c", "--zookeeper", "zk:2181")
        return main(["drain", *(more or ("h1", "--timeout", "0")), *where])

    return drained


def test_a_host_is_empty_when_a_leader_says_so(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client(EMPTY)
    assert (run(client), client.asked) == (0, [("made", "drain")])
    client = Client(None)
    assert (run(client), client.asked) == (1, [("queued", "drain")])
    assert "q1" in capsys.readouterr().err
    for client, arguments, status in (
        (Client(None), ("h1", "--no-wait"), 0),
        (Client(HELD), ("h1", "--no-wait"), 0),
        (Client(None, EMPTY), ("h1", "--timeout", "60"), 0),
        (Client(None, EMPTY), ("h3", "--timeout", "60"), 2),
    ):
        assert run(client, *arguments) == status, arguments
    assert "h3: not a host of this cluster" in capsys.readouterr().err


def test_a_drain_that_is_refused_after_it_was_queued_is_undone(run: Callable[..., int]) -> None:
    """Without a leader nobody knows the hosts; what was drained before stays so."""
    client = Client(None, EMPTY)
    assert run(client, "h1", "h2", "h3", "--timeout", "60") == 2
    assert (client.asked, client.hosts) == ([("queued", "drain"), ("queued", "admit")], ["h1", "h3"])
