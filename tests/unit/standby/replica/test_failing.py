"""What becomes of failing input: the tables of `standby.replica.failing`."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from standby.api import ValueRefused
from standby.replica.failing import (
    Clear,
    CodeError,
    ErrorPolicy,
    FailedAt,
    FailReplica,
    FailureOf,
    GiveUp,
    InputRecord,
    RunAlone,
    Suspect,
    back_off_seconds,
    code_error,
    crash_limit,
    dead_letter,
    error_policy,
    failures_at,
    suspect_after,
    suspect_at_start,
)
from standby.shared.model import InputFailures, TaskId
from tests.fakes.jobs import job_config

SKIP = ErrorPolicy("skip", attempts=3, limit=2, batch_max=40_000, topics=("in",))
FAIL = replace(SKIP, on_error="fail")
TASK = TaskId("job", "main", 4)
ERROR = CodeError("ValueError", "no")


@given(
    batch_max=st.integers(1, 10**9),
    attempts=st.integers(1, 50),
    on_error=st.sampled_from(["skip", "dead-letter"]),
)
def test_each_crash_more_halves_what_is_run_at_once_down_to_one_record_which_is_then_given_up_unrun(
    batch_max: int, attempts: int, on_error: str
) -> None:
    policy = replace(SKIP, batch_max=batch_max, attempts=attempts, on_error=on_error)
    crashes = [InputFailures(7, attempts + each) for each in range(batch_max.bit_length() + 2)]
    limits = [crash_limit(policy, each) for each in crashes]
    halves = [batch_max >> each for each in range(1, batch_max.bit_length())] or [1]
    assert limits == [*halves, *[0] * (len(limits) - len(halves))]
    assert halves[-1] == 1
    assert crash_limit(policy, InputFailures(7, attempts - 1)) is None
    assert crash_limit(policy, None) is None
    assert {crash_limit(replace(policy, on_error="fail"), each) for each in crashes} == {None}


def test_failures_count_at_their_offset_only() -> None:
    known = InputFailures(5, 2)
    assert failures_at(known, 5) is known
    for failures, offset in ((None, 5), (known, 6), (InputFailures(5, 0), 5)):
        assert failures_at(failures, offset) is None, failures


WHOLE = Suspect(10, 18, 0, ERROR)


def test_the_next_move() -> None:
    alone = replace(WHOLE, failures=3, is_proven=True, is_isolating=True)
    for suspect, policy, expected in (
        (WHOLE, SKIP, RunAlone(18)),
        (replace(WHOLE, start=18), SKIP, Clear()),
        (replace(WHOLE, start=19), FAIL, Clear()),
        (replace(WHOLE, failures=1, bad=18, is_proven=True, tries=1), SKIP, RunAlone(18, 0.1)),
        (replace(WHOLE, failures=2, bad=14, is_proven=True, tries=2), FAIL, RunAlone(18, 0.2)),
        (replace(WHOLE, failures=3, bad=18, is_proven=True, tries=3), FAIL, FailReplica()),
        # Failures of earlier replicas are no reason to end before it has failed here.
        (replace(WHOLE, failures=9), FAIL, RunAlone(18)),
        (replace(alone, bad=18, tries=3), SKIP, RunAlone(14)),
        (replace(alone, bad=14, tries=4), SKIP, RunAlone(12)),
        (replace(alone, bad=11, tries=6), SKIP, GiveUp(10)),
        # Alone, but not as often as is asked for; or not yet.
        (replace(alone, bad=11, tries=1), SKIP, RunAlone(11, 0.1)),
        (replace(alone, bad=11, is_proven=False), SKIP, RunAlone(11)),
        # Past what was bad: the rest, whole.
        (replace(WHOLE, start=12, is_isolating=True), SKIP, RunAlone(18)),
        (replace(WHOLE, failures=30, is_given_up=True), SKIP, GiveUp(10)),
    ):
        assert suspect.next(policy) == expected, suspect


@given(st.sets(st.integers(0, 63)), st.integers(1, 64), st.integers(1, 5), st.integers(0, 3))
def test_exactly_the_poisoned_records_are_given_up(
    poison: set[int], length: int, attempts: int, before: int
) -> None:
    policy = replace(SKIP, attempts=attempts)
    poison = {each for each in poison if each < length}
    suspect = suspect_after(InputFailures(0, before), 0, length)
    given_up: list[int] = []
    committed = moves = 0
    while not isinstance(move := suspect.next(policy), Clear):
        moves += 1
        assert moves < 64 * 20
        if isinstance(move, GiveUp):
            assert move.offset == committed
            given_up.append(committed)
            committed += 1
            suspect = suspect.reached(committed)
            continue
        assert isinstance(move, RunAlone)
        assert committed < move.until <= length
        if poison & set(range(committed, move.until)):
            suspect = suspect.failed(committed, move.until, ERROR, policy)
            told = suspect.reported("here")
            assert told is not None
            assert told.offset == committed
            assert told.count >= 1
        else:
            committed = move.until
            suspect = suspect.reached(committed)
    assert committed == length
    assert given_up == sorted(poison)


def test_halves_are_not_reported_as_failures_of_replicas() -> None:
    suspect = Suspect(0, 1000, 0, ERROR)
    counts = []
    for until in (1000, 1000, 1000, 500, 250, 125):
        suspect = suspect.failed(0, until, ERROR, SKIP)
        counts.append(suspect.failures)
    assert counts == [1, 2, 3, 3, 3, 3]
    assert suspect.reported("here") == InputFailures(0, 3, "here: ValueError: no")
    # A good half moves the offset, and the next replica need not begin to count again.
    moved = suspect.reached(60)
    assert (moved.failures, moved.tries, moved.bad, moved.is_proven) == (3, 0, 125, False)
    assert (moved.reach, WHOLE.reach) == (125, 18)
    # Past the bad part nothing is held against it.
    assert suspect.reached(125).reported("here") is None


def test_a_batch_in_parts_that_fails_further_on_counts_anew() -> None:
    suspect = Suspect(0, 20, 2, ERROR, bad=20, is_proven=True, tries=2).failed(10, 15, ERROR, SKIP)
    assert (suspect.start, suspect.bad, suspect.end, suspect.failures, suspect.tries) == (10, 15, 20, 1, 1)
    assert not suspect.is_isolating


def test_what_a_new_active_begins_with() -> None:
    for count, expected in ((2, None), (3, RunAlone(7 + 20_000)), (17, RunAlone(8)), (18, GiveUp(7))):
        failures = InputFailures(7, count, "lost")
        suspect = suspect_at_start(SKIP, failures, 7)
        assert (suspect and suspect.next(SKIP)) == expected, count
        assert suspect_at_start(FAIL, failures, 7) is None, count
        if suspect is not None:
            told = suspect.reported("here")
            assert told is not None
            assert (told.offset, told.count) == (7, count)
    # One that fails where others crashed looks for the record at once.
    crashed = suspect_at_start(SKIP, InputFailures(0, 5, "lost"), 0)
    assert crashed is not None
    assert crashed.next(SKIP) == RunAlone(5_000)
    assert crashed.reached(5_000).next(SKIP) == RunAlone(7_500)
    assert crashed.reached(crashed.end).reported("here") is None
    assert crashed.failed(0, 5_000, ERROR, SKIP).next(SKIP) == RunAlone(2_500)


@pytest.mark.parametrize("policy", [SKIP, FAIL])
def test_after_an_end_that_may_have_been_its_own_a_task_is_run_alone(policy: ErrorPolicy) -> None:
    apart = InputFailures(7, 0, "lost", is_apart=True)
    assert failures_at(apart, 7) == apart
    suspect = suspect_at_start(policy, apart, 7)
    assert suspect is not None
    at_once = policy.batch_max if policy is SKIP else policy.batch_max >> 4
    assert suspect.next(policy) == RunAlone(7 + at_once)
    small = replace(policy, batch_max=1)
    suspect = suspect_at_start(small, apart, 7)
    assert suspect is not None
    assert suspect.next(small) == RunAlone(8)
    assert suspect.reported("here") is None, "nothing has failed"
    assert suspect.reached(7 + policy.batch_max).next(policy) == Clear()
    # From then on parts of it are run, which are smaller with each end.
    narrowed = suspect_at_start(SKIP, InputFailures(7, SKIP.attempts, "lost", is_apart=True), 7)
    assert narrowed == suspect_at_start(SKIP, InputFailures(7, SKIP.attempts, "lost"), 7)


@pytest.mark.parametrize("policy", [SKIP, FAIL])
def test_what_is_too_much_is_tried_with_less_and_counts_as_poison_only_alone(policy: ErrorPolicy) -> None:
    bad = 700
    cases = [(of, 2) for of in (FailureOf.SIZE, FailureOf.TIME, FailureOf.MEMORY, FailureOf.VALUE)]
    for of, attempts in (*cases, (FailureOf.SIZE, 1), (FailureOf.SIZE, 3)):
        policy = replace(policy, attempts=attempts)
        error = CodeError("TooMuch", "", of=of)
        suspect = suspect_after(None, 0, 1_000).failed(0, 1_000, error, policy)
        less = (RunAlone(125), False) if of is FailureOf.TIME else (RunAlone(500), True)
        assert (suspect.next(policy), suspect.is_proven) == less, of
        pair = suspect_after(None, 0, 2).failed(0, 2, error, policy)
        told = 0 if attempts == 1 else 1
        assert (pair.next(policy), pair.tries, pair.failures) == (RunAlone(1), 0, told), of
        while isinstance(move := suspect.next(policy), RunAlone):
            if suspect.start <= bad < move.until:
                suspect = suspect.failed(suspect.start, move.until, error, policy)
                is_alone = move.until - suspect.start == 1
                assert is_alone or suspect.failures < policy.attempts, of
            else:
                suspect = suspect.reached(move.until)
        assert (suspect.start, suspect.tries, suspect.failures) == (bad, attempts, attempts), of
        assert move == (GiveUp(bad) if policy.gives_up_records else FailReplica()), of


def test_with_fail_a_task_whose_process_may_have_ended_for_lack_of_memory_is_run_in_small_parts() -> None:
    found = []
    for count in range(FAIL.attempts):
        suspect = suspect_at_start(FAIL, InputFailures(7, count, "lost", is_apart=True), 7)
        assert suspect is not None
        runs = []
        for _ in range(3):
            move = suspect.next(FAIL)
            assert isinstance(move, RunAlone)
            runs.append(move.until - suspect.start)
            suspect = suspect.reached(move.until)
        found.append(runs)
    most = FAIL.batch_max
    assert found == [[most >> shift, most >> shift << 1, most >> shift << 2] for shift in (4, 8, 12)]
    # What has failed so often is poison for the leader.
    assert suspect_at_start(FAIL, InputFailures(7, FAIL.attempts, "lost", is_apart=True), 7) is None


@given(killer=st.integers(0, 5_000), batch_max=st.integers(1, 30_000), attempts=st.integers(1, 5))
def test_what_ends_processes_is_found_in_as_many_ends_as_a_batch_has_halves(
    killer: int, batch_max: int, attempts: int
) -> None:
    """Each replica begins with what the leader counted: the last report, and one more."""
    policy = replace(SKIP, attempts=attempts, batch_max=batch_max)
    committed = (killer // batch_max) * batch_max
    record = InputFailures(committed, 0)
    for ends in range(attempts + batch_max.bit_length() + 2):
        suspect = suspect_at_start(policy, record, committed)
        while suspect is not None and not isinstance(move := suspect.next(policy), Clear):
            told = suspect.reported("here")
            assert told is not None
            record = told
            assert record.offset == committed
            if isinstance(move, GiveUp):
                assert move.offset == killer
                assert ends <= attempts + max(1, batch_max.bit_length() - 1)
                return
            assert isinstance(move, RunAlone)
            if committed <= killer < move.until:
                break
            committed = move.until
            suspect = suspect.reached(committed)
        else:
            record = InputFailures(committed, 0 if suspect is not None else record.count)
        record = replace(record, count=record.count + 1)
    raise AssertionError("it was never found")


def test_of_several_inputs_nothing_is_given_up_before_it_is_known_of_which_it_is() -> None:
    several = replace(SKIP, topics=("a", "b"))
    for count in (18, 19):
        unknown = suspect_at_start(several, InputFailures(7, count, "lost"), 7)
        assert unknown is not None
        assert (unknown.next(several), unknown.reached(8).next(several)) == (RunAlone(8), Clear()), count
    known = suspect_at_start(several, InputFailures(7, 18, "lost", "b"), 7)
    assert known is not None
    assert (known.next(several), known.reached(8).next(several)) == (GiveUp(7), Clear())


def test_the_limit_is_per_hour() -> None:
    now_ms = 10_000_000
    for limit, ages_ms, is_beyond in (
        (2, [], False),
        (2, [5], False),
        (2, [5, 3_599_999], True),
        (2, [5, 3_600_000], False),
        (0, [], True),
        (-1, [0] * 1000, False),
    ):
        given_up = [now_ms - each for each in ages_ms]
        assert replace(SKIP, limit=limit).is_beyond_limit(given_up, now_ms) is is_beyond, (limit, ages_ms[:3])


def test_the_back_off_doubles_and_ends() -> None:
    assert [back_off_seconds(each) for each in (0, 1, 2, 3, 6, 7)] == [0, 0.1, 0.2, 0.4, 3.2, 5.0]
    assert back_off_seconds(5_000) == 5.0, "however long it fails: no number gets too large for a float"


def test_an_error_is_its_type_and_first_line() -> None:
    for error, text in (
        (ValueError("first\nsecond"), "ValueError: first"),
        (KeyError(), "KeyError"),
        (RuntimeError("\n\n  late "), "RuntimeError: late"),
        (SystemExit(3), "SystemExit: 3"),
    ):
        assert str(code_error(error)) == text
    assert len(code_error(ValueError("x" * 10_000)).message) == 500
    kinds = (
        (ValueError(), FailureOf.CODE),
        (MemoryError(), FailureOf.MEMORY),
        (pa.lib.ArrowCapacityError("array cannot contain more than 2147483646 bytes"), FailureOf.MEMORY),
        (pa.ArrowInvalid("offset overflow while concatenating arrays"), FailureOf.MEMORY),
        (pa.ArrowInvalid("overflow"), FailureOf.CODE),
        (ValueRefused(), FailureOf.VALUE),
    )
    assert [code_error(error).of for error, _ in kinds] == [of for _, of in kinds]


def test_the_policy_comes_from_the_keys() -> None:
    flat = {
        "task.on.error.attempts": "5",
        "task.on.error.limit": "-1",
        "task.batch.max.records": "9",
        "task.dead.letter": "dead",
    }
    assert error_policy(job_config(flat)) == ErrorPolicy("fail", 5, -1, 9, ("in",))
    assert error_policy(job_config({**flat, "task.inputs": "a,b"})).batch_max == 18
    # A topic that is named, but not asked for, gets nothing.
    assert error_policy(job_config({**flat, "task.on.error": "skip"})).dead_letter == ""
    assert error_policy(job_config({**flat, "task.on.error": "dead-letter"})).dead_letter == "dead"


def test_a_dead_letter_of_a_dead_letter_keeps_both_stories() -> None:
    policy = replace(SKIP, on_error="dead-letter", dead_letter="dead")
    record = InputRecord(7, None, b"v", (("standfast-offset", b"3"), ("h", None)))
    letter = dead_letter(record, FailedAt("in", TASK, 12), 3, ERROR, policy)
    assert (letter.topic, letter.key, letter.value) == ("dead", None, b"v")
    headers = list(letter.headers)
    assert headers[:2] == [("standfast-offset", b"3"), ("h", None)]
    assert ("standfast-offset", b"7") in headers[2:]
    assert ("standfast-epoch", b"12") in headers[2:]


def test_a_dead_letter_tells_that_the_headers_of_the_record_could_not_be_read() -> None:
    record = InputRecord(7, None, b"v", has_unreadable_headers=True)
    letter = dead_letter(record, FailedAt("in", TASK, 12), 3, ERROR, SKIP)
    told = b"its headers: the name of one is not UTF-8"
    assert dict(letter.headers)["standfast-truncated"] == told
    letter = dead_letter(record, FailedAt("in", TASK, 12), 3, ERROR, SKIP, is_short=True)
    assert dict(letter.headers)["standfast-truncated"] == b"key of 0 bytes, value of 1 bytes, " + told


def test_a_short_dead_letter_has_the_beginning_of_key_and_value_and_no_headers_but_ours() -> None:
    for key, value, lengths in ((b"k" * 2_000, b"v" * 3_000, (2_000, 3_000)), (None, None, (0, 0))):
        record = InputRecord(7, key, value, (("h", b"1"),))
        letter = dead_letter(record, FailedAt("in", TASK, 12), 3, ERROR, SKIP, is_short=True)
        assert (letter.key, letter.value) == (key and key[:1_024], value and value[:1_024])
        told = "key of {} bytes, value of {} bytes, 1 headers".format(*lengths)
        headers = list(letter.headers)
        assert ("standfast-truncated", told.encode()) in headers
        assert ("h", b"1") not in headers
