"""The combinations that cannot occur, each with its reason; a test shows that their trigger has no target."""

from __future__ import annotations

from typing import Final

from tests.scenarios.words import Flight, LeftOut, Trigger, Under

_ACTIVES_END: Final = (
    Trigger.ACTIVE_PROCESS,
    Trigger.ACTIVE_HOST,
    Trigger.ACTIVE_SILENT,
    Trigger.BOTH,
    Trigger.LEADER_AND_ACTIVE,
    Trigger.STATE,
)
_DISPLACING: Final = (Flight.STOPPING, Flight.RESERVING)


def _but(*flights: Flight) -> tuple[Flight, ...]:
    return tuple(each for each in Flight if each not in flights)


#: What cannot occur, and why: the first line that matches a combination applies.
LEFT_OUT: Final = (
    LeftOut(
        (Flight.ASKING, *_DISPLACING),
        tuple(Trigger),
        "policy `promote` requests no host and displaces no standby before the active is replaced",
        under=(Under.PROMOTE,),
    ),
    LeftOut(_but(Flight.MOVING), (Trigger.FILLED,), "no container is being filled"),
    LeftOut(
        _but(*_DISPLACING), (Trigger.DISPLACED, Trigger.STUCK, Trigger.RESERVED), "no standby is displaced"
    ),
    LeftOut(
        _but(Flight.FAILOVER, Flight.ANOTHER, Flight.PROMOTION, Flight.ASKING, *_DISPLACING),
        (Trigger.RETURN,),
        "no active was considered lost",
    ),
    LeftOut((Flight.RESERVING,), (Trigger.RESERVED,), "the reserved container is not there yet"),
    LeftOut((Flight.RESERVING,), (Trigger.STUCK,), "the standby has stopped"),
    LeftOut((Flight.ASKING, *_DISPLACING), _ACTIVES_END, "the active is lost already"),
    LeftOut((Flight.ASKING,), (Trigger.PLANNED,), "the active is lost already"),
    LeftOut(_DISPLACING, (Trigger.STANDBY_PROCESS,), "the one standby is displaced: it has a separate row"),
    LeftOut(
        (Flight.FAILOVER, Flight.PROMOTION),
        (Trigger.STANDBY_PROCESS, Trigger.STANDBY_HOST, Trigger.BOTH),
        "the one standby takes over or was displaced, and the lost copy is not back; see *another standby left*",
    ),
)


def left_out(flight: Flight, trigger: Trigger, under: Under) -> LeftOut | None:
    """Return why a combination cannot occur; None if it can."""
    return next(
        (
            each
            for each in LEFT_OUT
            if flight in each.flights and trigger in each.triggers and under in each.under
        ),
        None,
    )
