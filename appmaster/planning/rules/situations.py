"""The conditions of the rules in `appmaster.planning.rules.table`, each about one cohort. Pure."""

from __future__ import annotations

from appmaster.planning.placement.turn import Cohort, Turn


def always(turn: Turn, cohort: Cohort) -> bool:
    """Return True: the rule has no condition."""
    return True


def is_withdrawn(turn: Turn, cohort: Cohort) -> bool:
    """Return whether the tasks should run nowhere."""
    return not cohort.job.is_led or is_parked(turn, cohort)


def is_parked(turn: Turn, cohort: Cohort) -> bool:
    """Return whether the processor was withdrawn after too many failures."""
    return bool(cohort.job.model.processors[cohort.processor].parked)


def is_behind(turn: Turn, cohort: Cohort) -> bool:
    """Return whether a container has seen a higher epoch of a task than its record has."""
    ahead = turn.view.ahead
    return bool(ahead) and any(ahead.get(each.record.task, 0) > each.record.epoch for each in cohort.recorded)


def is_ending(turn: Turn, cohort: Cohort) -> bool:
    """Return whether the job is not wanted any more, or was given up."""
    return not cohort.job.is_led


def has_displaced(turn: Turn, cohort: Cohort) -> bool:
    """Return whether a standby is displaced, so that the active may start on its host (policy ``restart``)."""
    return cohort.record.displaced is not None


def promotes(turn: Turn, cohort: Cohort) -> bool:
    """Return whether a standby takes over where it is."""
    return not cohort.restarts


def restarts(turn: Turn, cohort: Cohort) -> bool:
    """Return whether a lost active is started again."""
    return cohort.restarts


def is_new(turn: Turn, cohort: Cohort) -> bool:
    """Return whether no copy has been active yet."""
    return cohort.record.active is None


def is_headless(turn: Turn, cohort: Cohort) -> bool:
    """Return whether the active's container no longer holds a role."""
    active = cohort.record.active
    return active is not None and turn.holder(cohort, active) is None


def restarts_headless(turn: Turn, cohort: Cohort) -> bool:
    """Return whether a lost active is to be started again."""
    return cohort.restarts and is_headless(turn, cohort)


def promotes_headless(turn: Turn, cohort: Cohort) -> bool:
    """Return whether the active is lost where a standby would take over in place."""
    return not cohort.restarts and is_headless(turn, cohort)


def is_moving(turn: Turn, cohort: Cohort) -> bool:
    """Return whether a copy is being filled in another container."""
    return bool(cohort.record.moving)


def is_next_to_move(turn: Turn, cohort: Cohort) -> bool:
    """Return whether the next hand-over that spreads actives is one of this processor."""
    return turn.next_move is not None and turn.next_move.processor == cohort.processor


def is_prepared_for(turn: Turn, cohort: Cohort) -> bool:
    """Return whether a planned hand-over of the processor has begun."""
    return cohort.processor in turn.view.handovers
