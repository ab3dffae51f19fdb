"""Where a processor copy should go: filters, then ranks, each with its reason. Pure.

The order is Nomad's: first what may not be, then what is best. Holds state → preferred → least
loaded → name, so that the same view always gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from locality.samehost import siblings_on
from standby.model import SlotId


@dataclass(frozen=True, slots=True)
class Candidate:
    """One host considered for a slot."""

    host: str
    reason: str
    """Why it is ranked where it is, or why it was refused; for the log and for people."""
    is_allowed: bool = True
    load: int = 0


def rank_hosts(
    slot: SlotId,
    hosts: Iterable[str],
    placements: Mapping[SlotId, str],
    *,
    preferred: str | None,
    avoided: Mapping[str, str],
) -> tuple[Candidate, ...]:
    """Return every host with its verdict, best first, refused ones last.

    ``preferred`` is the host where the slot's state lies (its last one), ``avoided`` maps hosts that
    are not to be asked now to the reason. ``placements`` as for `siblings_on`.
    """
    load: dict[str, int] = {}
    for where in placements.values():
        load[where] = load.get(where, 0) + 1
    # A standby is best kept away from hosts that already carry another copy's load, and an active from
    # other actives: both follow from the least number of slots, copies of the same number weighing more.
    same_copy: dict[str, int] = {}
    for other, where in placements.items():
        if other.copy == slot.copy:
            same_copy[where] = same_copy.get(where, 0) + 1

    verdicts: list[tuple[tuple[int, int, int, int, str], Candidate]] = []
    for host in hosts:
        sharing = siblings_on(slot, host, placements)
        count = load.get(host, 0)
        if sharing:
            rank = 3
            candidate = Candidate(
                host, f"holds {sharing[0]}, a copy of the same tasks", is_allowed=False, load=count
            )
        elif host in avoided:
            rank = 2
            candidate = Candidate(host, avoided[host], is_allowed=False, load=count)
        elif host == preferred:
            rank = 0
            candidate = Candidate(host, "holds its state", load=count)
        else:
            rank = 1
            candidate = Candidate(host, f"carries {count} copies", load=count)
        verdicts.append(((rank, count, same_copy.get(host, 0), _numeric(host), host), candidate))
    return tuple(candidate for _, candidate in sorted(verdicts, key=lambda each: each[0]))


def _numeric(host: str) -> int:
    """Return the number formed by the host's digits, so that node2 comes before node10."""
    digits = "".join(each for each in host if each.isdigit())
    return int(digits) if digits else 0
