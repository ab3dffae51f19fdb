"""What becomes of input on which the job's own code fails (`task.on.error`). Pure.

A `Suspect` is one task from its committed position up to an `end` behind the failure. It is run alone, and its
`Suspect.next` says how: the whole range again, a half of it, one record alone, or not at all any more. Good
halves are committed, so every failure is one of a shorter range, until it is one of a single record. Positions are
offsets where the job has one input; `standby.replica.route` says which offsets they are where it has several.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from standby.api import ValueRefused
from standby.config import JobConfig
from standby.replica.store.overlay import Emitted
from standby.shared import errortext
from standby.shared.model import InputFailures, TaskId

#: An hour: what `task.on.error.limit` counts in.
WINDOW_MS: Final = 3_600_000

#: A transaction that ran out of time is tried again with so many times less input.
_SHRINK: Final = 8

#: A transaction with fewer records, and fewer bytes, takes no time worth speaking of: when it runs out of it, that is
#: Kafka's or the machine's doing, and not its input's.
LARGE_RECORDS: Final = 50_000
LARGE_BYTES: Final = 16 << 20

_FIRST_BACK_OFF_SECONDS: Final = 0.1
_LONGEST_BACK_OFF_SECONDS: Final = 5.0


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


class FailureOf(enum.Enum):
    """What failed of a range of input."""

    CODE = "code"
    """The job's own code: the same range may well go the next time."""
    SIZE = "size"
    """The transaction: Kafka refuses a record in it, for its size as a rule, and will as long as its input is there."""
    TIME = "time"
    """The transaction: it took longer than it may, and will as long as so much is in it."""
    MEMORY = "memory"
    """The job's code, of memory: it may well go with less input at once."""
    VALUE = "value"
    """The job's code, of a value that its serde does not write, and will not as long as its input is there."""


@dataclass(frozen=True, slots=True)
class CodeError:
    """What failed on some input, as it is reported: an error of the job's code, or of the transaction it led to."""

    kind: str
    """The exception's type."""
    message: str
    """Its first line."""
    traceback: str = field(default="", compare=False)
    """Where it was raised, as `standby.shared.errortext.traceback_of` has it."""
    of: FailureOf = FailureOf.CODE
    """What failed."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


def code_error(error: BaseException) -> CodeError:
    """Return what is kept of an exception; of one that another process has told of, the original's."""
    kind, message = errortext.kind_of(error), errortext.first_line(error, errortext.MESSAGE_CHARACTERS)
    for line in errortext.worker_traceback(error).splitlines()[1:]:
        if line and not line[0].isspace():
            kind, _, message = line[: errortext.MESSAGE_CHARACTERS].partition(": ")
            break
    of = FailureOf.CODE
    # Python's own, and those of Arrow and NumPy.
    if kind.endswith("MemoryError"):
        of = FailureOf.MEMORY
    elif isinstance(error, ValueRefused):
        of = FailureOf.VALUE
    return CodeError(kind, "" if message == kind else message, errortext.traceback_of(error), of)


