"""When a new attempt of a cell ends for one on another host, and how many attempts there are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from appmaster.__main__ import _enter_pool
from appmaster.cli.launch.application import granted_attempts
from appmaster.cli.shared.hadoop_conf import read
from appmaster.leadership.own_cell import Attempt, Superseded, cell_sharing_host, enter
from appmaster.leadership.yarn_ids import number_of
from appmaster.records import CellRecord
from standby.cluster import ClusterConfig
from standby.errors import BadConfiguration
from tests.fakes.clock import held


def attempt(number: int, most: int = 4) -> Attempt:
    return Attempt(2, "application_17_0002", f"container_17_0002_{number:02}", "h1:70", most)


def cell(number: int, address: str) -> CellRecord:
    return CellRecord(f"application_17_{number:04}", attempt=f"container_17_{number:04}_01", address=address)


@pytest.mark.parametrize(
    ("mine", "other", "alive", "found"),
    [
        pytest.param(attempt(2), "h1:71", {"h1", "h2"}, 1, id="the same host"),
        pytest.param(attempt(2), "h2:70", {"h1", "h2"}, None, id="another host"),
        pytest.param(attempt(2), "", {"h1", "h2"}, None, id="a cell that has not begun"),
        pytest.param(attempt(1), "h1:71", {"h1", "h2"}, None, id="the submit judges the first attempt"),
        pytest.param(attempt(3), "h1:71", {"h1", "h2"}, None, id="the last ones are kept"),
        pytest.param(attempt(2, 2), "h1:71", {"h1", "h2"}, None, id="YARN makes two"),
        pytest.param(attempt(7, 9), "h1:71", {"h1", "h2"}, 1, id="YARN makes more"),
        pytest.param(attempt(2), "h1:71", {"h1"}, None, id="no other host is known to live"),
        pytest.param(attempt(2), "h1:71", set(), None, id="no host is known to live"),
    ],
)
def test_a_new_attempt_makes_way_when_that_may_help(
    mine: Attempt, other: str, alive: set[str], found: int | None
) -> None:
    cells = {1: cell(1, other), 2: cell(2, "h1:60")}
    assert cell_sharing_host(mine, cells, lambda: alive, lambda _: False) == found


def test_a_dead_master_is_no_obstacle() -> None:
    assert number_of("container_e01_1700000000000_0002_11") == 11, "attempts are counted by YARN"
    asked: list[str] = []

    def is_dead(address: str) -> bool:
        asked.append(address)
        return True

    assert (
        cell_sharing_host(attempt(2), {1: cell(1, "h1:71"), 3: cell(3, "h2:72")}, lambda: {"h2"}, is_dead)
        is None
    )
    assert asked == ["h1:71"]


def test_the_submit_has_a_minute_to_record_its_application() -> None:
    clock = held(threading.current_thread().name)
    ports: Any = SimpleNamespace(read=lambda number: CellRecord(""))
    begun = clock.monotonic()
    with pytest.raises(Superseded, match="application_17_0002 was not recorded as cell 2"):
        enter(ports, ports, attempt(2), clock)
    assert clock.monotonic() - begun == pytest.approx(60, abs=0.1)


def test_another_cell_whose_record_is_invalid_ends_no_candidate() -> None:
    mine = CellRecord("application_17_0002", attempt="container_17_0002_02")
    completed: list[CellRecord | None] = []

    def change(_: int, edit: Callable[[CellRecord], CellRecord | None]) -> bool:
        completed.append(edit(mine))
        return True

    cells: Any = SimpleNamespace(
        read=lambda _: mine,
        read_each=lambda: {1: BadConfiguration("/cells/1: not a record"), 2: mine},
        change=change,
    )
    enter(cells, cells, attempt(3), held())
    assert completed == [replace(mine, attempt="container_17_0002_03", address="h1:70")]


MOST = "yarn.resourcemanager.am.max-attempts"


def test_yarn_makes_no_more_attempts_than_it_grants(tmp_path: Path) -> None:
    for settings, granted, why in (
        ({}, 2, "YARN's default"),
        ({MOST: "3"}, 3, "fewer than asked for"),
        ({MOST: "10"}, 4, "more than asked for"),
        # Skein knows nothing of the global bound.
        ({MOST: " 3 ", "yarn.resourcemanager.am.global.max-attempts": "10"}, 3, "of the application's bound"),
        ({MOST: "${attempts}"}, 2, "not a number"),
    ):
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        )
        (tmp_path / "yarn-site.xml").write_text(f"<configuration>{properties}</configuration>")
        assert granted_attempts(read([tmp_path], {}), 4) == granted, why


def test_a_master_of_a_pool_writes_nothing_into_a_cluster_of_yarn() -> None:
    """Not even where its cell is missing: one record of a pool hides the cells from every command."""
    written: list[str] = []
    yarn = {2: CellRecord("application_17_0002")}
    cells = SimpleNamespace(
        read_all=lambda: yarn, claim=lambda *_: written.append("cell"), put=lambda *_: written.append("cell")
    )
    tree = SimpleNamespace(make_way=lambda: written.append("root"), prepare=lambda: written.append("tree"))
    zookeeper: Any = SimpleNamespace(cells=cells, tree=tree)
    with pytest.raises(BadConfiguration, match="c runs on YARN as application_17_0002; give the pool a name"):
        _enter_pool(ClusterConfig("c", "zk:1", cell=1, is_pool=True), zookeeper)
    assert written == []
