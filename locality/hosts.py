"""Hosts and their locations: cell, rack, attributes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

#: YARN's answer for every host if no topology is configured.
UNKNOWN_RACK: Final = "/default-rack"

_DIGITS: Final = re.compile(r"([0-9]+)")

#: Texts and numbers alternate, then the name itself follows: "node01" and "node1" are two hosts.
NaturalOrder = tuple[tuple[str | int, ...], str]


def natural(name: str) -> NaturalOrder:
    """Return a sort key that orders host names as people do: node2 before node10."""
    # Splitting at a group always gives text, digits, text …, so that elements of the same type are compared.
    return tuple(int(part) if at % 2 else part for at, part in enumerate(_DIGITS.split(name))), name


@dataclass(frozen=True, slots=True)
class HostInfo:
    """A host for the rules. A host that can be requested from several cells has one entry for each of them."""

    name: str
    """``NM_HOST``: the only identity of a host."""
    cell: int = 1
    rack: str = ""
    """Empty: not known; the rack then counts as a separate one."""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    master_of: int = 0
    """Another cell that has its Skein AM here, and is lost with the host; 0: none."""
    order: NaturalOrder = field(init=False, repr=False, compare=False)
    """`natural` of the name, computed once because every judgement uses it."""

    place: tuple[int, str] = field(init=False, repr=False, compare=False)
    """Cell and rack, by which hosts are compared a thousand times in a turn."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", natural(self.name))
        object.__setattr__(self, "place", (self.cell, self.rack))

    def value(self, what: str) -> str:
        """Return the host's ``cell``, ``rack``, or the attribute of that name; empty if it is not known."""
        if what == "cell":
            return str(self.cell)
        if what == "rack":
            return self.rack
        return self.attributes.get(what, "")


@dataclass(frozen=True, slots=True)
class HostTable:
    """What the configuration says about hosts."""

    racks: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    """Each entry that is not in the table, with its key and the error."""

    def host(self, name: str, cell: int = 1, rack: str = "") -> HostInfo:
        """Return the host; ``rack`` is YARN's value, which is used if the table has none."""
        known = "" if rack == UNKNOWN_RACK else rack
        return HostInfo(name, cell, self.racks.get(name, known), self.attributes.get(name, {}))


def described_by(attributes: Mapping[str, str], host: HostInfo) -> HostInfo:
    """Return a host with the attributes that a node of a pool says of it; those that are known already stay.

    The attribute ``rack`` is its rack.
    """
    own = {key: value for key, value in attributes.items() if key != "rack"}
    return replace(host, rack=host.rack or attributes.get("rack", ""), attributes={**own, **host.attributes})


def parse_table(racks: Sequence[str], attributes: Sequence[str]) -> HostTable:
    """Return the table in ``yarn.racks`` (``host=/rack``) and ``yarn.host.attributes`` (``host=key:value``).

    A host may have several attributes, each in a separate entry. An entry that is malformed, or that contradicts an
    earlier one, is left out.
    """
    wrong: list[str] = []
    found = _racks(racks, wrong), _attributes(attributes, wrong)
    return HostTable(*found, tuple(wrong))


def _racks(entries: Sequence[str], wrong: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry, host, rack in _parted("yarn.racks", entries, wrong):
        if found.setdefault(host, rack) != rack:
            wrong.append(f"yarn.racks: {entry!r}: {host} is in {found[host]} already")
    return found


def _attributes(entries: Sequence[str], wrong: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for entry, host, attribute in _parted("yarn.host.attributes", entries, wrong):
        key, _, value = (each.strip() for each in attribute.partition(":"))
        if not (key and value):
            wrong.append(f"yarn.host.attributes: {entry!r} is not host=key:value")
        elif key in ("cell", "rack"):
            wrong.append(f"yarn.host.attributes: {entry!r}: {key} is not an attribute; the name is reserved")
        elif found.setdefault(host, {}).setdefault(key, value) != value:
            wrong.append(f"yarn.host.attributes: {entry!r}: {host} has {key} {found[host][key]} already")
    return found


def _parted(name: str, entries: Sequence[str], wrong: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each entry with its host and its value."""
    for entry in entries:
        host, _, value = (each.strip() for each in entry.partition("="))
        if host and value:
            yield entry, host, value
        else:
            wrong.append(f"{name}: {entry!r} is not host=value")
