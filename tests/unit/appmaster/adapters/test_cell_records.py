"""The cells' records as they are read; writing them is tested on a real server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from appmaster.adapters.zookeeper.cells import ZooKeeperCells
from appmaster.records import CellRecord, encode
from standby.errors import BadConfiguration
from standby.shared import naming


class Nodes:
    """A client that reads these nodes below those of the cells."""

    def __init__(self, **nodes: bytes) -> None:
        self._nodes = {naming.cell_path("c", int(name[1:])): data for name, data in nodes.items()}

    def get_children(self, path: str, watch: object) -> list[str]:
        return [*(each.rpartition("/")[2] for each in self._nodes), "notes"]

    def get_async(self, path: str, watch: object) -> Any:
        return SimpleNamespace(get=lambda timeout: (self._nodes[path], SimpleNamespace(version=0)))


def test_an_invalid_record_hides_no_other_cell_and_is_named() -> None:
    first, third = CellRecord("application_1"), CellRecord("application_3")
    cells = ZooKeeperCells(Nodes(_3=encode(third), _2=b"{", _1=encode(first)), "c")
    found = cells.read_each()
    assert list(found) == [1, 2, 3]
    assert (found[1], found[3]) == (first, third)
    assert naming.cell_path("c", 2) in str(found[2])
    # What decides by all cells does not take a cell for absent.
    with pytest.raises(BadConfiguration, match=naming.cell_path("c", 2)):
        cells.read_all()