def failures_at(failures: InputFailures | None, offset: int) -> InputFailures | None:
    """Return the failures that a record tells of, None when they were at another position than ``offset``."""
    return failures if failures is not None and failures.offset == offset and failures.is_any else None


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
    in_time: int | None = None
    """How many offsets may be run at once, after transactions that ran out of time, or the end of a process, perhaps
    for lack of memory; None: as many as ever."""

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
        if (
            self.failures >= policy.attempts
            and not policy.gives_up_records
            and self.is_proven
            and self.error.of is FailureOf.CODE
        ):
            return End()
        if self.at_once is not None and self.is_closing_in:
            return Run(min(self.start + self.at_once, self.end))
        most = self.end if self.in_time is None else self.start + self.in_time
        if not self.is_isolating or self.bad is None:
            return Run(min(self.end, most), back_off_seconds(self.tries))
        if self.bad - self.start > 1:
            return Run(min(self.start + (self.bad - self.start) // 2, most))
        if self.is_proven and self.tries >= policy.attempts:
            return GiveUp(self.start) if policy.gives_up_records else End()
        return Run(self.bad, back_off_seconds(self.tries))

    def failed(self, committed: int, until: int, error: CodeError, policy: ErrorPolicy) -> Suspect:
        """Return it after the code, or its transaction, has failed within [``committed``, ``until``).

        Failures of halves are not counted in what is reported: `crash_limit` would take each for a replica.
        """
        here = self.reached(committed)
        if error.of is not FailureOf.CODE:
            return _too_much(here, until, error, policy)
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
            in_time=self.in_time and (self.in_time if self.error.of is FailureOf.TIME else 2 * self.in_time),
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


def _too_much(suspect: Suspect, until: int, error: CodeError, policy: ErrorPolicy) -> Suspect:
    """Return the suspect after [`Suspect.start`, ``until``) has failed of what is in it, or comes of it.

    To try the whole range again is of no use, whatever the policy.
    """
    is_alone = until - suspect.start <= 1
    is_late = error.of is FailureOf.TIME
    return replace(
        suspect,
        end=max(suspect.end, until),
        # Told from the first on; but only a single record has failed as often as makes it poison for the leader.
        failures=max(suspect.failures, suspect.tries + 1 if is_alone else min(1, policy.attempts - 1)),
        error=error,
        # Of a range that takes too long no record need be bad.
        bad=until if is_alone or not is_late else suspect.bad,
        is_proven=is_alone or not is_late,
        tries=suspect.tries + 1 if is_alone else 0,
        is_isolating=is_alone or not is_late or suspect.is_isolating,
        at_once=None,
        in_time=max(1, (until - suspect.start) // _SHRINK) if is_late else suspect.in_time,
    )


def suspect_at_start(policy: ErrorPolicy, failures: InputFailures | None, committed: int) -> Suspect | None:
    """Return what a new active is to be suspected of after earlier ``failures``; None: of nothing."""
    if failures is None:
        return None
    error = CodeError("ProcessEnded", failures.reason)
    at_once = crash_limit(policy, failures)
    if at_once is None:
        # So that another end of a process, should there be one, can be put down to it, or not.
        if not failures.is_apart or failures.count >= policy.attempts:
            return None
        # With `skip` the same comes about later, and closes in on a record that can be left out.
        most = None if policy.gives_up_records else max(1, policy.batch_max >> 4 * (failures.count + 1))
        return Suspect(committed, committed + policy.batch_max, failures.count, error, in_time=most)
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


#: So much of key and value has a dead letter of a record that is too large for one.
SHORT_BYTES: Final = 1_024

#: A record's headers, in order; a name may come twice, and a value may be missing.
Headers = Sequence[tuple[str, "bytes | None"]]


@dataclass(frozen=True, slots=True)
class InputRecord:
    """One record of an input topic, as it lies there."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    unreadable_until: int | None = None
    """Where the batch ends that it lies in and that nobody can read; None: it can be read, or lies in no such one."""


@dataclass(frozen=True, slots=True)
class FailedAt:
    """Where the job's code failed on a record."""

    topic: str
    task: TaskId
    epoch: int


def dead_letter(
    record: InputRecord,
    place: FailedAt,
    failures: int,
    error: CodeError,
    policy: ErrorPolicy,
    *,
    is_short: bool = False,
) -> Emitted:
    """Return the record for `task.dead.letter`: the original, with headers that say where and why it failed.

    With ``is_short`` no more than the beginning of key and value, and none of the original's headers: the original is
    too large for the topic. A header says so.
    """
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
    if is_short:
        ours["standfast-truncated"] = (
            f"key of {len(record.key or b'')} bytes, value of {len(record.value or b'')} bytes, "
            f"{len(record.headers)} headers"
        )
        record = replace(
            record,
            key=record.key and record.key[:SHORT_BYTES],
            value=record.value and record.value[:SHORT_BYTES],
            headers=(),
        )
    # The original's own come first; one of our names among them is of an earlier job's dead letter.
    headers = (*record.headers, *((name, value.encode()) for name, value in ours.items()))
    return Emitted(policy.dead_letter, record.key, record.value, headers)
