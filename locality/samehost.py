"""The same-host check: an active and a standby of one task never share a host (SEP-23, Invariant 1)."""

from __future__ import annotations

from collections.abc import Mapping

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
