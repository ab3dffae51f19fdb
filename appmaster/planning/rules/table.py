"""All decisions about a processor's tasks, as one ordered table: the first rule that decides something wins. Pure.

`appmaster.planning.rules.deploy` goes through `STAGES` for every processor that is not settled. A rule whose step is
not due yet (it waits for something, and its deadline is not over) decides nothing, and the rules below it are tried.
docs/failover.md is generated from this table; tests run every scenario of tests/scenarios/failover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.rules import failover, follow_reports, moving, placing, planned, rebalance, situations
from appmaster.planning.rules.withdrawal import withdraw
from appmaster.planning.state import counters as m
from appmaster.planning.state.actions import (
    Action,
    DecisionKind,
    ForgetHandover,
    PrepareHandover,
    WriteRecords,
)
from appmaster.planning.state.counters import Counter

#: Returns the decision about a cohort, given all cohorts of its processor; None while it is not due.
Decide = Callable[[Turn, tuple[Cohort, ...], Cohort], Action | None]

#: The kind of a decision, for the page: a change of records, or an action that changes only the view.
Decided = DecisionKind | type[PrepareHandover] | type[ForgetHandover]


@dataclass(frozen=True, slots=True)
class Rule:
    """One situation, the decision made in it, and what comes next."""

    name: str
    when: Callable[[Turn, Cohort], bool]
    situation: str
    """What ``when`` and ``decide`` look for, for the page."""
    decide: Decide
    decides: tuple[Decided, ...]
    deadline: str
    """The field of `PlannerPolicy` that bounds the wait for what follows; empty: there is no wait."""
    comes: str
    """What follows if it happens in time."""
    otherwise: str
    """What follows if it does not."""
    events: tuple[str, ...] = ()
    """Entries of the event log in addition to that of the decision itself."""
    counted: tuple[Counter, ...] = ()
    """The counters that it raises, in addition to the count of decisions."""


@dataclass(frozen=True, slots=True)
class RuleStage:
    """Rules that are tried together: all of them for one cohort, then all of them for the next."""

    name: str
    when: Callable[[Turn, Cohort], bool]
    rules: tuple[Rule, ...]
    is_last: bool = False
    """Whether no later stage is tried for a processor for which this stage's ``when`` holds."""


def _alone(decide: Callable[[Turn, Cohort], Action | None]) -> Decide:
    """Return a decision about one cohort as one that is given all cohorts of the processor."""
    return lambda turn, _, cohort: decide(turn, cohort)


def _together(decide: Callable[[Turn, tuple[Cohort, ...]], Action | None]) -> Decide:
    """Return a decision about a processor as one that is given one of its cohorts: it is the same for each of them."""
    return lambda turn, cohorts, _: decide(turn, cohorts)


