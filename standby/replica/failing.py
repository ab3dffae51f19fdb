"""What becomes of input on which the job's own code fails (`task.on.error`). Pure.

A `Suspect` is one task from its committed position up to an `end` behind the failure. It is run alone, and its
`Suspect.next` says how: the whole range again, a half of it, one record alone, or not at all any more. Good
halves are committed, so every failure is one of a shorter range, until it is one of a single record. Positions are
offsets where the job has one input; `standby.replica.route` says which offsets they are where it has several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from standby.config import JobConfig
from standby.model import InputFailures, TaskId
from standby.replica.overlay import Emitted

#: An hour: what `task.on.error.limit` counts in.
WINDOW_MS: Final = 3_600_000

#: What a FAILED replica's detail begins with, so that no other replica is made to try the same again.
POISON: Final = "poison: "
POISON_LIMIT: Final = "poison-limit: "

_FIRST_BACK_OFF_SECONDS: Final = 0.1
_LONGEST_BACK_OFF_SECONDS: Final = 5.0

#: More of an error's message than this helps nobody, and it is sent around and kept.
_MESSAGE_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The keys `task.on.error…` of one job."""

    on_error: str
    attempts: int
    limit: int
    batch_max: int
    """How many positions a batch may cover."""
    topics: tuple[str, ...]
    """The inputs."""
    dead_letter: str = ""

    @property
    def gives_up_records(self) -> bool:
        """Whether records may be left out at all."""
        return self.on_error != "fail"

    def is_beyond_limit(self, given_up_ms: Sequence[int], now_ms: int) -> bool:
        """Return whether one record more than those given up at ``given_up_ms`` is too many within an hour."""
        recent = sum(each > now_ms - WINDOW_MS for each in given_up_ms)
        return self.limit >= 0 and recent >= self.limit


def error_policy(config: JobConfig) -> ErrorPolicy:
    """Return what the job's configuration says of failing records."""
    return ErrorPolicy(
        on_error=config.on_error,
        attempts=config.error_attempts,
        limit=config.error_limit,
        # One batch may have so many of each; which ones, only the feed knows.
        batch_max=config.batch_max_records * len(config.inputs),
        topics=config.inputs,
        dead_letter=config.dead_letter if config.on_error == "dead-letter" else "",
    )


@dataclass(frozen=True, slots=True)
class CodeError:
    """An error of the job's code, as it is reported."""

    kind: str
    """The exception's type."""
    message: str
    """Its first line."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


#: What Spark's own exception says of one in a Python worker ends with that one's traceback.
_TRACEBACK: Final = "Traceback (most recent call last):"


def code_error(error: BaseException) -> CodeError:
    """Return what is kept of an exception; of one that another process has told of, the original's."""
    _, _, frames = str(error).partition(_TRACEBACK)
    for line in frames.splitlines():
        if line and not line[0].isspace():
            kind, _, message = line.partition(": ")
            return CodeError(kind, message[:_MESSAGE_CHARACTERS])
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CodeError(type(error).__name__, lines[0][:_MESSAGE_CHARACTERS] if lines else "")


def failures_at(failures: InputFailures | None, offset: int) -> InputFailures | None:
    """Return the failures that a record tells of, None when they were at another position than ``offset``."""
    return failures if failures is not None and failures.offset == offset and failures.count else None


def crash_limit(policy: ErrorPolicy, failures: InputFailures | None) -> int | None:
    """Return how many offsets a new active may run at once after ``failures``; None: as many as ever.

    An end of the whole process cannot be caught, so its cause is closed in on from one replica to the next:
    each failure more halves what is run at once, and what goes well is committed, under the same count, so that
    all in all it takes as many failures as a batch can be halved. 0: a single record has ended a process, and
    is not run again.
    """
    if failures is None or not policy.gives_up_records or failures.count < policy.attempts:
        return None
    beyond = failures.count - policy.attempts
    if beyond and max(1, policy.batch_max >> beyond) == 1:
        return 0
    return max(1, policy.batch_max >> (beyond + 1))


@dataclass(frozen=True, slots=True)
class Run:
    """Run the task alone from its committed offset up to ``until``, after a pause."""

    until: int
    after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave out the record that comes next, ``offset`` being the task's committed position."""

    offset: int


@dataclass(frozen=True, slots=True)
class End:
    """The replica has failed: `task.on.error` is ``fail``."""


@dataclass(frozen=True, slots=True)
class Clear:
    """It is a task like any other again."""


Move = Run | GiveUp | End | Clear


