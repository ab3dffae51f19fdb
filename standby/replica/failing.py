"""Decides how input is handled on which the job's code fails (`task.on.error`). Pure.

A `Suspect` is one task from its committed position up to an `end` beyond the failure. It is run alone, and
`Suspect.next` decides how: the whole range again, half of it, a single record, or not any more. Good halves are
committed, so the failing range shrinks until it is a single record. Positions are offsets if the job has one input;
`standby.replica.route` maps them to offsets if it has several.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from standby.api import ValueRefused
from standby.config import JobConfig
from standby.replica.outbox import Emitted, Headers
from standby.shared import errortext
from standby.shared.model import InputFailures, TaskId

#: The window of `task.on.error.limit`: one hour.
WINDOW_MS: Final = 3_600_000

#: After a transaction timed out, the retry's input is smaller by this factor.
_SHRINK: Final = 8

#: A transaction with fewer records and fewer bytes is fast: if it times out, Kafka or the machine is the cause, not
#: its input.
LARGE_RECORDS: Final = 50_000
LARGE_BYTES: Final = 16 << 20

#: Ends of the names of errors about a lack of memory: those of Python, Arrow and NumPy.
_OF_MEMORY: Final = ("MemoryError", "ArrowCapacityError")

#: What Arrow says when the values of a column are more than the 2 GiB of one of its arrays.
_OVER: Final = ("overflow while concatenating", "overflow when concatenating", "overflowed binary array")

_FIRST_BACK_OFF_SECONDS: Final = 0.1
_LONGEST_BACK_OFF_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The keys `task.on.error…` of one job."""

    on_error: str
    attempts: int
    limit: int
    batch_max: int
    """Maximum number of positions in a batch."""
    topics: tuple[str, ...]
    """The inputs."""
    dead_letter: str = ""

    @property
    def gives_up_records(self) -> bool:
        """Whether records may be skipped at all."""
        return self.on_error != "fail"

    def is_beyond_limit(self, given_up_ms: Sequence[int], now_ms: int) -> bool:
        """Return whether another given-up record, besides those at ``given_up_ms``, would exceed the hourly limit."""
        recent = sum(each > now_ms - WINDOW_MS for each in given_up_ms)
        return self.limit >= 0 and recent >= self.limit


def error_policy(config: JobConfig) -> ErrorPolicy:
    """Return the job's configuration for failing records."""
    return ErrorPolicy(
        on_error=config.on_error,
        attempts=config.error_attempts,
        limit=config.error_limit,
        # A batch may have this many records of each input; only the feed knows the exact split.
        batch_max=config.batch_max_records * len(config.inputs),
        topics=config.inputs,
        dead_letter=config.dead_letter_topic,
    )


class FailureOf(enum.Enum):
    """What failed on a range of input."""

    CODE = "code"
    """The job's code: the same range may succeed next time."""
    SIZE = "size"
    """The transaction: Kafka refuses a record, usually for its size, and will again for the same input."""
    TIME = "time"
    """The transaction: it timed out, and will again with as much content."""
    MEMORY = "memory"
    """The job's code ran out of memory: it may succeed with less input at once."""
    VALUE = "value"
    """The job's code wrote a value that its serde does not support, and will again for the same input."""


@dataclass(frozen=True, slots=True)
class CodeError:
    """A failure on some input, as reported: an error of the job's code, or of the resulting transaction."""

    kind: str
    """The exception's type."""
    message: str
    """Its first line."""
    traceback: str = field(default="", compare=False)
    """Where it was raised, as returned by `standby.shared.errortext.traceback_of`."""
    of: FailureOf = FailureOf.CODE
    """What failed."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


def code_error(error: BaseException) -> CodeError:
    """Return the description of an exception; for one reported by another process, that of the original."""
    kind, message = errortext.kind_of(error), errortext.first_line(error, errortext.MESSAGE_CHARACTERS)
    if quoted := errortext.worker_summary(error):
        kind, _, message = quoted.partition(": ")
    of = FailureOf.CODE
    is_over = kind.endswith("ArrowInvalid") and any(each in message for each in _OVER)
    if is_over or kind.endswith(_OF_MEMORY):
        of = FailureOf.MEMORY
    elif isinstance(error, ValueRefused):
        of = FailureOf.VALUE
    return CodeError(kind, "" if message == kind else message, errortext.traceback_of(error), of)


def failures_at(failures: InputFailures | None, offset: int) -> InputFailures | None:
    """Return ``failures`` if they occurred at ``offset``; None otherwise."""
    return failures if failures is not None and failures.offset == offset and failures.is_any else None


def crash_limit(policy: ErrorPolicy, failures: InputFailures | None) -> int | None:
    """Return how many offsets a new active may run at once after ``failures``; None: no limit.

    The end of the whole process cannot be caught, so its cause is isolated from one replica to the next: each
    further failure halves the range that is run at once. Good ranges are committed under the same count, so the
    total number of failures is at most the number of times that a batch can be halved. 0: a single record has ended
    a process, and is not run again.
    """
    if failures is None or not policy.gives_up_records or failures.count < policy.attempts:
        return None
    beyond = failures.count - policy.attempts
    if beyond and max(1, policy.batch_max >> beyond) == 1:
        return 0
    return max(1, policy.batch_max >> (beyond + 1))


@dataclass(frozen=True, slots=True)
class RunAlone:
    """Run the task alone from its committed offset up to ``until``, after a pause."""

    until: int
    after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Skip the next record; ``offset`` is the task's committed position."""

    offset: int


