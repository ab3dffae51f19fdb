"""The leader's counters and histograms: names, help texts, and the possible values of each label. Pure.

They are SEP-23's "Additional metrics" (active and standby failures, failovers to a standby, failovers without one), and
more. `appmaster.eventlog.counting` says which entries of the event log add to each. Every label but the job's name has
a closed set of values, so that a text with a number in it never makes a series of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from appmaster.planning.state.actions import DecisionKind, Outcome
from appmaster.planning.state.job import EffectKind
from appmaster.planning.state.reasons import DecisionBasis, Loss, NoStandbyReason
from appmaster.planning.state.view import RequestKind
from standby.shared.model import StartStep

#: Stands for every value outside a label's closed set.
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter; it only rises, from 0 at the start of each leader."""

    name: str
    help: str
    labels: Mapping[str, tuple[str, ...]]
    """Label → its closed set of values; that of the job is open, and given as an empty one."""
    is_shown_from_start: bool = True
    """Whether every series is present with 0 before it counts anything: to Prometheus, a first step from nothing to 1
    is no increase."""

    def values(self, jobs: Iterable[str]) -> Iterator[tuple[str, ...]]:
        """Yield the labels of every series to show from the start, for these jobs."""
        if self.is_shown_from_start:
            yield from itertools.product(*(known or tuple(jobs) for known in self.labels.values()))


@dataclass(frozen=True, slots=True)
class Histogram:
    """One distribution of seconds."""

    name: str
    help: str
    labels: Mapping[str, tuple[str, ...]]
    """Label → its closed set of values; every series is present from the start."""
    buckets: tuple[float, ...]

    def values(self) -> Iterator[tuple[str, ...]]:
        """Yield the labels of every series."""
        yield from itertools.product(*self.labels.values())


_JOB: Final[tuple[str, ...]] = ()

#: How a loss was noticed (rule `who-is-lost`), or why the leader gave a container up (rule `fence-no-proof`).
LOSS_REASONS: Final = (*(each.value for each in Loss if each is not Loss.STUCK), OTHER)

ROLES: Final = ("active", "standby", "mixed", "none")

REQUEST_KINDS: Final = tuple(each.value for each in RequestKind)

#: How a request can end; ``failed``: granted, but its container ended before it registered.
REQUEST_OUTCOMES: Final = (
    *("granted", "refused", "cancelled", "failed"),
    *(each.value for each in Outcome),
    OTHER,
)

#: Whether the pipeline of a spare container is warm.
SPARE_STATES: Final = ("ready", "starting")

RELEASE_REASONS: Final = (*(each.value for each in Outcome), OTHER)

#: Why no standby could take over: a live one was still restoring, no copy was alive, or (policy ``restart``) the host
#: of a live one could not be reserved.
WITHOUT_REASONS: Final = (*(each.value for each in NoStandbyReason), OTHER)

#: Milestones of a failover, in order: each phase ends with the milestone of its name.
PHASES: Final = (
    *("recorded", "ordered", "fenced", "drained", "active"),
    *(each.value for each in StartStep),
    "first_commit",
)

DECISIONS: Final = (*(each.value.replace("-", "_") for each in DecisionKind), OTHER)

#: Whether the copy that becomes active was in sync, if one does; else the basis of the decision.
DECISION_REASONS: Final = ("in-sync", "not-in-sync", *(each.value for each in DecisionBasis))

