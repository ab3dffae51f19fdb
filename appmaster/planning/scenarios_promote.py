"""What happens in every combination under policy ``promote``, where it differs. Pure.

`appmaster.planning.scenarios` says what is in these tables, and which test plays them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from appmaster.planning.scenario import Counted, Flight, Story, Trigger, told

PROMOTE: Final[Mapping[Flight, Mapping[Trigger, Story]]] = {
    Flight.NOTHING: {
        Trigger.ACTIVE_PROCESS: told("lost failover begun done ask bind", Counted.ACTIVE, Counted.FAILOVER),
        Trigger.ACTIVE_HOST: told(
            "lost failover begun done ask cancel ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost failover begun done release ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.BOTH: told(
            "lost lost ask bind begun without done ask bind", Counted.ACTIVE, Counted.STANDBY, Counted.NOBODY
        ),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost failover begun done ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
    },
    Flight.FIRST_DEPLOY: {
        Trigger.ACTIVE_PROCESS: told(
            "lost failover begun without ask bind done", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.ACTIVE_HOST: told(
            "lost failover begun without ask done cancel ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost failover begun without done release ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.BOTH: told(
            "lost lost ask bind begun without ask bind done", Counted.ACTIVE, Counted.STANDBY, Counted.NOBODY
        ),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost failover begun without ask bind done", Counted.ACTIVE, Counted.RESTORING
        ),
    },
    Flight.FAILOVER: {
        Trigger.ACTIVE_PROCESS: told(
            "lost ask bind begun without ask bind done", Counted.ACTIVE, Counted.NOBODY
        ),
        Trigger.ACTIVE_HOST: told(
            "lost ask ask bind begun without done cancel ask bind", Counted.ACTIVE, Counted.NOBODY
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost release ask ask bind begun without bind done", Counted.ACTIVE, Counted.NOBODY
        ),
        Trigger.PLANNED: told(
            "ask bind done prepare hand-over ask move handed moved release", Counted.HANDOVER
        ),
        Trigger.LEADER: told("ask bind"),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost ask ask bind begun without bind done", Counted.ACTIVE, Counted.NOBODY
        ),
        Trigger.RETURN: told("done"),
    },
    Flight.ANOTHER: {
        Trigger.ACTIVE_PROCESS: told(
            "lost failover begun ask ask bind bind done", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.ACTIVE_HOST: told(
            "lost failover begun ask ask bind done cancel ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost failover begun done ask bind release ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.STANDBY_PROCESS: told("lost ask ask bind bind done", Counted.STANDBY),
        Trigger.STANDBY_HOST: told("lost ask ask bind done cancel ask bind", Counted.STANDBY),
        Trigger.BOTH: told(
            "lost lost ask bind begun without ask ask bind bind done",
            Counted.ACTIVE,
            Counted.STANDBY,
            Counted.NOBODY,
        ),
        Trigger.PLANNED: told(
            "ask bind done prepare hand-over ask move handed moved release", Counted.HANDOVER
        ),
        Trigger.LEADER: told("ask bind"),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost failover begun ask ask bind bind done", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.RETURN: told("done"),
    },
    Flight.PROMOTION: {
        Trigger.ACTIVE_PROCESS: told(
            "lost ask bind begun without ask bind done", Counted.ACTIVE, Counted.NOBODY
        ),
        Trigger.ACTIVE_HOST: told(
            "lost ask ask bind begun without done cancel ask bind", Counted.ACTIVE, Counted.NOBODY
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost release ask ask bind begun without bind done", Counted.ACTIVE, Counted.NOBODY
        ),
        Trigger.PLANNED: told("ask bind prepare hand-over ask move moved release handed", Counted.HANDOVER),
        Trigger.LEADER: told("ask bind"),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost ask ask bind begun without bind done", Counted.ACTIVE, Counted.NOBODY
        ),
        Trigger.RETURN: told("done"),
    },
    Flight.RESTORING: {
        Trigger.ACTIVE_PROCESS: told(
            "lost failover begun without done ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.ACTIVE_HOST: told(
            "lost failover begun without done ask cancel ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost failover begun without done release ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.BOTH: told(
            "lost lost ask bind begun without done ask bind", Counted.ACTIVE, Counted.STANDBY, Counted.NOBODY
        ),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost failover begun without done ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
    },
    Flight.MOVING: {
        Trigger.ACTIVE_PROCESS: told(
            "lost failover begun done ask bind prepare hand-over release handed",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
        Trigger.ACTIVE_HOST: told(
            "lost failover begun done ask prepare hand-over release handed cancel ask release ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost failover begun done prepare hand-over release handed release ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
        Trigger.BOTH: told(
            "lost lost failover begun without done ask bind",
            Counted.ACTIVE,
            Counted.STANDBY,
            Counted.RESTORING,
        ),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost failover begun done ask bind prepare hand-over release handed",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
    },
    Flight.PREPARING: {
        Trigger.ACTIVE_PROCESS: told(
            "lost failover give-up begun done ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.ACTIVE_HOST: told(
            "lost failover give-up begun done ask cancel ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost failover give-up begun done release ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
        Trigger.BOTH: told(
            "give-up lost lost ask bind begun without done ask bind",
            Counted.ACTIVE,
            Counted.STANDBY,
            Counted.NOBODY,
        ),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost failover begun done ask bind", Counted.ACTIVE, Counted.FAILOVER
        ),
    },
    Flight.UPGRADING: {
        Trigger.ACTIVE_PROCESS: told(
            "lost failover begun without done ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.ACTIVE_HOST: told(
            "lost failover begun without done ask cancel ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost failover begun without done release ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
        Trigger.BOTH: told(
            "lost lost ask bind begun without done ask bind", Counted.ACTIVE, Counted.STANDBY, Counted.NOBODY
        ),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost failover begun without done ask bind", Counted.ACTIVE, Counted.RESTORING
        ),
    },
}

#: Mixed containers, three of one active and one standby each. A container's death is an active's and a standby's at
#: once; in all other states it is, task by task, as under ``promote``.
MIXED: Final[Mapping[Flight, Mapping[Trigger, Story]]] = {
    Flight.NOTHING: {
        Trigger.ACTIVE_PROCESS: told(
            "lost failover begun done ask bind bind prepare hand-over handed",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
        Trigger.ACTIVE_HOST: told(
            "lost failover begun done ask cancel bind bind ask move move moved moved prepare "
            "hand-over move handed moved",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost failover begun done release ask bind bind prepare hand-over handed",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
        Trigger.STANDBY_PROCESS: told(
            "lost failover begun done ask bind bind prepare hand-over handed",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
        Trigger.STANDBY_HOST: told(
            "lost failover begun done ask cancel bind bind ask move move moved moved prepare "
            "hand-over handed",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
        Trigger.BOTH: told(
            "lost lost bind begun without failover begun done done ask ask bind bind bind prepare "
            "hand-over handed prepare hand-over move handed moved",
            Counted.ACTIVE,
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.NOBODY,
            Counted.HANDOVER,
            Counted.HANDOVER,
        ),
        Trigger.PLANNED: told(
            "prepare ask move move hand-over handed prepare moved hand-over move handed moved release",
            Counted.HANDOVER,
            Counted.HANDOVER,
        ),
        Trigger.LEADER: told(""),
        Trigger.LEADER_AND_ACTIVE: told(
            "lost failover begun ask bind bind done prepare hand-over handed",
            Counted.ACTIVE,
            Counted.FAILOVER,
            Counted.HANDOVER,
        ),
    },
}
