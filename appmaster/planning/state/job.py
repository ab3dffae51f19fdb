"""A job as the leader knows it: its policy, its state, and what is wrong with it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.planning.state.model import JobModel, JobSpec
from appmaster.planning.state.reasons import FailureReason, Reason
from locality.fit import ANY, Demand
from standby.config.planner import PlannerKeys
from standby.shared.model import ProcessorId


class OnExhausted(str, enum.Enum):
    """What too many failures within the window cause (`cluster-manager.container.retry.exhausted`)."""

    FAIL = "fail"
    PARK = "park"


#: In `PlannerPolicy.restore_paused`: all hosts instead of a single one.
EVERY_HOST: Final = "all"


@dataclass(frozen=True, slots=True)
class PlannerPolicy(PlannerKeys):
    """A job's configuration for the planner; times in milliseconds.

    Inherited fields are keys of the job file. The fields below are constants, or are derived from keys
    (`appmaster.config`).
    """

    restarts: bool = False
    """Policy ``restart`` (the steps of SEP-23) instead of ``promote``."""
    suspect_grace_ms: int = 3_000
    """How long a silent container that YARN still lists has to come back before it is released and replaced."""
    restore_delay_ms: int = 3_000
    """Longest time for which lost copies wait for a failover under way to end."""
    prepare_timeout_ms: int = 10_000
    """How long a planned hand-over waits for the standby to be ready."""
    rebalance_pause_ms: int = 10_000
    """How long a job must be whole before a hand-over spreads its actives; doubled after one that was given up."""
    has_warm_standbys: bool = True
    """Whether its standbys prepare for a promotion at all (`job.hotstandby.warm`)."""
    reconnect_grace_ms: int = 1_000
    """How long a container whose stream broke but whose port accepts has to reconnect."""
    takeover_grace_ms: int = 5_000
    """How long a new leader waits for its predecessor's containers to connect."""
    launch_timeout_ms: int = 90_000
    """From YARN's grant to the container's first message."""
    any_timeout_ms: int = 15_000
    """How long a request for any host waits before it is made again: YARN may have lost it."""
    stop_timeout_ms: int = 10_000
    """Policy ``restart``: how long a standby may take to stop before its process is ended."""
    on_exhausted: OnExhausted = OnExhausted.FAIL
    retry_backoff_ms: int = 500
    """First wait after a failed launch or a refused request; doubled each time."""
    retry_backoff_max_ms: int = 15_000
    avoid_host_ms: int = 10_000
    """How long a host is not requested after it fell silent, let a request expire, or failed a launch."""
    fails_on_error: bool = True
    """Whether a poison record fails the job; else the containers give the record up."""
    in_sync_interval_ms: int = 500
    """In-sync sets of one processor are written at most this often."""
    resend_ms: int = 1_000
    """Time after which an assignment that was not reported as applied is sent again."""
    exit_timeout_ms: int = 5_000
    """How long a container has to exit by itself before YARN is asked to end it."""
    demand: Demand = ANY
    """What is asked of each process of a pool, without its tasks."""
    quiet_ms: int = 3_000
    """How long after the last arrival a mixed job waits before it begins with fewer containers than it asks for."""

    @property
    def reservation_ms(self) -> int:
        """How long a displaced standby's host is requested: no other will do, and the standby is stopped for it."""
        return max(self.samehost_timeout_ms, self.request_timeout_ms)

    def backoff_ms(self, before: int) -> int:
        """Return how long to wait after a failure that had ``before`` failures in a row before it."""
        # The number of doublings is bounded, so that the number stays small.
        return min(self.retry_backoff_ms << min(before, 16), self.retry_backoff_max_ms)


class JobState(str, enum.Enum):
    """The state of a job; written to ``/jobs/<job>/status``."""

    DEPLOYING = "deploying"
    DEPLOYED = "deployed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    UNDEPLOYING = "undeploying"
    UNDEPLOYED = "undeployed"