CONTAINER_FAILURES: Final = Counter(
    "standfast_container_failures_total",
    "Containers lost, by the role they had and how that was noticed, without planned stops.",
    {"job": _JOB, "role": ROLES, "reason": LOSS_REASONS},
)
FAILOVERS: Final = Counter(
    "standfast_failovers_total",
    "Actives that were failed over to an in-sync standby.",
    {"job": _JOB, "policy": ("promote", "restart")},
)
WITHOUT_STANDBY: Final = Counter(
    "standfast_failovers_without_standby_total",
    "Actives that could not be failed over to an in-sync standby: another copy or a new one took over.",
    {"job": _JOB, "reason": WITHOUT_REASONS},
)
HANDOVERS_STARTED: Final = Counter(
    "standfast_handovers_started_total", "Planned hand-overs of an active that were begun.", {"job": _JOB}
)
HANDOVERS: Final = Counter(
    "standfast_handovers_total", "Planned hand-overs of an active that were completed.", {"job": _JOB}
)
HANDOVERS_GIVEN_UP: Final = Counter(
    "standfast_handovers_given_up_total", "Planned hand-overs that were given up.", {"job": _JOB}
)
SAME_HOST: Final = Counter(
    "standfast_same_host_refused_total", "Granted containers given back because of the same-host check.", {}
)
REQUESTS: Final = Counter(
    "standfast_container_requests_total",
    "Requests to YARN that have ended, by kind and by how they ended.",
    {"kind": REQUEST_KINDS, "outcome": REQUEST_OUTCOMES},
)
REQUESTS_MADE: Final = Counter(
    "standfast_container_requests_made_total",
    "Requests to YARN, by kind.",
    {"kind": REQUEST_KINDS},
)
PREFERRED: Final = Counter(
    "standfast_preferred_host_requests_total",
    "Requests for the host where the state lies.",
    {"job": _JOB},
)
PREFERRED_MATCHED: Final = Counter(
    "standfast_preferred_host_matches_total",
    "Requests for the host where the state lies that were granted.",
    {"job": _JOB},
)
RELEASED: Final = Counter(
    "standfast_containers_released_total", "Containers given back to YARN.", {"reason": RELEASE_REASONS}
)
SPARES_TAKEN: Final = Counter(
    "standfast_spare_containers_taken_total",
    "Spare containers that a slot took in place of a new one, by whether their pipeline was warm.",
    {"job": _JOB, "state": SPARE_STATES},
)
DECIDED: Final = Counter(
    "standfast_decisions_total",
    "Decisions recorded, by kind and reason.",
    {"kind": DECISIONS, "reason": DECISION_REASONS},
    is_shown_from_start=False,
)
DECISIONS_REFUSED: Final = Counter(
    "standfast_decisions_refused_total", "Decisions whose write was refused: the records had changed.", {}
)
MOVES_STARTED: Final = Counter(
    "standfast_moves_started_total", "Moves of a copy to another container that were begun.", {"job": _JOB}
)
MOVES: Final = Counter(
    "standfast_moves_total",
    "Completed moves of a standby; an active's move ends as a planned hand-over.",
    {"job": _JOB},
)
MOVES_GIVEN_UP: Final = Counter("standfast_moves_given_up_total", "Moves that were given up.", {"job": _JOB})
PARKED: Final = Counter(
    "standfast_processors_parked_total", "Processors parked for failing too often.", {"job": _JOB}
)
UNPARKED: Final = Counter(
    "standfast_processors_unparked_total", "Processors that were unparked.", {"job": _JOB}
)
DRAINED: Final = Counter("standfast_hosts_drained_total", "Hosts drained.", {})
ADMITTED: Final = Counter("standfast_hosts_admitted_total", "Drained hosts that may be used again.", {})
MODEL_CHANGES: Final = Counter(
    "standfast_model_changes_total", "Versions of a job's model after the first.", {"job": _JOB}
)
TASK_FAILURES: Final = Counter(
    "standfast_task_failures_total", "Failures of user code or its process on a task's input.", {"job": _JOB}
)
FENCING_FAILED: Final = Counter(
    "standfast_fencing_failures_total",
    "Attempts to fence an undeploying job's writers that failed.",
    {"job": _JOB},
)
EFFECTS_FAILED: Final = Counter(
    "standfast_effect_failures_total",
    "Attempts to do something for a job that failed because of an error that concerns only that job.",
    {"job": _JOB, "effect": (*(each.value for each in EffectKind), OTHER)},
)
DOUBTS: Final = Counter(
    "standfast_leader_doubts_total",
    "Times that so many containers fell silent at once that the leader suspected itself.",
    {},
)

_FAILOVER_BUCKETS: Final = (
    *(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),
)

FAILOVER_SECONDS: Final = Histogram(
    "standfast_failover_seconds",
    "Time that each phase of a failover took, per task; total: from the detection to the first commit.",
    {"phase": ("detected", *PHASES, "total")},
    _FAILOVER_BUCKETS,
)
HANDOVER_SECONDS: Final = Histogram(
    "standfast_handover_seconds",
    "Time that each phase of a planned hand-over took, per task.",
    {"phase": (*PHASES, "total")},
    _FAILOVER_BUCKETS,
)
TURN_SECONDS: Final = Histogram(
    "standfast_planner_turn_seconds",
    "Time of one turn of the leader: to apply events, to plan, and to start actions.",
    {},
    (*(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05), *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0)),
)

#: In the order of their declarations.
COUNTERS: Final = tuple(each for each in vars().values() if isinstance(each, Counter))
HISTOGRAMS: Final = tuple(each for each in vars().values() if isinstance(each, Histogram))
