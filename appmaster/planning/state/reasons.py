"""Reasons for losses, decisions, hand-overs and failures; the planner decides and counts by their kinds. Pure.

A reason is a kind and a detail. Code looks only at the kind; its words and the detail form the sentence in the event
log, a status, or YARN's diagnostics.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Generic, TypeVar


class Loss(str, enum.Enum):
    """How the loss of a container was noticed (rule `who-is-lost`), or why the leader gave the container up."""

    PROCESS_ENDED = "process-ended"
    """Reported by its witness."""
    PORT_REFUSED = "port-refused"
    SILENT = "silent"
    NO_STREAM = "no-stream"
    """Its stream broke, its port accepts, and it did not reconnect."""
    NEVER_CAME = "never-came"
    """It existed before this leader, and did not connect to it."""
    UNREGISTERED = "unregistered"
    YARN_COMPLETED = "yarn-completed"
    REPLICA_FAILED = "replica-failed"
    REPLICA_FENCED = "replica-fenced"
    GONE_BEFORE_TAKEOVER = "gone-before-takeover"
    """YARN did not list it when this leader took over."""
    STUCK = "stuck"
    """An active that makes no progress where it is, or lost its state; no container is lost."""

    @property
    def is_final(self) -> bool:
        """Whether the container cannot be used any more even if its process is alive."""
        return self in (Loss.REPLICA_FAILED, Loss.REPLICA_FENCED)


class HandoverMotive(str, enum.Enum):
    """Why the active role of a processor is handed over as planned."""

    ASKED = "asked"
    MOVED = "moved"
    """A copy of the active was filled elsewhere."""
    MODEL = "model"
    DRAINED = "drained"
    CELL_LOST = "cell-lost"
    """Its cell's AM is gone."""
    STOPPING = "stopping"
    """Its process is asked to end."""
    SURPLUS = "surplus"
    """A mixed job gives its container up."""
    UPGRADE = "upgrade"
    REGROUP = "regroup"
    EXPOSED = "exposed"
    """Every copy would be lost at once."""
    GATHER = "gather"
    """The processor's other tasks are active in another copy."""
    REBALANCE = "rebalance"
    """Actives are spread evenly over hosts."""


class NoStandbyReason(str, enum.Enum):
    """Why no standby in sync replaced a lost active."""

    RESTORING = "restoring"
    NO_OTHER_COPY = "no-other-copy-lives"
    STANDBY_STAYED = "standby-stayed"
    """Policy ``restart``: the host of a standby that lives could not be reserved."""


class DecisionBasis(str, enum.Enum):
    """The basis of a decision about records, as far as it is counted; that of a hand-over is its `HandoverMotive`."""

    EMPTY_SLOT = "an-empty-slot"
    FIRST_COPY = "the-first-of-its-tasks-copies"
    NO_OTHER_COPY = "no-other-copy-lives"
    NO_NEED = "there-is-no-need-to-move-any-more"
    UNDEPLOYED = "the-job-is-being-undeployed"
    POISON = "poison"
    STUCK = "stuck"
    SHARED_HOST = "another-copy-is-on-its-host"
    MAKES_ROOM = "another-copy-finds-no-place"
    OTHER = "other"


class FailureReason(str, enum.Enum):
    """Why a job failed, or a processor of it was parked."""

    POISON = "poison"
    """It fails on its input in any container."""
    TOO_OFTEN = "too-often"
    """It used up its retry budget."""
    REFUSED = "refused"
    """Its code or configuration cannot be used in any container."""
    TOPIC = "topic"
    """One of its topics is not the one that the run began with."""
    OTHER = "other"
    """Recorded by a leader of an older release, which wrote no kind."""


class SetbackKind(str, enum.Enum):
    """What failed: a request for a container, or the container it was granted."""

    REFUSED = "refused"
    """The request could not be made."""
    NOT_GRANTED = "not-granted"
    """YARN granted nothing in time."""
    AT_LAUNCH = "at-launch"
    """The container ended before it registered."""
    NOT_REGISTERED = "not-registered"
    """The container did not register in time."""
    SAME_HOST = "same-host"
    """The container was granted on a host that holds another copy of its tasks, and was given back."""
    OF_NO_USE = "of-no-use"
    """The container was given back before it served."""
    LOST = "lost"
    """The container was lost."""


K_co = TypeVar("K_co", bound=enum.Enum, covariant=True)

#: The beginning of a kind's sentence, if that is not its value; empty: the detail is the whole sentence.
_WORDS: Final[dict[enum.Enum, str]] = {
    NoStandbyReason.NO_OTHER_COPY: "no other copy lives",
    DecisionBasis.EMPTY_SLOT: "an empty slot",
    DecisionBasis.FIRST_COPY: "the first of its tasks' copies",
    DecisionBasis.NO_OTHER_COPY: "no other copy lives",
    DecisionBasis.NO_NEED: "there is no need to move any more",
    DecisionBasis.SHARED_HOST: "another copy of its tasks is on its host",
    DecisionBasis.UNDEPLOYED: "the job is being undeployed",
    DecisionBasis.MAKES_ROOM: "",
    DecisionBasis.POISON: "",
    DecisionBasis.OTHER: "",
    **dict.fromkeys(FailureReason, ""),
}

#: The beginning of a setback's sentence, if its detail says why.
_SETBACKS: Final = {
    SetbackKind.AT_LAUNCH: "ended at launch",
    SetbackKind.SAME_HOST: "the same-host check released its container",
    SetbackKind.OF_NO_USE: "its container was released",
}


@dataclass(frozen=True, slots=True)
class Reason(Generic[K_co]):
    """A kind, and a detail that completes its sentence."""

    kind: K_co
    detail: str = ""

    def __str__(self) -> str:
        words = _WORDS.get(self.kind, str(self.kind.value))
        return ": ".join(each for each in (words, self.detail) if each)


@dataclass(frozen=True, slots=True)
class Setback:
    """A failed attempt to get a container for a slot."""

    kind: SetbackKind
    host: str | None = None
    """The host that was requested, or where the container was; None: any."""
    waited_ms: int | None = None
    """How long the leader waited for what did not come, milliseconds."""
    detail: str = ""
    """A text that completes the sentence."""

    def __str__(self) -> str:
        return self.words if self.waited_ms is None else f"{self.words} in {self.waited_ms} ms"

    @property
    def words(self) -> str:
        """The sentence without the waiting time, which differs each time."""
        if self.kind is SetbackKind.NOT_GRANTED:
            return f"host {self.host} gave no container" if self.host else "no host gave a container"
        if self.kind is SetbackKind.NOT_REGISTERED:
            return "its container did not register"
        said = _SETBACKS.get(self.kind)
        return f"{said}: {self.detail}" if said else self.detail
