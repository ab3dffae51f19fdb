"""From what is wanted of a container and what it holds: the orders that are due. Pure.

Level-triggered: the answer depends on where things are, not on what was said before, so it is asked
again after every order and every result, and a settled container gives no orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from standby.replica.lifecycle import ENDED, TAKING_OVER, Order, Replica, Signal
from standby.shared.model import Phase, ReplicaId, Role, Wanted


def reconcile(wanted: Iterable[Wanted], held: Mapping[ReplicaId, Replica]) -> tuple[Order, ...]:
    """Return the orders that bring ``held`` nearer to ``wanted``; replicas that are not wanted first.

    Giving up comes first because a store that moves between two copies must be closed before it is
    opened. What is wanted under an older epoch than a replica's own is ignored (rule `one-way`).
    """
    wishes = {each.replica: each for each in wanted}
    orders = [
        Order(each.id, Signal.REVOKE, each.epoch)
        for each in held.values()
        if each.id not in wishes and each.phase not in (Phase.CLOSING, Phase.CLOSED)
    ]
    for wish in wishes.values():
        orders.extend(_due(wish, held.get(wish.replica)))
    return tuple(orders)


def _due(wish: Wanted, replica: Replica | None) -> Iterator[Order]:
    """Yield the order that one wish calls for now, if any."""
    if replica is None:
        yield Order(wish.replica, Signal.OPEN, wish.epoch, wish.role)
    elif wish.epoch < replica.epoch:
        return
    elif replica.phase in ENDED:
        # The same epoch would end the same way; only the leader's next decision opens it again.
        if wish.epoch > replica.epoch or replica.phase is Phase.CLOSED:
            yield Order(wish.replica, Signal.OPEN, wish.epoch, wish.role)
    elif wish.role is Role.STANDBY:
        if replica.phase in (*TAKING_OVER, Phase.ACTIVE) or _differs(wish, replica):
            yield Order(wish.replica, Signal.DEMOTE, wish.epoch, Role.STANDBY)
    elif replica.phase in (Phase.RESTORING, Phase.TAILING):
        yield Order(wish.replica, Signal.PROMOTE, wish.epoch, Role.ACTIVE)
    elif _differs(wish, replica):
        # For the phases without such a move (opening, closing) this only keeps the newer epoch and role.
        yield Order(wish.replica, Signal.RECLAIM, wish.epoch, Role.ACTIVE)


def _differs(wish: Wanted, replica: Replica) -> bool:
    return wish.epoch != replica.epoch or wish.role is not replica.role
