"""The list of a pool: what is said of each process, with and without a leader."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from appmaster.cli.clusters import nodes
from appmaster.cli.main import main
from appmaster.leadership.ports import PoolMember
from appmaster.records import CellRecord
from standby.errors import Unavailable
from standby.shared.model import NodeOffer
from standby.shared.records import MemberRecord
from standby.shared.wire import PROTOCOL
from tests.fakes.pool import waiting

OFFER = NodeOffer("gpu", 4_096, 2, 16, {"zone": "a", "rack": "/r1"})
WAITS = replace(waiting("h1", "a", offer=OFFER), since_ms=1_700_000_000_000)
CLAIMED = replace(waiting("h1", "b"), claim="1-1", job="flights")
LEAVES = replace(waiting("h2", "c"), claim="1-2", job="flights")
GIVEN_BACK = replace(waiting("h2", "d"), claim="1-3", is_released=True, job="orders")
FOREIGN = waiting("h3", "e", protocol=PROTOCOL + 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a cluster as its commands find it: its processes, and what its leader knows."""
    found = SimpleNamespace(members=[WAITS, CLAIMED, LEAVES, GIVEN_BACK, FOREIGN], is_pool=True, is_led=True)

    def status() -> dict[str, Any]:
        if not found.is_led:
            raise Unavailable("no answer")
        known = [
            {"container": LEAVES.container, "leaving": True},
            {"container": CLAIMED.container, "leaving": False},
        ]
        return {"containers": known}

    def read(names: object) -> dict[str, PoolMember]:
        return {each.container: PoolMember(each, 0) for each in found.members}

    zookeeper = SimpleNamespace(
        tree=SimpleNamespace(exists=lambda: True),
        cells=SimpleNamespace(read_each=lambda: {1: CellRecord("", is_pool=found.is_pool)}),
        pool=SimpleNamespace(names=frozenset, read=read),
    )
    monkeypatch.setattr(nodes, "access_to", lambda name: None)
    monkeypatch.setattr(nodes, "ZooKeeper", lambda *_, **__: nullcontext(zookeeper))
    monkeypatch.setattr(nodes, "ClusterClient", lambda *_: nullcontext(SimpleNamespace(status=status)))
    return found


COMMAND = ["nodes", "--cluster", "prod", "--zookeeper", "z:1"]


@pytest.mark.parametrize("is_led", [True, False])
def test_every_process_is_listed_with_what_it_does_also_without_a_leader(
    cluster: SimpleNamespace, capsys: pytest.CaptureFixture[str], *, is_led: bool
) -> None:
    cluster.is_led = is_led
    assert main([*COMMAND, "--json"]) == 0
    found = {each["process"]: each for each in json.loads(capsys.readouterr().out)}

    def said(record: MemberRecord) -> tuple[object, ...]:
        each = found[record.container]
        return each["host"], each["state"], each["job"]

    assert said(WAITS) == ("h1", "waiting", None)
    assert said(CLAIMED) == ("h1", "claimed", "flights")
    assert said(LEAVES) == ("h2", "leaving" if is_led else "claimed", "flights")
    assert said(GIVEN_BACK) == ("h2", "given back", "orders")
    assert said(FOREIGN) == ("h3", "other version", None)
    full = found[WAITS.container]
    assert [full[each] for each in ("group", "memory_mb", "cores", "tasks", "attributes", "since_ms")] == [
        *("gpu", 4_096, 2, 16, {"zone": "a", "rack": "/r1"}, 1_700_000_000_000)
    ]
    assert main(COMMAND) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    (line,) = (each for each in lines if WAITS.container in each)
    assert " gpu " in line
    assert " 4096 MiB " in line
    assert " rack=/r1 zone=a " in line


def test_an_empty_pool_is_not_taken_for_a_cluster_on_yarn(
    cluster: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.members = []
    assert main([*COMMAND, "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []
    cluster.is_pool = False
    assert main(COMMAND) == 2
    assert "see `standfast cells`" in capsys.readouterr().err