class EffectKind(str, enum.Enum):
    """What a leader does for a job in the outside world; failures are reported by it."""

    WRITE_RECORDS = "write-records"
    WRITE_MODEL = "write-model"
    WRITE_STATUS = "write-status"
    SEND_ASSIGNMENT = "send-assignment"
    SEND_EXIT = "send-exit"
    PROBE_PORT = "probe-port"
    REQUEST_CONTAINER = "request-container"
    GIVE_BACK = "give-back"
    """A request, or a container."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What a processor lacks for its job to be deployed."""

    processor: ProcessorId
    text: str

    def __str__(self) -> str:
        return f"{self.processor}: {self.text}"


@dataclass(frozen=True, slots=True)
class Job:
    """A job as recorded, with its model and policy."""

    name: str
    run: str
    spec: JobSpec
    model: JobModel
    """The recorded model; version 0 and empty before the first one is recorded."""
    policy: PlannerPolicy
    revision: int = 1
    """Of code and configuration; containers that run another one are replaced one by one."""
    is_wanted: bool = True
    """Requested state: deployed (True) or undeployed."""
    purge: bool = False
    """Undeployed for good: local state is to be removed, too."""
    state: JobState = JobState.DEPLOYING
    reasons: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    """Those of `reasons` that are about one processor."""
    notes: tuple[str, ...] = ()
    """What operators should know although nothing is missing, such as an input that grew."""
    quarantined: str = ""
    """Why its code cannot be loaded now: no container is requested, running ones continue. Empty: it can be."""
    was_deployed: bool = False
    is_model_right: bool = False
    """Whether the model is what the configuration asks for; checked when one of the two changes."""
    is_modelling: bool = False
    """Its model is being written."""
    fence: int = 0
    """While undeploying: the number of the fence of its tasks' writers that is under way; 0: none is."""
    is_fenced: bool = False
    """While undeploying: every task's writer has been fenced, or fencing was waived."""
    is_fence_waived: bool = False
    """While undeploying: an operator has decided that it is to end unfenced."""
    fencing_failures: int = 0
    """How often in a row the fencing of its tasks has failed."""
    fencing_error: str = ""
    """Why it failed the last time; empty: it succeeded, or was not tried."""
    fence_again_ms: int = 0
    """Fencing is not tried again before this time."""
    faults: Mapping[EffectKind, str] = field(default_factory=dict)
    """What cannot be done for it at present, and why it failed first; the job is set aside to that extent."""
    refused: int = 0
    """How many containers in a row could not use the code and configuration of `revision`, with no commit between."""
    refusal: str = ""
    """What the last of them reported."""
    obstacle: str = ""
    """Why it cannot continue, whatever its containers do; empty: it can."""
    changelog_risk: str = ""
    """Why its changelog is about to lose records; empty: it is not, as far as is known."""
    is_changelog_known: bool = False
    """Whether the brokers have said if it is, to this leader."""
    is_risk_logged: bool = False
    """Whether the event log says that the changelog is at risk: as this leader or a former one has found last."""
    is_risk_recorded: bool = False
    """Its recorded status says so."""
    failure: Reason[FailureReason] | None = None
    """Why the job failed; None: it has not."""
    last_traceback: str = ""
    """The last traceback of its code that a container reported; empty once it is deployed and nothing fails."""
    traceback: str = ""
    """The traceback in its recorded status."""
    is_reported_over: bool = False
    """Its recorded status says that it failed and is fenced."""

    @property
    def is_led(self) -> bool:
        """Whether its tasks are to run: it is wanted and has not failed."""
        return self.is_wanted and self.failure is None

    @property
    def is_fencing(self) -> bool:
        """Whether the writers of its tasks are being fenced."""
        return self.fence > 0

    @property
    def is_refused(self) -> bool:
        """Whether its present code and configuration cannot be used anywhere, as far as it was tried.

        As many containers as a task has copies must have failed, and at least two: one may be on a bad host.
        """
        return self.refused >= max(2, self.model.copies)

    @property
    def is_over(self) -> bool:
        """Whether it has ended or failed, and its writers have been fenced."""
        return not self.is_led and self.is_fenced
