"""A job as the leader knows it: what it asks of the planner, how far it is, what is wrong with it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.planning.state.model import JobModel, JobSpec
from appmaster.planning.state.reasons import Failure, Reason
from standby.config.planner import PlannerKeys
from standby.shared.model import ProcessorId


class OnExhausted(str, enum.Enum):
    """What too many failures in the window do (`cluster-manager.container.retry.exhausted`)."""

    FAIL = "fail"
    PARK = "park"


#: In `Policy.restore_paused`: not one host, but all of them.
EVERY_HOST: Final = "all"


@dataclass(frozen=True, slots=True)
class Policy(PlannerKeys):
    """What a job asks of the planner; times in milliseconds.

    What it inherits are keys of the job file; what stands here is a constant, or comes of keys in another form
    (`appmaster.config`).
    """

    restarts: bool = False
    """Policy ``restart`` (the steps of SEP-23) instead of ``promote``."""
    suspect_grace_ms: int = 3_000
    """How long a silent container that YARN still lists may come back before it is released and replaced."""
    restore_delay_ms: int = 3_000
    """For how long at most lost copies wait for a failover under way to end."""
    prepare_timeout_ms: int = 10_000
    """How long a planned hand-over waits for the standby to be ready."""
    reconnect_grace_ms: int = 1_000
    """How long a container whose stream broke but whose port accepts may take to come back."""
    takeover_grace_ms: int = 5_000
    """How long a new leader waits for the containers of its predecessor to come to it."""
    launch_timeout_ms: int = 90_000
    """From YARN's grant to the container's first message."""
    any_timeout_ms: int = 15_000
    """How long a request for any host waits before it is made anew: YARN may have lost it."""
    stop_timeout_ms: int = 10_000
    """Policy ``restart``: how long a standby may take to stop before its process is ended."""
    on_exhausted: OnExhausted = OnExhausted.FAIL
    retry_backoff_ms: int = 500
    """First wait after a failed launch or a refused request; doubled each time."""
    retry_backoff_max_ms: int = 15_000
    avoid_host_ms: int = 10_000
    """How long a host is not asked for after it fell silent, let a request expire or failed a launch."""
    fails_on_error: bool = True
    """Whether a poison record ends the job; else the containers give the record up."""
    in_sync_interval_ms: int = 500
    """In-sync sets of one processor are written at most this often."""
    resend_ms: int = 1_000
    """After which an assignment that was not reported as applied is sent again."""
    exit_timeout_ms: int = 5_000
    """How long a container may take to leave by itself before YARN is told to end it."""
    quiet_ms: int = 3_000
    """A mixed job waits so long after the last arrival before it begins with fewer containers than asked for."""

    def backoff_ms(self, before: int) -> int:
        """Return how long is waited after a failure, with so many in a row ``before`` it."""
        # No more doublings than a number of some size holds.
        return min(self.retry_backoff_ms << min(before, 16), self.retry_backoff_max_ms)


class JobState(str, enum.Enum):
    """How far a job is; written to ``/jobs/<job>/status``."""

    DEPLOYING = "deploying"
    DEPLOYED = "deployed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    UNDEPLOYING = "undeploying"
    UNDEPLOYED = "undeployed"


class Effect(str, enum.Enum):
    """What a leader does for a job in the outside world, by which what failed of it is told."""

    WRITE_RECORDS = "write-records"
    WRITE_MODEL = "write-model"
    WRITE_STATUS = "write-status"
    SEND_ASSIGNMENT = "send-assignment"
    SEND_EXIT = "send-exit"
    PROBE_PORT = "probe-port"
    REQUEST_CONTAINER = "request-container"
    GIVE_BACK = "give-back"
    """Of a request, or of a container."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What a processor lacks to be as its job wants it."""

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
    """The recorded model; of version 0 and empty before the first one is."""
    policy: Policy
    revision: int = 1
    """Of code and configuration: containers that run another one are replaced one by one."""
    is_wanted: bool = True
    """Requested state: deployed (True) or undeployed."""
    purge: bool = False
    """Undeployed for good: local state is to be removed too."""
    state: JobState = JobState.DEPLOYING
    reasons: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    """Those of `reasons` that are about one processor."""
    notes: tuple[str, ...] = ()
    """What people should know although nothing is missing: an input that grew, for one."""
    quarantined: str = ""
    """Why its code could not be loaded now: no container is asked for, what runs goes on. Empty: it could be."""
    was_deployed: bool = False
    is_model_right: bool = False
    """Whether the model is what the configuration asks for: looked at when one of the two changes."""
    is_modelling: bool = False
    """Its model is being written."""
    is_fencing: bool = False
    """While undeploying: the writers of its tasks are being fenced."""
    is_fenced: bool = False
    """While undeploying: every task's writer has been fenced, or that was waived."""
    is_fence_waived: bool = False
    """While undeploying: an operator has said that it is to end unfenced."""
    fencing_failures: int = 0
    """So often in a row its tasks could not be fenced."""
    fencing_error: str = ""
    """Why, the last time; empty: they were, or nobody has tried."""
    fence_again_ms: int = 0
    """Not before then."""
    faults: Mapping[Effect, str] = field(default_factory=dict)
    """What cannot be done for it at present, and why, as it was when that began: the job is set aside so far."""
    obstacle: str = ""
    """Why it cannot go on, whatever its containers do; empty: nothing of that kind."""
    changelog_risk: str = ""
    """Why its changelog is about to lose records; empty: it is not."""
    failure: Reason[Failure] | None = None
    """Why the job was given up; None while it was not."""
    last_traceback: str = ""
    """Where its code raised what a container told of last; empty once it is deployed and nothing fails."""
    traceback: str = ""
    """As it is in its status."""
    is_told_over: bool = False
    """Its status says that it was given up and fenced."""

    @property
    def is_led(self) -> bool:
        """Whether its tasks are to run: it is wanted, and was not given up."""
        return self.is_wanted and self.failure is None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was given up, and its writers have been fenced."""
        return not self.is_led and self.is_fenced
