"""The same-host check: an active and a standby of one task never share a host (SEP-23, Invariant 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from locality.question import Sibling
from standby.model import SlotId


def siblings_on(slot: SlotId, host: str, placements: Mapping[SlotId, str]) -> tuple[SlotId, ...]:
    """Return the other copies of ``slot``'s processor that ``placements`` has on ``host``.

    ``placements`` maps every slot that is bound, or about to be, to the host it is on (``NM_HOST``).
    An empty result means that the check passes.
    """
    return tuple(
        other
        for other, where in placements.items()
        if where == host and other != slot and other.processor == slot.processor
    )


def closed_by(siblings: Iterable[Sibling]) -> dict[str, str]:
    """Return each host that holds one of ``siblings`` → the reason why it may take no further copy."""
    closed: dict[str, str] = {}
    for each in sorted(siblings, key=lambda each: each.label):
        closed.setdefault(each.host.name, f"holds {each.label}, a copy of the same tasks")
    return closed