@dataclass(frozen=True, slots=True)
class FailReplica:
    """The replica has failed: `task.on.error` is ``fail``."""


@dataclass(frozen=True, slots=True)
class Clear:
    """The task is no longer a suspect."""


Move = RunAlone | GiveUp | FailReplica | Clear


@dataclass(frozen=True, slots=True)
class Suspect:
    """A task on whose input the job's code fails or may fail."""

    start: int
    """Its committed position."""
    end: int
    """Beyond this position, the task is no longer a suspect."""
    failures: int
    """Number of failures reported at `start`, in this and earlier replicas."""
    error: CodeError
    """The last failure."""
    bad: int | None = None
    """The code fails somewhere in [start, bad); None: not known."""
    is_proven: bool = False
    """Whether [start, bad) itself was run and failed, not only inferred from a good half before it."""
    tries: int = 0
    """Failures from `start` on, with any range."""
    is_isolating: bool = False
    """Whether the range is halved, not only retried."""
    is_given_up: bool = False
    """Whether the record at `start` is skipped without being run, because it ended processes."""
    at_once: int | None = None
    """How many offsets may be run at once, after ends of processes; None: no limit."""
    in_time: int | None = None
    """How many offsets may be run at once, after transactions that timed out, or the end of a process, perhaps for
    lack of memory; None: no limit."""

    @property
    def is_closing_in(self) -> bool:
        """Whether it is run in parts that shrink with each end of a process."""
        return self.at_once is not None and not self.is_isolating

    def next(self, policy: ErrorPolicy) -> Move:
        """Return the next step for this suspect."""
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
            return FailReplica()
        if self.at_once is not None and self.is_closing_in:
            return RunAlone(min(self.start + self.at_once, self.end))
        most = self.end if self.in_time is None else self.start + self.in_time
        if not self.is_isolating or self.bad is None:
            return RunAlone(min(self.end, most), back_off_seconds(self.tries))
        if self.bad - self.start > 1:
            return RunAlone(min(self.start + (self.bad - self.start) // 2, most))
        if self.is_proven and self.tries >= policy.attempts:
            return GiveUp(self.start) if policy.gives_up_records else FailReplica()
        return RunAlone(self.bad, back_off_seconds(self.tries))

    def failed(self, committed: int, until: int, error: CodeError, policy: ErrorPolicy) -> Suspect:
        """Return the suspect after the code, or its transaction, failed within [``committed``, ``until``).

        Failures of halves do not count as reported failures: `crash_limit` would take each for the end of a replica.
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
        """Return the suspect after ``committed`` has become the committed offset; itself when nothing changes."""
        if committed == self.start:
            return self
        still_bad = self.bad if self.bad is not None and self.bad > committed else None
        is_closing_in = self.is_closing_in and committed < self.end
        return replace(
            self,
            start=committed,
            # The bad record lies ahead. Keep the count, so that a successor continues the search here instead of
            # retrying the whole batch.
            failures=self.failures if is_closing_in or (self.is_isolating and still_bad is not None) else 0,
            at_once=max(1, (self.end - committed) // 2) if is_closing_in else None,
            in_time=self.in_time and (self.in_time if self.error.of is FailureOf.TIME else 2 * self.in_time),
            bad=still_bad,
            is_proven=False,
            tries=0,
            is_given_up=False,
        )

    def reported(self, where: str, topic: str = "") -> InputFailures | None:
        """Return the failures to report to the leader; None when nothing has failed at the current position.

        ``where`` is as in `describe`, ``topic`` as `InputFailures.topic`.
        """
        if not self.failures:
            return None
        return InputFailures(self.start, self.failures, self.describe(where), topic)

    @property
    def reach(self) -> int:
        """The position up to which the code fails, as far as known."""
        return self.bad or self.end

    def describe(self, where: str) -> str:
        """Return a text with the range and the error; ``where`` describes the range from `start` to `reach`."""
        return f"{where}: {self.error}"


def _too_much(suspect: Suspect, until: int, error: CodeError, policy: ErrorPolicy) -> Suspect:
    """Return the suspect after [`Suspect.start`, ``until``) failed due to its content or its results.

    Retrying the whole range is useless, whatever the policy.
    """
    is_alone = until - suspect.start <= 1
    is_late = error.of is FailureOf.TIME
    return replace(
        suspect,
        end=max(suspect.end, until),
        # Reported from the first failure on, but only a single record may reach the count at which the leader treats
        # it as poison.
        failures=max(suspect.failures, suspect.tries + 1 if is_alone else min(1, policy.attempts - 1)),
        error=error,
        # In a range that takes too long, no single record need be bad.
        bad=until if is_alone or not is_late else suspect.bad,
        is_proven=is_alone or not is_late,
        tries=suspect.tries + 1 if is_alone else 0,
        is_isolating=is_alone or not is_late or suspect.is_isolating,
        at_once=None,
        in_time=max(1, (until - suspect.start) // _SHRINK) if is_late else suspect.in_time,
    )


def suspect_at_start(policy: ErrorPolicy, failures: InputFailures | None, committed: int) -> Suspect | None:
    """Return the suspect that a new active starts with after earlier ``failures``; None: no suspicion."""
    if failures is None:
        return None
    error = CodeError("ProcessEnded", failures.reason)
    at_once = crash_limit(policy, failures)
    if at_once is None:
        # Run it alone, so that another end of the process can be attributed to it, or not.
        if not failures.is_apart or failures.count >= policy.attempts:
            return None
        # If records may be skipped, isolation starts later, and finds a record that can be skipped.
        most = None if policy.gives_up_records else max(1, policy.batch_max >> 4 * (failures.count + 1))
        return Suspect(committed, committed + policy.batch_max, failures.count, error, in_time=most)
    if not at_once and len(policy.topics) > 1 and not failures.topic:
        # The record's input is not known: the record is run once more, after its input has been reported.
        at_once = 1
    if not at_once:
        return Suspect(committed, committed + 1, failures.count, error, is_given_up=True)
    # This many offsets were too many for the previous replica.
    too_many = max(1, policy.batch_max >> (failures.count - policy.attempts))
    return Suspect(committed, committed + too_many, failures.count, error, at_once=at_once)


def suspect_after(failures: InputFailures | None, committed: int, end: int) -> Suspect:
    """Return the suspect for a task whose range [``committed``, ``end``) is to be run alone.

    ``failures`` are the earlier ones at the committed offset.
    """
    known = failures_at(failures, committed)
    return Suspect(committed, end, known.count if known is not None else 0, CodeError("Unknown", ""))


def back_off_seconds(tries: int) -> float:
    """Return how long to wait after ``tries`` consecutive failures of user code or of a feed."""
    return doubled_seconds(tries, _FIRST_BACK_OFF_SECONDS, _LONGEST_BACK_OFF_SECONDS)


def doubled_seconds(tries: int, first_seconds: float, longest_seconds: float) -> float:
    """Return a wait that doubles with each consecutive failure, up to ``longest_seconds``; 0 after no failure."""
    if not tries:
        return 0.0
    # The exponent is bounded, because 2.0 ** tries may overflow.
    return min(first_seconds * 2.0 ** min(tries - 1, 16), longest_seconds)


#: How much of the key and the value a truncated dead letter contains.
SHORT_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record of an input topic, as stored."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    has_unreadable_headers: bool = False
    unreadable_until: int | None = None
    """The end of the unreadable batch that contains it; None: it is readable."""


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
    """Return the record for `task.dead.letter`: the original, with headers that describe the failure.

    With ``is_short``, only the beginning of key and value and none of the original headers, because the original is
    too large for the topic. A header records the truncation, and that the original's headers could not be read.
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
    headers_left_out = f"{len(record.headers)} headers"
    if record.has_unreadable_headers:
        headers_left_out = ours["standfast-truncated"] = "its headers: the name of one is not UTF-8"
    if is_short:
        ours["standfast-truncated"] = (
            f"key of {len(record.key or b'')} bytes, value of {len(record.value or b'')} bytes, {headers_left_out}"
        )
        record = replace(
            record,
            key=record.key and record.key[:SHORT_BYTES],
            value=record.value and record.value[:SHORT_BYTES],
            headers=(),
        )
    # The original headers come first; our names among them stem from an earlier job's dead letter.
    headers = (*record.headers, *((name, value.encode()) for name, value in ours.items()))
    return Emitted(policy.dead_letter, record.key, record.value, headers)
