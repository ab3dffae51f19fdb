"""Why something was lost, decided, handed over, given up: what the planner decides and counts by. Pure.

A reason is a kind and a detail. Only the kind is looked at; its words and the detail make the sentence that the event
log, a status and YARN's diagnostics show.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Generic, TypeVar


class Loss(str, enum.Enum):
    """How it was noticed that a container is lost (rule `who-is-lost`), or what made the leader give it up."""

    PROCESS_ENDED = "process-ended"
    """Its witness says so."""
    PORT_REFUSED = "port-refused"
    SILENT = "silent"
    NO_STREAM = "no-stream"
    """Its stream broke, its port accepts, and it did not come back."""
    NEVER_CAME = "never-came"
    """It was there before this leader, and did not find it."""
    UNREGISTERED = "unregistered"
    YARN_COMPLETED = "yarn-completed"
    REPLICA_FAILED = "replica-failed"
    REPLICA_FENCED = "replica-fenced"
    GONE_BEFORE_TAKEOVER = "gone-before-takeover"
    """YARN did not list it when this leader took over."""
    STUCK = "stuck"
    """An active that gets no further where it is: no container is lost."""

    @property
    def is_final(self) -> bool:
        """Whether the container is of no use any more, however lively it is."""
        return self in (Loss.REPLICA_FAILED, Loss.REPLICA_FENCED)


class Motive(str, enum.Enum):
    """Why the active role of a processor is handed over as planned."""

    ASKED = "asked"
    MOVED = "moved"
    """A copy of the active was filled elsewhere."""
    MODEL = "model"
    DRAINED = "drained"
    CELL_LOST = "cell-lost"
    """Its cell's AM is gone."""
    CROWDED = "crowded"
    UPGRADE = "upgrade"
    REGROUP = "regroup"
    EXPOSED = "exposed"
    """Every copy would be lost at once."""
    GATHER = "gather"
    """The processor's other tasks are active in another copy."""
    BALANCE = "balance"


class Without(str, enum.Enum):
    """Why no standby that was in sync took a lost active's place."""

    RESTORING = "restoring"
    NO_OTHER_COPY = "no-other-copy-lives"
    STANDBY_STAYED = "standby-stayed"
    """Policy ``restart``: the host of a standby that lives could not be reserved."""


class Basis(str, enum.Enum):
    """What a decision about records rests on, as far as it is counted by that; a hand-over rests on its `Motive`."""

    EMPTY_SLOT = "an-empty-slot"
    FIRST_COPY = "the-first-of-its-tasks-copies"
    NO_OTHER_COPY = "no-other-copy-lives"
    NO_NEED = "there-is-no-need-to-move-any-more"
    UNDEPLOYED = "the-job-is-being-undeployed"
    POISON = "poison"
    STUCK = "stuck"
    OTHER = "other"


class Failure(str, enum.Enum):
    """Why a job is given up, or a processor of it parked."""

    POISON = "poison"
    """It fails on its input wherever it runs."""
    TOO_OFTEN = "too-often"
    """It used up its retry budget."""
    TOPIC = "topic"
    """A topic of it is another one than the run's."""
    OTHER = "other"
    """A leader of a release that did not say wrote it down."""


class SetbackKind(str, enum.Enum):
    """What was in vain: a request for a container, or the container that it brought."""

    REFUSED = "refused"
    """It could not be made."""
    NOT_GRANTED = "not-granted"
    """YARN gave nothing in time."""
    AT_LAUNCH = "at-launch"
    """The container ended before it spoke."""
    NOT_REGISTERED = "not-registered"
    """The container did not speak in time."""
    SAME_HOST = "same-host"
    """The container was granted on a host that holds another copy of its tasks, and was given back."""
    OF_NO_USE = "of-no-use"
    """The container was given back before it served."""
    LOST = "lost"
    """The container was lost."""


K_co = TypeVar("K_co", bound=enum.Enum, covariant=True)

#: What begins the sentence of a kind, where that is not its value; empty: the detail is the whole sentence.
_WORDS: Final[dict[enum.Enum, str]] = {
    Without.NO_OTHER_COPY: "no other copy lives",
    Basis.EMPTY_SLOT: "an empty slot",
    Basis.FIRST_COPY: "the first of its tasks' copies",
    Basis.NO_OTHER_COPY: "no other copy lives",
    Basis.NO_NEED: "there is no need to move any more",
    Basis.UNDEPLOYED: "the job is being undeployed",
    Basis.POISON: "",
    Basis.OTHER: "",
    **dict.fromkeys(Failure, ""),
}

#: What begins the sentence of a setback whose detail says why.
_SETBACKS: Final = {
    SetbackKind.AT_LAUNCH: "ended at launch",
    SetbackKind.SAME_HOST: "the same-host check released its container",
    SetbackKind.OF_NO_USE: "its container was released",
}


@dataclass(frozen=True, slots=True)
class Reason(Generic[K_co]):
    """A kind, and what there is to say besides."""

    kind: K_co
    detail: str = ""

    def __str__(self) -> str:
        words = _WORDS.get(self.kind, str(self.kind.value))
        return ": ".join(each for each in (words, self.detail) if each)


@dataclass(frozen=True, slots=True)
class Setback:
    """What was in vain for a slot."""

    kind: SetbackKind
    host: str | None = None
    """Which was asked for it, or where the container was; None: any."""
    waited_ms: int | None = None
    """How long was waited for what did not come."""
    detail: str = ""
    """What there is to say besides."""

    def __str__(self) -> str:
        return self.words if self.waited_ms is None else f"{self.words} in {self.waited_ms} ms"

    @property
    def words(self) -> str:
        """The sentence without the time that was waited, which is another each time."""
        if self.kind is SetbackKind.NOT_GRANTED:
            return f"host {self.host} gave no container" if self.host else "no host gave a container"
        if self.kind is SetbackKind.NOT_REGISTERED:
            return "its container did not register"
        said = _SETBACKS.get(self.kind)
        return f"{said}: {self.detail}" if said else self.detail