@dataclass(frozen=True, slots=True)
class Suspect:
    """A task on whose input the job's code fails, or may fail."""

    start: int
    """Its committed position."""
    end: int
    """Once it is past this position, it is like any other task."""
    failures: int
    """What is reported for `start`: how often the code failed there, in this and earlier replicas."""
    error: CodeError
    """The last failure's."""
    bad: int | None = None
    """The code fails somewhere in [start, bad); None: not known."""
    is_proven: bool = False
    """Whether [start, bad) itself was run, not only concluded from the half before that was good."""
    tries: int = 0
    """Failures from `start` on, whatever the range."""
    is_isolating: bool = False
    """Whether the range is halved, not only tried again."""
    is_given_up: bool = False
    """Whether the record at `start` is left out without being run: it ended processes."""
    at_once: int | None = None
    """How many offsets may be run at once, after ends of processes; None: as many as ever."""

    @property
    def is_closing_in(self) -> bool:
        """Whether parts of it are run that become smaller from one end of a process to the next."""
        return self.at_once is not None and not self.is_isolating

    def next(self, policy: ErrorPolicy) -> Move:
        """Return what is to be done with it now."""
        if self.start >= self.end:
            return Clear()
        if self.is_given_up:
            return GiveUp(self.start)
        if self.failures >= policy.attempts and not policy.gives_up_records and self.is_proven:
            return End()
        if self.at_once is not None and self.is_closing_in:
            return Run(min(self.start + self.at_once, self.end))
        if not self.is_isolating or self.bad is None:
            return Run(self.end, back_off_seconds(self.tries))
        if self.bad - self.start > 1:
            return Run(self.start + (self.bad - self.start) // 2)
        if self.is_proven and self.tries >= policy.attempts:
            return GiveUp(self.start)
        return Run(self.bad, back_off_seconds(self.tries))

    def failed(self, committed: int, until: int, error: CodeError, policy: ErrorPolicy) -> Suspect:
        """Return it after the code has failed within [``committed``, ``until``).

        Failures of halves are not counted in what is reported: `crash_limit` would take each for a replica.
        """
        here = self.reached(committed)
        count = max(here.failures, policy.attempts) if here.is_isolating else here.failures + 1
        return replace(
            here,
            end=max(here.end, until),
            failures=count,
            error=error,
            bad=until,
            is_proven=True,
            tries=here.tries + 1,
            is_isolating=here.is_isolating or (policy.gives_up_records and count >= policy.attempts),
        )

    def reached(self, committed: int) -> Suspect:
        """Return it after ``committed`` has become the committed offset; itself when it is that already."""
        if committed == self.start:
            return self
        still_bad = self.bad if self.bad is not None and self.bad > committed else None
        is_closing_in = self.is_closing_in and committed < self.end
        return replace(
            self,
            start=committed,
            # What is looked for lies ahead. The next replica, should there be one, goes on looking where this
            # one was, instead of trying the whole batch so many times again.
            failures=self.failures if is_closing_in or (self.is_isolating and still_bad is not None) else 0,
            at_once=max(1, (self.end - committed) // 2) if is_closing_in else None,
            bad=still_bad,
            is_proven=False,
            tries=0,
            is_given_up=False,
        )

    def reported(self, where: str, topic: str = "") -> InputFailures | None:
        """Return what the leader is told and keeps; None when nothing has failed at the present position.

        ``where`` is as in `told`, ``topic`` as `InputFailures.topic`.
        """
        if not self.failures:
            return None
        return InputFailures(self.start, self.failures, self.told(where), topic)

    @property
    def reach(self) -> int:
        """The position up to which the code fails, as far as that is known."""
        return self.bad or self.end

    def told(self, where: str) -> str:
        """Return where the code failed, ``where`` being from `start` to `reach` in words, and with what."""
        return f"{where}: {self.error}"


def suspect_at_start(policy: ErrorPolicy, failures: InputFailures | None, committed: int) -> Suspect | None:
    """Return what a new active is to be suspected of after earlier ``failures``; None: of nothing."""
    at_once = crash_limit(policy, failures)
    if failures is None or at_once is None:
        return None
    error = CodeError("ProcessEnded", failures.reason)
    if not at_once and len(policy.topics) > 1 and not failures.topic:
        # Of which input the record was is not known: it is run once more, and that is told before.
        at_once = 1
    if not at_once:
        return Suspect(committed, committed + 1, failures.count, error, is_given_up=True)
    # So many were too many for the replica before.
    too_many = max(1, policy.batch_max >> (failures.count - policy.attempts))
    return Suspect(committed, committed + too_many, failures.count, error, at_once=at_once)


def suspect_after(failures: InputFailures | None, committed: int, end: int) -> Suspect:
    """Return the suspect that a task is whose range [``committed``, ``end``) is to be run alone.

    ``failures`` are those at the committed offset before.
    """
    known = failures_at(failures, committed)
    return Suspect(committed, end, known.count if known is not None else 0, CodeError("Unknown", ""))


def back_off_seconds(tries: int) -> float:
    """Return how long to wait after so many failures in a row of user code or of a feed."""
    return doubled_seconds(tries, _FIRST_BACK_OFF_SECONDS, _LONGEST_BACK_OFF_SECONDS)


def doubled_seconds(tries: int, first_seconds: float, longest_seconds: float) -> float:
    """Return a wait that doubles with each of so many failures in a row, up to the longest; 0 after none."""
    if not tries:
        return 0.0
    # Bounded before it is raised to: there may be as many tries as no float can hold.
    return min(first_seconds * 2.0 ** min(tries - 1, 16), longest_seconds)


#: A record's headers, in order; a name may come twice, and a value may be missing.
Headers = Sequence[tuple[str, "bytes | None"]]


@dataclass(frozen=True, slots=True)
class InputRecord:
    """One record of an input topic, as it lies there."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class FailedAt:
    """Where the job's code failed on a record."""

    topic: str
    task: TaskId
    epoch: int


def dead_letter(
    record: InputRecord, place: FailedAt, failures: int, error: CodeError, policy: ErrorPolicy
) -> Emitted:
    """Return the record for `task.dead.letter`: the original, with headers that say where and why it failed."""
    task = place.task
    ours = {
        "standfast-topic": place.topic,
        "standfast-partition": str(task.partition),
        "standfast-offset": str(record.offset),
        "standfast-error-type": error.kind,
        "standfast-error-message": error.message,
        "standfast-attempts": str(failures),
        "standfast-job": task.job,
        "standfast-task": str(task),
        "standfast-epoch": str(place.epoch),
    }
    # The original's own come first; one of our names among them is of an earlier job's dead letter.
    headers = (*record.headers, *((name, value.encode()) for name, value in ours.items()))
    return Emitted(policy.dead_letter, record.key, record.value, headers)