#: Every rule, in the order in which they are tried.
STAGES: Final[tuple[RuleStage, ...]] = (
    RuleStage(
        "withdrawn",
        situations.is_withdrawn,
        (
            Rule(
                "undeploy",
                situations.is_ending,
                "the job is not wanted any more, or was given up",
                _alone(withdraw),
                (DecisionKind.UNDEPLOY,),
                deadline="exit_timeout_ms",
                comes="no record has an active: every task is fenced, then containers are told to exit",
                otherwise="a container that does not leave by itself is released",
                events=("fencing_tasks", "tasks_fenced", "container_dismissed"),
            ),
            Rule(
                "park",
                situations.is_parked,
                "the processor failed more often than the job allows, or cannot succeed",
                _alone(withdraw),
                (DecisionKind.PARK,),
                deadline="",
                comes="its containers are given back; a command lets it run again",
                otherwise="",
                events=("processor_parked",),
                counted=(m.PARKED,),
            ),
        ),
        is_last=True,
    ),
    RuleStage(
        "behind",
        situations.is_behind,
        (
            Rule(
                "raise epochs",
                situations.always,
                "a container has seen a higher epoch of a task than is recorded: ZooKeeper's state was lost, or was "
                "restored from an earlier day",
                _alone(follow_reports.raise_epochs),
                (DecisionKind.RAISE,),
                deadline="",
                comes="the epoch is above all that were seen; everything else is judged after that",
                otherwise="",
            ),
        ),
    ),
    RuleStage(
        "active lost",
        failover.is_lost,
        (
            Rule(
                "start where the standby was",
                situations.has_displaced,
                "a standby is displaced, its host is reserved, and its stop is confirmed (step 7)",
                _alone(failover.start_reserved),
                (DecisionKind.FAILOVER,),
                deadline="heartbeat_timeout_ms",
                comes="the new active claims its epoch; the displaced standby is requested anywhere (8)",
                otherwise="it is lost like any other active",
                events=("failover_started", "failover_finished"),
                counted=(m.FAILOVERS,),
            ),
            Rule(
                "restore the standby",
                situations.has_displaced,
                "a standby is displaced, and its host could not be reserved, or the model has no slot for the active "
                "any more",
                _alone(failover.restore_displaced),
                (DecisionKind.RESTORE,),
                deadline="samehost_timeout_ms",
                comes="the standby is in sync again; the active is requested anywhere",
                otherwise="after four times that time, or that of a request if it is longer, a standby may be "
                "displaced again",
            ),
            Rule(
                "promote",
                situations.promotes,
                "policy `promote`, or the lost copy has no slot in the model: another copy lives; the best one "
                "in sync, else the one least behind",
                _alone(failover.promote),
                (DecisionKind.FAILOVER,),
                deadline="restore_delay_ms",
                comes="the new active claims its epoch; the lost copy is created again as a standby",
                otherwise="the lost copy is created again meanwhile; a new active that dies is lost like any other",
                events=("failover_started", "failover_without_standby", "failover_finished"),
                counted=(m.FAILOVERS, m.WITHOUT_STANDBY),
            ),
            Rule(
                "displace",
                situations.restarts,
                "policy `restart`: its own host was not available in time, and a standby lives (steps 2 to 4)",
                _alone(failover.displace),
                (DecisionKind.DISPLACE,),
                deadline="stop_timeout_ms",
                comes="the standby stops (5) while its host is reserved (6): *start where the standby was*",
                otherwise="a standby that does not stop is released, and its death confirms the stop; a "
                "reservation that is not granted: *restore the standby*",
            ),
        ),
    ),
    RuleStage(
        "active stuck",
        failover.is_stuck,
        (
            Rule(
                "promote another",
                situations.always,
                "the active, or the copy about to become it, makes no progress, restores its state or is cut off from "
                "Kafka, and another copy in sync has been in touch with Kafka for as long; or the active has lost its "
                "state, and another copy is in sync; under either policy",
                _alone(failover.promote_another),
                (DecisionKind.FAILOVER,),
                deadline="progress_timeout_ms",
                comes="the new active claims its epoch; the former one continues as a standby, or its container ends "
                "itself if it cannot even stop",
                otherwise="the next copy that could take over is made active, possibly the former one",
                events=("failover_started", "failover_finished"),
                counted=(m.FAILOVERS,),
            ),
        ),
    ),
    RuleStage(
        "hand-over",
        situations.is_prepared_for,
        (
            Rule(
                "hand over",
                situations.always,
                "a planned hand-over was begun",
                _together(planned.carry_on),
                (DecisionKind.HANDOVER, ForgetHandover),
                deadline="prepare_timeout_ms",
                comes="the prepared copy becomes active, the former one continues as a standby",
                otherwise="in sync but not ready: it is handed over nevertheless, unless it only spreads actives; "
                "not in sync for twice that time, or lost: it is given up, and begun again if it is still called for",
                events=("handover_finished", "handover_given_up"),
                counted=(m.HANDOVERS, m.HANDOVERS_GIVEN_UP),
            ),
        ),
    ),
    RuleStage(
        "slots",
        situations.always,
        (
            Rule(
                "restore in vain",
                situations.has_displaced,
                "a standby is displaced, and the active that displaced it is back (a new leader heard it again)",
                _alone(failover.restore_displaced),
                (DecisionKind.RESTORE,),
                deadline="",
                comes="the standby is in sync again, where it was",
                otherwise="",
            ),
            Rule(
                "drop",
                situations.always,
                "a standby that the model has no slot for, that is on the host of another copy (recorded while a host "
                "was unknown), whose container is to be replaced, that is on a drained host and can go to no other, or "
                "that could only take over with withdrawn code",
                _alone(placing.drop),
                (DecisionKind.DROP,),
                deadline="",
                comes="its container is given back; if the copy is still wanted, it is an empty slot",
                otherwise="",
            ),
            Rule(
                "first active",
                situations.is_new,
                "no copy was ever active, or the processor was unparked",
                placing.start,
                (DecisionKind.BIND,),
                deadline="launch_timeout_ms",
                comes="every active's container comes before any standby's",
                otherwise="a request that expires is made again with back-off: a slow deploy is no failure",
            ),
            Rule(
                "start again",
                situations.restarts_headless,
                "policy `restart`: the active is lost, and its own host was available in time (step 1), or no other "
                "copy lives and a container came",
                placing.start,
                (DecisionKind.BIND,),
                deadline="samehost_timeout_ms",
                comes="on its own host: no failover; elsewhere: counted as one without a standby",
                otherwise="*displace*, if a standby lives; else any host is requested",
                events=("failover_started", "failover_without_standby", "failover_finished"),
                counted=(m.WITHOUT_STANDBY,),
            ),
            Rule(
                "start anywhere",
                situations.promotes_headless,
                "policy `promote`, or the lost copy has no slot in the model: the active is lost, no other "
                "copy lives, and a container came",
                placing.start,
                (DecisionKind.BIND,),
                deadline="request_timeout_ms",
                comes="the copy restores (its last host first) and becomes active",
                otherwise="the next host is asked, with back-off: the best named ones, then any",
                events=("failover_started", "failover_without_standby", "failover_finished"),
                counted=(m.WITHOUT_STANDBY,),
            ),
            Rule(
                "fill",
                situations.always,
                "a standby's slot is empty, and a container is available for it (flow B)",
                placing.fill,
                (DecisionKind.BIND,),
                deadline="request_timeout_ms",
                comes="the standby restores and joins the in-sync set",
                otherwise="its last host first, then the best others, then any, with back-off",
            ),
            Rule(
                "end a move",
                situations.is_moving,
                "a copy that is filled elsewhere is in sync there, and warm if the old one is, for which 2 minutes are "
                "waited; or it need not move any more, or is to be displaced",
                _alone(moving.end_move),
                (DecisionKind.MOVED, DecisionKind.STAY),
                deadline="",
                comes="the filled copy replaces the old one; an active's copy does so by a planned hand-over",
                otherwise="",
                counted=(m.MOVES, m.MOVES_GIVEN_UP),
            ),
            Rule(
                "begin a move",
                situations.always,
                "a live copy should be in another container, and that container is available",
                moving.begin_move,
                (DecisionKind.MOVE, DecisionKind.DROP, DecisionKind.BIND),
                deadline="",
                comes="the copy is filled there while the old one serves: *end a move*",
                otherwise="",
                counted=(m.MOVES_STARTED,),
            ),
        ),
    ),
    RuleStage(
        "planned",
        situations.always,
        (
            Rule(
                "prepare",
                situations.always,
                "another copy should be active (by command, drain, upgrade, model, the processor's other tasks, "
                "a host with which every copy would be lost), and one can take over; for the last reason also warm",
                _together(planned.prepare),
                (PrepareHandover,),
                deadline="prepare_timeout_ms",
                comes="*hand over*",
                otherwise="see *hand over*",
                events=("handover_started",),
                counted=(m.HANDOVERS_STARTED,),
            ),
        ),
    ),
    RuleStage(
        "spread",
        situations.is_next_to_move,
        (
            Rule(
                "rebalance",
                situations.always,
                "the actives of the job are not spread over hosts as evenly as its copies permit; the job has been "
                "whole for 10 s, or `standfast rebalance` asked for an even spread; and the copy that is to take over "
                "is in sync and warm",
                _together(rebalance.begin),
                (PrepareHandover,),
                deadline="prepare_timeout_ms",
                comes="*hand over*; the next one after another 10 s in which the job is whole",
                otherwise="not ready in time: it is given up, and tried again after a pause that doubles each time",
                events=("handover_started",),
                counted=(m.HANDOVERS_STARTED,),
            ),
        ),
    ),
    RuleStage(
        "reports",
        situations.always,
        (
            Rule(
                "follow",
                situations.always,
                "containers report claims, lag, or failures of user code",
                _alone(follow_reports.follow),
                (DecisionKind.CLAIMED, DecisionKind.FAILURES, DecisionKind.IN_SYNC),
                deadline="in_sync_interval_ms",
                comes="the record agrees with the reports",
                otherwise="",
                counted=(m.TASK_FAILURES,),
            ),
        ),
    ),
)


def first(turn: Turn, cohorts: tuple[Cohort, ...]) -> Action | None:
    """Return the decision of the first rule that decides something about a processor; None if none does."""
    for stage in STAGES:
        is_met = False
        for cohort in cohorts:
            if not stage.when(turn, cohort):
                continue
            is_met = True
            for rule in stage.rules:
                if rule.when(turn, cohort):
                    action = rule.decide(turn, cohorts, cohort)
                    if action is not None:
                        return _named(rule, action)
        if is_met and stage.is_last:
            return None
    return None


def _named(rule: Rule, action: Action) -> Action:
    """Return the decision with the rule that decided it, for the event log."""
    if isinstance(action, WriteRecords):
        return replace(action, facts=replace(action.facts, rule=rule.name))
    return action
