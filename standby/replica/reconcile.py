"""Derives the due orders from what a container should hold and what it holds. Pure.

Level-triggered: the result depends on the current state, not on earlier orders. So it is computed again after every
order and every result, and is empty for a settled container.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from standby.replica.lifecycle import ENDED, TAKING_OVER, Order, Replica, Signal
from standby.shared.model import Phase, ReplicaId, Role, Wanted


def reconcile(wanted: Iterable[Wanted], held: Mapping[ReplicaId, Replica]) -> tuple[Order, ...]:
    """Return the orders that bring ``held`` closer to ``wanted``; unwanted replicas first.

    Releasing comes first because a store that moves between two copies must be closed before it is opened. Wishes of
    an older epoch than the replica's are ignored (rule `one-way`).
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
    """Yield the order that one wish requires now, if any."""
    if replica is None:
        yield Order(wish.replica, Signal.OPEN, wish.epoch, wish.role)
    elif wish.epoch < replica.epoch:
        return
    elif replica.phase in ENDED:
        # The same epoch would end the same way; only the leader's next decision reopens it.
        if wish.epoch > replica.epoch or replica.phase is Phase.CLOSED:
            yield Order(wish.replica, Signal.OPEN, wish.epoch, wish.role)
    elif wish.role is Role.STANDBY:
        if replica.phase in (*TAKING_OVER, Phase.ACTIVE) or _differs(wish, replica):
            yield Order(wish.replica, Signal.DEMOTE, wish.epoch, Role.STANDBY)
    elif replica.phase in (Phase.RESTORING, Phase.TAILING):
        yield Order(wish.replica, Signal.PROMOTE, wish.epoch, Role.ACTIVE)
    elif _differs(wish, replica):
        # In phases without a transition for it (opening, closing), this only records the newer epoch and role.
        yield Order(wish.replica, Signal.RECLAIM, wish.epoch, Role.ACTIVE)


def _differs(wish: Wanted, replica: Replica) -> bool:
    return wish.epoch != replica.epoch or wish.role is not replica.role
