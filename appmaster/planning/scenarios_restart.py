"""What happens in every combination under policy ``restart``, where it differs. Pure.

`appmaster.planning.scenarios` says what is in these tables, and which test plays them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from appmaster.planning.scenario import Counted, Flight, Story, Trigger, told

RESTART: Final[Mapping[Flight, Mapping[Trigger, Story]]] = {
    Flight.NOTHING: {
        Trigger.ACTIVE_PROCESS: told("lost ask bind begun done", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost ask displace cancel ask stopped failover begun release ask done cancel ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost release ask displace cancel ask stopped failover begun release ask bind done",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.BOTH: told("lost lost ask ask bind begun bind done", Counted.ACTIVE, Counted.STANDBY),
        Trigger.LEADER_AND_ACTIVE: told("lost ask bind begun done", Counted.ACTIVE),
    },
    Flight.FIRST_DEPLOY: {
        Trigger.ACTIVE_PROCESS: told("lost ask bind begun done", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost ask displace cancel ask stopped failover begun release ask done cancel ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost release ask displace cancel ask stopped failover begun release ask bind done",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.BOTH: told("lost lost ask ask bind begun bind done", Counted.ACTIVE, Counted.STANDBY),
        Trigger.LEADER_AND_ACTIVE: told("lost ask bind begun done", Counted.ACTIVE),
    },
    Flight.FAILOVER: {
        Trigger.ACTIVE_PROCESS: told("lost ask bind begun done cancel ask bind", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost ask cancel cancel ask bind begun without done ask bind",
            Counted.ACTIVE,
            Counted.NOBODY,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost cancel release ask bind begun without done ask bind",
            Counted.ACTIVE,
            Counted.NOBODY,
        ),
        Trigger.PLANNED: told(
            "done cancel ask bind prepare hand-over ask move handed moved release",
            Counted.HANDOVER,
        ),
        Trigger.LEADER: told("ask cancel ask bind"),
        Trigger.LEADER_AND_ACTIVE: told("lost ask ask bind begun done cancel ask bind", Counted.ACTIVE),
        Trigger.RETURN: told("bind release done"),
    },
    Flight.ANOTHER: {
        Trigger.ACTIVE_PROCESS: told("lost ask bind begun done cancel ask bind", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost ask cancel displace cancel ask stopped failover begun release ask done ask bind "
            "cancel ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost cancel release ask ask bind displace cancel ask stopped failover begun release ask "
            "bind done",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.STANDBY_PROCESS: told("lost ask bind done cancel ask bind", Counted.STANDBY),
        Trigger.STANDBY_HOST: told("lost ask done cancel cancel ask bind ask bind", Counted.STANDBY),
        Trigger.BOTH: told(
            "lost lost ask ask bind begun bind done cancel ask bind", Counted.ACTIVE, Counted.STANDBY
        ),
        Trigger.PLANNED: told(
            "done prepare hand-over ask bind cancel ask move handed moved release",
            Counted.HANDOVER,
        ),
        Trigger.LEADER: told("ask cancel ask bind"),
        Trigger.LEADER_AND_ACTIVE: told("lost ask ask bind begun done cancel ask bind", Counted.ACTIVE),
        Trigger.RETURN: told("bind release done"),
    },
    Flight.PROMOTION: {
        Trigger.ACTIVE_PROCESS: told("lost ask bind begun done cancel ask bind", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost ask cancel ask bind begun without cancel done ask bind",
            Counted.ACTIVE,
            Counted.NOBODY,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost cancel release ask ask bind begun without bind done",
            Counted.ACTIVE,
            Counted.NOBODY,
        ),
        Trigger.PLANNED: told(
            "done cancel ask bind prepare hand-over ask move handed moved release",
            Counted.HANDOVER,
        ),
        Trigger.LEADER: told("ask cancel ask bind"),
        Trigger.LEADER_AND_ACTIVE: told("lost ask ask bind begun done cancel ask bind", Counted.ACTIVE),
        Trigger.RETURN: told("release done"),
    },
    Flight.RESTORING: {
        Trigger.ACTIVE_PROCESS: told("lost ask bind begun done", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost ask displace cancel ask stopped failover begun release ask done cancel ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost release ask displace cancel ask stopped failover begun release ask bind done",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.BOTH: told("lost lost ask bind begun done ask bind", Counted.ACTIVE, Counted.STANDBY),
        Trigger.LEADER_AND_ACTIVE: told("lost ask bind begun done", Counted.ACTIVE),
    },
    Flight.MOVING: {
        Trigger.ACTIVE_PROCESS: told("lost ask bind begun done moved release", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost ask moved release displace cancel ask stopped failover begun release ask done "
            "cancel ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost moved release release ask displace cancel ask stopped failover begun release ask bind done",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.BOTH: told(
            "lost lost bind begun without done ask bind", Counted.ACTIVE, Counted.STANDBY, Counted.NOBODY
        ),
        Trigger.LEADER_AND_ACTIVE: told("lost ask bind begun done moved release", Counted.ACTIVE),
    },
    Flight.PREPARING: {
        Trigger.ACTIVE_PROCESS: told("lost give-up ask bind begun done", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost give-up ask displace cancel ask stopped failover begun release ask done cancel ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost give-up release ask displace cancel ask stopped failover begun release ask bind done",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.BOTH: told("give-up lost lost ask ask bind begun bind done", Counted.ACTIVE, Counted.STANDBY),
        Trigger.LEADER_AND_ACTIVE: told("lost ask bind begun done", Counted.ACTIVE),
    },
    Flight.ASKING: {
        Trigger.STANDBY_PROCESS: told(
            "lost ask bind begun without done cancel ask bind", Counted.STANDBY, Counted.NOBODY
        ),
        Trigger.STANDBY_HOST: told(
            "lost ask cancel cancel ask bind begun without done ask bind",
            Counted.STANDBY,
            Counted.NOBODY,
        ),
        Trigger.LEADER: told(
            "lost ask displace cancel ask stopped failover begun release ask done cancel ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.RETURN: told(""),
    },
    Flight.STOPPING: {
        Trigger.STANDBY_HOST: told(
            "lost lost ask cancel restore ask ask cancel cancel ask bind begun without done ask bind",
            Counted.STANDBY,
            Counted.IDLE,
            Counted.NOBODY,
        ),
        Trigger.PLANNED: told(
            "release ask cancel restore ask ask bind begun without cancel ask move done moved release",
            Counted.STAYED,
        ),
        Trigger.LEADER: told("stopped failover begun release ask done cancel ask bind", Counted.FAILOVER),
        Trigger.RETURN: told("restore release"),
        Trigger.RESERVED: told(
            "lost ask stopped failover begun release ask done cancel ask bind",
            Counted.IDLE,
            Counted.FAILOVER,
        ),
        Trigger.DISPLACED: told(
            "lost failover begun ask done cancel ask bind", Counted.STANDBY, Counted.FAILOVER
        ),
        Trigger.STUCK: told("release failover begun ask done cancel ask bind", Counted.FAILOVER),
    },
    Flight.RESERVING: {
        Trigger.STANDBY_HOST: told(
            "lost cancel restore ask ask cancel cancel ask bind begun without done ask bind",
            Counted.STANDBY,
            Counted.NOBODY,
        ),
        Trigger.PLANNED: told(
            "cancel restore ask ask bind begun without cancel ask move done moved release",
            Counted.STAYED,
        ),
        Trigger.LEADER: told("ask failover begun exit release ask done cancel ask bind", Counted.FAILOVER),
        Trigger.RETURN: told("restore cancel"),
        Trigger.DISPLACED: told(
            "lost failover begun ask done cancel ask bind", Counted.STANDBY, Counted.FAILOVER
        ),
    },
    Flight.UPGRADING: {
        Trigger.ACTIVE_PROCESS: told("lost ask bind begun done", Counted.ACTIVE),
        Trigger.ACTIVE_HOST: told(
            "lost ask displace cancel ask stopped failover begun release ask done cancel ask bind",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.ACTIVE_SILENT: told(
            "lost release ask displace cancel ask stopped failover begun release ask bind done",
            Counted.ACTIVE,
            Counted.FAILOVER,
        ),
        Trigger.BOTH: told("lost lost ask ask bind begun bind done", Counted.ACTIVE, Counted.STANDBY),
        Trigger.LEADER_AND_ACTIVE: told("lost ask bind begun done", Counted.ACTIVE),
    },
}
