"""The same-host check: an active and a standby of one task never share a host (SEP-23, Invariant 1)."""

from __future__ import annotations

from collections.abc import Iterable

from locality.question import Sibling


def closed_by(siblings: Iterable[Sibling]) -> dict[str, str]:
    """Return each host that holds one of ``siblings`` → the reason why it may not take another copy."""
    closed: dict[str, str] = {}
    for each in sorted(siblings, key=lambda each: each.label):
        closed.setdefault(each.host.name, f"holds {each.label}, a copy of the same tasks")
    return closed
