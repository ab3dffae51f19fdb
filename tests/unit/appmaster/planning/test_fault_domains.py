"""What copies on some hosts would be lost with, and between which hosts and cells their job can choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from appmaster.planning.placement.fault_domains import Exposure, FaultDomains, Location, fault_domains_of
from appmaster.planning.state.view import Cell, CellState, ClusterView
from locality.hosts import HostInfo
from tests.unit.appmaster.planning.views import Change, drained, in_racks, of_view, unchanged

#: The Skein AM of cell 1 is on m1, that of cell 2 on h1, that of cell 3 on a host that is not known.
DOMAINS: Final = FaultDomains(("cell", "rack"), {1: "m1", 2: "h1", 3: ""}, {})
BY_RACK: Final = FaultDomains(("rack",), {1: "m1"}, {})

ONE: Final = HostInfo("h1", 1, "/a")

EXPOSED: Mapping[str, tuple[Exposure, FaultDomains, HostInfo]] = {
    "nothing": ((0, 0, 0, 0), DOMAINS, HostInfo("h2", 3, "/b")),
    "a rack": ((0, 0, 1, 0), DOMAINS, HostInfo("h2", 3, "/a")),
    "a cell, with its master": ((1, 1, 0, 1), DOMAINS, HostInfo("h2", 1, "/b")),
    "a host, which is the other cell's master": ((1, 0, 0, 1), DOMAINS, HostInfo("h2", 2, "/b")),
    "a host, and its cell's master": ((1, 1, 1, 2), DOMAINS, ONE),
    "a cell that makes no difference": ((0, 0, 0), BY_RACK, HostInfo("h2", 1, "/b")),
}


def test_what_a_copy_on_h1_of_cell_1_shares_with_another() -> None:
    for case, (exposure, domains, other) in EXPOSED.items():
        assert domains.exposure((ONE, other)) == exposure, case


def test_racks_that_are_not_known_are_not_shared() -> None:
    assert BY_RACK.exposure((HostInfo("h1"), HostInfo("h2"))) == (0, 0, 0)


@pytest.mark.parametrize(
    ("exposure", "better", "named"),
    [
        ((1, 1, 1, 2), (0, 0, 0, 0), "cell 1"),
        ((1, 1, 1, 2), (1, 1, 0, 2), "rack /a"),
        ((1, 0, 1, 2), (0, 0, 1, 0), "h1, m1"),
        ((1, 0, 0, 2), (0, 0, 0, 0), "h1, m1"),
    ],
)
def test_a_reason_names_the_first_of_what_is_shared_no_more(
    exposure: Exposure, better: Exposure, named: str
) -> None:
    assert DOMAINS.reason((ONE, ONE), exposure, better).endswith(f" {named}")


def full(*hosts: str, state: CellState = CellState.UP) -> Change:
    """Have there be a cell 2, which has no room on these hosts."""
    return of_view(cells={2: Cell(2, "a2", hosts, state, 0, full=frozenset(hosts))})


IN_CELL_1: Final = {("h1", 1), ("h2", 1), ("h3", 1), ("h4", 1)}

ALIKE: Mapping[str, tuple[Mapping[tuple[str, ...], set[Location]], Change]] = {
    "all are alike": ({(): IN_CELL_1}, unchanged),
    "not those that are drained": ({(): IN_CELL_1 - {("h4", 1)}}, drained("h4")),
    "those that are full at present as well": ({("1",): IN_CELL_1, ("2",): {("h4", 2)}}, full("h4")),
    "unless they are not known": ({(): IN_CELL_1}, full("gone")),
    "unless their cell is not up": ({(): IN_CELL_1}, full("h4", state=CellState.LOST)),
    "in two racks": (
        {("/a",): {("h1", 1), ("h3", 1)}, ("/b",): {("h2", 1)}},
        in_racks(h1="/a", h2="/b", h3="/a"),
    ),
    "in one rack, or in one that is not known": ({(): {("h1", 1), ("h2", 1)}}, in_racks(h1="/a", h2="")),
}


def test_which_hosts_differ_in_what(whole: ClusterView) -> None:
    for case, (alike, change) in ALIKE.items():
        found = fault_domains_of(change(whole), ("cell", "rack")).alike
        assert {
            value: {(each.name, each.cell) for each in hosts} for value, hosts in found.items()
        } == alike, case
