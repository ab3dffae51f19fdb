"""Who fails while what is in flight: what happens in every combination, as literal data. Pure.

docs/failover.md shows it. One test brings a cluster into each row's state, pulls the trigger, and compares what the
leader decides, tells and counts with the row, word by word; another shows that nothing can be hit in what is left out.
One standby (where nothing else is said), and hosts enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from appmaster.planning.scenario import Counted, Flight, LeftOut, Scenario, Story, Trigger, Under, told
from appmaster.planning.scenarios_promote import MIXED, PROMOTE
from appmaster.planning.scenarios_restart import RESTART

_ACTIVES_END: Final = (
    Trigger.ACTIVE_PROCESS,
    Trigger.ACTIVE_HOST,
    Trigger.ACTIVE_SILENT,
    Trigger.BOTH,
    Trigger.LEADER_AND_ACTIVE,
)
_DISPLACING: Final = (Flight.STOPPING, Flight.RESERVING)

_Table = Mapping[Flight, Mapping[Trigger, Story]]


def _but(*flights: Flight) -> tuple[Flight, ...]:
    return tuple(each for each in Flight if each not in flights)


#: What is the same under both policies.
EITHER: Final[_Table] = {
    Flight.NOTHING: {
        Trigger.STANDBY_PROCESS: told("lost ask bind", Counted.STANDBY),
        Trigger.STANDBY_HOST: told("lost ask cancel ask bind", Counted.STANDBY),
        Trigger.PLANNED: told("prepare hand-over ask move handed moved release", Counted.HANDOVER),
        Trigger.LEADER: told(""),
    },
    Flight.FIRST_DEPLOY: {
        Trigger.STANDBY_PROCESS: told("lost ask bind", Counted.STANDBY),
        Trigger.STANDBY_HOST: told("lost ask cancel ask bind", Counted.STANDBY),
        Trigger.PLANNED: told("prepare hand-over ask move handed moved release", Counted.HANDOVER),
        Trigger.LEADER: told(""),
    },
    Flight.RESTORING: {
        Trigger.STANDBY_PROCESS: told("lost ask bind", Counted.STANDBY),
        Trigger.STANDBY_HOST: told("lost ask bind", Counted.STANDBY),
        Trigger.PLANNED: told("prepare hand-over ask move handed moved release", Counted.HANDOVER),
        Trigger.LEADER: told(""),
    },
    Flight.MOVING: {
        Trigger.STANDBY_PROCESS: told("lost bind", Counted.STANDBY),
        Trigger.STANDBY_HOST: told("lost bind", Counted.STANDBY),
        Trigger.PLANNED: told(
            "moved prepare release hand-over ask move handed moved release", Counted.HANDOVER
        ),
        Trigger.LEADER: told("moved release"),
        Trigger.FILLED: told("lost stay ask move moved release", Counted.STANDBY),
    },
    Flight.PREPARING: {
        Trigger.STANDBY_PROCESS: told("give-up lost ask bind", Counted.STANDBY),
        Trigger.STANDBY_HOST: told("lost give-up ask cancel ask bind", Counted.STANDBY),
        Trigger.PLANNED: told("hand-over ask move handed moved release", Counted.HANDOVER),
        Trigger.LEADER: told(""),
    },
    Flight.UPGRADING: {
        Trigger.STANDBY_PROCESS: told(
            "lost ask bind prepare hand-over drop release ask bind handed",
            Counted.STANDBY,
            Counted.HANDOVER,
        ),
        Trigger.STANDBY_HOST: told(
            "lost ask cancel ask bind prepare hand-over drop release ask bind handed",
            Counted.STANDBY,
            Counted.HANDOVER,
        ),
        Trigger.PLANNED: told("prepare hand-over drop release ask bind handed", Counted.HANDOVER),
        Trigger.LEADER: told("prepare hand-over drop ask bind release handed", Counted.HANDOVER),
    },
    Flight.UNDEPLOYING: {
        Trigger.ACTIVE_PROCESS: told("lost fenced exit", Counted.IDLE),
        Trigger.ACTIVE_HOST: told("lost fenced exit", Counted.IDLE),
        Trigger.ACTIVE_SILENT: told("lost fenced exit release", Counted.IDLE),
        Trigger.STANDBY_PROCESS: told("lost fenced exit", Counted.IDLE),
        Trigger.STANDBY_HOST: told("lost fenced exit", Counted.IDLE),
        Trigger.BOTH: told("lost lost fenced", Counted.IDLE, Counted.IDLE),
        Trigger.PLANNED: told("fenced exit exit"),
        Trigger.LEADER: told("fence fenced exit exit"),
        Trigger.LEADER_AND_ACTIVE: told("fence fenced exit"),
    },
}

#: What cannot be, and why: the first line that fits a combination speaks for it.
LEFT_OUT: Final = (
    LeftOut(
        (Flight.ASKING, *_DISPLACING),
        tuple(Trigger),
        "policy `promote` asks for no host and has no standby make way before the active is replaced",
        under=(Under.PROMOTE,),
    ),
    LeftOut(_but(Flight.MOVING), (Trigger.FILLED,), "no container is being filled"),
    LeftOut(_but(*_DISPLACING), (Trigger.DISPLACED, Trigger.STUCK, Trigger.RESERVED), "no standby makes way"),
    LeftOut(
        _but(Flight.FAILOVER, Flight.ANOTHER, Flight.PROMOTION, Flight.ASKING, *_DISPLACING),
        (Trigger.RETURN,),
        "no active was taken for lost",
    ),
    LeftOut((Flight.RESERVING,), (Trigger.RESERVED,), "the reserved container is not there yet"),
    LeftOut((Flight.RESERVING,), (Trigger.STUCK,), "the standby has stopped"),
    LeftOut((Flight.ASKING, *_DISPLACING), _ACTIVES_END, "the active is lost already"),
    LeftOut((Flight.ASKING,), (Trigger.PLANNED,), "the active is lost already"),
    LeftOut(_DISPLACING, (Trigger.STANDBY_PROCESS,), "the one standby makes way: it has a row of its own"),
    LeftOut(
        (Flight.FAILOVER, Flight.PROMOTION),
        (Trigger.STANDBY_PROCESS, Trigger.STANDBY_HOST, Trigger.BOTH),
        "the one standby takes over or has made way, and the lost copy is not back; see *another standby left*",
    ),
)


def _rows(under: Under, table: _Table) -> Iterator[Scenario]:
    for flight, stories in table.items():
        for trigger, story in stories.items():
            yield Scenario(flight, trigger, under, story)


#: Every row.
SCENARIOS: Final[tuple[Scenario, ...]] = (
    *_rows(Under.EITHER, EITHER),
    *_rows(Under.PROMOTE, PROMOTE),
    *_rows(Under.RESTART, RESTART),
    *_rows(Under.MIXED, MIXED),
)
