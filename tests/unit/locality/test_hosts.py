"""Hosts and the table of racks and attributes."""

from __future__ import annotations

import re

import pytest

from locality.hosts import HostInfo, natural, parse_table


def test_names_sort_as_people_sort_them() -> None:
    in_order = ["10.0.0.3", "10.0.0.12", "alpha", "node02", "node2", "node2b", "node10", "rack3-node1"]
    mixed = in_order[::-2] + in_order[::2]
    assert sorted(mixed, key=natural) == in_order


def test_a_host_has_a_value_for_whatever_can_be_spread_over() -> None:
    host = HostInfo("h1", 2, "/r1", {"zone": "süd"})
    assert [host.value(each) for each in ("cell", "rack", "zone", "floor")] == ["2", "/r1", "süd", ""]


def test_the_table_gives_racks_and_attributes() -> None:
    table = parse_table(["h1=/r1", " h2 = /r2 "], ["h1=zone:a", "h1=url:http://x", "h3=zone:b"])
    assert table.host("h1", 2) == HostInfo("h1", 2, "/r1", {"zone": "a", "url": "http://x"})
    assert table.host("h2") == HostInfo("h2", 1, "/r2")
    assert table.host("h3", rack="/default-rack") == HostInfo("h3", attributes={"zone": "b"})
    assert (table.host("h1", rack="/other").rack, table.host("h3", rack="/other").rack) == (
        "/r1",
        "/other",
    ), "what the table says comes before what YARN says"
    twice = parse_table(["h1=/r1", "h1=/r1"], ["h1=zone:a", "h1=zone:a"])
    assert twice.host("h1") == HostInfo("h1", rack="/r1", attributes={"zone": "a"}), "no contradiction"


@pytest.mark.parametrize(
    ("racks", "attributes", "message"),
    [
        (["h1"], [], "yarn.racks: 'h1' is not host=value"),
        (["=/r1"], [], "yarn.racks: '=/r1' is not host=value"),
        (["h1=/r1", "h1=/r2"], [], "yarn.racks: 'h1=/r2': h1 is in /r1 already"),
        ([], ["h1=zone"], "yarn.host.attributes: 'h1=zone' is not host=key:value"),
        ([], ["h1=zone:"], "yarn.host.attributes: 'h1=zone:' is not host=key:value"),
        ([], ["h1=zone:a", "h1=zone:b"], "yarn.host.attributes: 'h1=zone:b': h1 has zone a already"),
        ([], ["h1=rack:/r1"], "rack is not an attribute"),
        (["x"], ["y"], "'x' is not host=value; .*'y' is not host=value"),
    ],
)
def test_a_wrong_entry_is_left_out_with_the_error(
    racks: list[str], attributes: list[str], message: str
) -> None:
    assert re.search(message, "; ".join(parse_table(racks, attributes).wrong))
    good = parse_table([*racks, "h9=/r9"], [*attributes, "h9=zone:a"])
    assert good.host("h9") == HostInfo("h9", 1, "/r9", {"zone": "a"})
