"""Keys, positions, side files, claims: the rules on what may be used and what may continue."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standby.errors import BadConfiguration, CorruptState, Fenced
from standby.replica.claim import (
    CommitRecord,
    Committed,
    StateMismatch,
    batch_of,
    check_aborted,
    check_committed,
    check_last,
    check_record,
    claim_text,
    decode_commit,
    epoch_in,
    fate,
    first_offsets,
    is_committed,
    settled_offsets,
)
from standby.replica.store.keys import POSITION, is_own, prefix, split
from standby.replica.store.origin import (
    BeginningLost,
    Origin,
    Position,
    check_beginning,
    check_state,
    decode_origin,
    decode_position,
    is_too_old,
)
from standby.shared.model import Offsets, TaskId, TaskRecord
from tests.cases import case

TASK = TaskId("job", "main", 2)
NOW = 1_700_000_000_000
ORIGIN = Origin("job", "main", 2, "run", "changelog", "topic-id", 86_400_000)

names = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_-]{0,63}\Z")


@given(names, st.binary())
def test_a_key_splits_into_what_it_was_made_of(store: str, key: bytes) -> None:
    for name in (store, "n" * 64):
        assert split(prefix(name) + key) == (name, key)


@given(st.tuples(names, st.binary()), st.tuples(names, st.binary()))
def test_different_keys_of_different_stores_never_meet(
    one: tuple[str, bytes], two: tuple[str, bytes]
) -> None:
    keys = {prefix(store) + key for store, key in (one, two)}
    assert len(keys) == len({one, two})
    assert [is_own(each) for each in (POSITION, *keys)] == [True, *(False for _ in keys)]


def test_what_is_no_key_of_a_store_is_refused() -> None:
    for key in (b"", POSITION, b"\x05abc", b"\x03ab", b"\x41" + b"a" * 80, b"\x02\xff\xfe"):
        with case(key), pytest.raises(CorruptState):
            split(key)


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_a_position_is_read_as_it_was_written(offset: int, caught_up_ms: int) -> None:
    position = Position(offset, caught_up_ms)
    assert decode_position(position.encode()) == position


def test_a_side_file_is_read_as_it_was_written() -> None:
    written = ORIGIN.at(Position(12, NOW))
    assert decode_origin(written.encode()) == written
    assert written.task == TASK
    # Files of before are read, too: of this format, and at the beginning until the first flush.
    content = json.loads(ORIGIN.encode())
    assert [content[each] for each in ("format", "offset", "caught_up_ms")] == [1, 0, 0]


def test_a_broken_position_or_side_file_is_corrupt() -> None:
    with pytest.raises(CorruptState):
        decode_position(b"12345678")
    for data in (
        b"",
        b"[]",
        b"{",
        b'{"format": 2}',
        ORIGIN.encode().replace(b'"run"', b'"ran"'),
        ORIGIN.encode().replace(b"86400000", b'"86400000"'),
        ORIGIN.encode().replace(b"86400000", b"true"),
    ):
        with case(data), pytest.raises(CorruptState):
            decode_origin(data)


def test_state_that_does_not_fit_is_refused_with_the_reason() -> None:
    fits = Position(100, NOW)
    for flushed in (90, 100):
        check_state(ORIGIN.at(Position(flushed, NOW)), ORIGIN, fits, 100, NOW)
    for found, position, end, reason in (
        (replace(ORIGIN, run="other"), fits, 100, "of run other"),
        (replace(ORIGIN, topic_id="other"), fits, 100, "of topic_id other"),
        (replace(ORIGIN, partition=3), fits, 100, "of partition 3"),
        (ORIGIN, None, 100, "no position"),
        (replace(ORIGIN, offset=101), fits, 200, "although 101 was flushed"),
        (ORIGIN, Position(101, NOW), 100, "past the changelog's end"),
        (ORIGIN, Position(100, NOW - 80_000_000), 100, "up 80000000 ms ago, which is too long"),
    ):
        with case(reason), pytest.raises(CorruptState, match=reason):
            check_state(found, ORIGIN, position, end, NOW)


def test_an_empty_state_needs_the_changelog_from_its_beginning() -> None:
    check_beginning(ORIGIN, 0)
    with pytest.raises(BeginningLost, match="begins at offset 1,"):
        check_beginning(ORIGIN, 1)


def test_old_is_judged_with_a_margin_before_tombstones_go() -> None:
    # The margin is a tenth, and at least five seconds.
    for retention, most in ((100_000, 90_000), (20_000, 15_000)):
        assert not is_too_old(NOW - most, retention, NOW)
        assert is_too_old(NOW - most - 1, retention, NOW)


def test_only_the_named_copy_at_its_epoch_may_go_on() -> None:
    record = TaskRecord(TASK, active=1, epoch=7)
    assert check_record(record, TASK, 1, 7) is record
    for copy, epoch, found in ((0, 7, record), (1, 6, record), (1, 8, record), (1, 7, None)):
        with pytest.raises(Fenced):
            check_record(found, TASK, copy, epoch)


def test_the_newest_claim_of_all_inputs_stops_a_stalled_promotee_and_they_must_agree() -> None:
    def at(epoch: int) -> Committed:
        return Committed(5, claim_text(epoch, "run"))

    for older in ([None], [Committed(5)], [at(3)], [at(3), at(3)], [at(3), None]):
        check_committed(older, TASK, 3)
    for newer in ([at(4)], [at(3), at(4)], [at(4), at(3)], [None, at(4)]):
        with case(newer), pytest.raises(Fenced, match="claimed at epoch 4"):
            check_committed(newer, TASK, 3)
    check_committed([Committed(5), Committed(5)], TASK, 1)
    for mixed in ([at(2), at(3)], [at(3), Committed(5)], [Committed(5), at(3)]):
        with case(mixed), pytest.raises(BadConfiguration, match="different epochs"):
            check_committed(mixed, TASK, 3)


def test_the_claim_carries_epoch_and_run_and_foreign_offset_metadata_is_loud() -> None:
    assert json.loads(claim_text(9, "r-1")) == {"epoch": 9, "run": "r-1"}
    assert json.loads(claim_text(9, "r-1", 12)) == {"epoch": 9, "run": "r-1", "batch": 12}
    assert epoch_in(claim_text(9, "r-1", 12)) == 9
    assert epoch_in("") == 0
    for metadata in ("x", "{}", '{"epoch": "4"}', '{"epoch": true}', "[1]", "3"):
        with case(metadata), pytest.raises(BadConfiguration, match="not ours"):
            epoch_in(metadata)


LAST = CommitRecord(12, 3, "run", Offsets.of(50))


def batch(number: int) -> CommitRecord:
    """Return a commit with an output."""
    return CommitRecord(number, 3, "run", Offsets.of(50), outputs=1)


def test_a_commit_record_is_read_back_as_it_was_written() -> None:
    said = CommitRecord(12, 9, "r-1", Offsets.of(7, 3), changes=4, outputs=2)
    full = replace(LAST, generation=2, unseen=(("out", 3, 17), ("second", 0, 4)))
    for each in (said, LAST, full, batch(12)):
        assert decode_commit(each.encode()) == each
    assert said.end == 18, "itself at 12, four changes, a marker"
    assert (LAST.is_bare, said.is_bare) == (True, False)
    assert LAST.encode() == b'{"batch":12,"epoch":3,"run":"run","offsets":[50],"changes":0,"outputs":0}'
    assert batch_of([Committed(7, said.metadata), Committed(3, said.metadata)]) == 12
    for value in (b"", b"x", b"{}", b"[]", b'{"batch":1}', b'{"offsets":3}'):
        with case(value), pytest.raises(CorruptState, match="no commit record"):
            decode_commit(value)


def test_state_and_offsets_belong_together() -> None:
    for committed, last, expected in (
        (None, None, None),
        (Committed(50, claim_text(3, "run")), None, Offsets.of(50)),
        (Committed(50, LAST.metadata), LAST, Offsets.of(50)),
        # Forgotten; and those of the commit before.
        (None, LAST, Offsets.of(50)),
        (Committed(40, claim_text(3, "run", 11)), LAST, Offsets.of(50)),
        # Brought back by hand, and by a release that writes no commit records.
        (Committed(50), LAST, Offsets.of(50)),
        (Committed(70, claim_text(3, "run")), LAST, Offsets.of(70)),
    ):
        assert settled_offsets([committed], last, TASK) == expected, (committed, last)
    for told, known, reason in (
        (Committed(50, LAST.metadata), None, "its changelog has no commit at all"),
        (Committed(60, claim_text(3, "run", 13)), LAST, "its changelog has commits up to number 12 only"),
        (Committed(49, LAST.metadata), LAST, "commit 50 there, without metadata"),
        (Committed(51), LAST, "commit 50 there, without metadata"),
    ):
        with case(told, reason), pytest.raises(StateMismatch, match=reason):
            settled_offsets([told], known, TASK)


def test_what_is_open_in_the_changelog_ended_as_the_offsets_say() -> None:
    claimed = TaskRecord(TASK, 0, 1, claimed=True)
    told = [Committed(50, claim_text(3, "run", 12))]
    first, one, two, three = (batch(each) for each in (1, 11, 12, 13))
    assert is_committed([two], told, claimed)
    assert is_committed([one, two], told, claimed)
    assert not is_committed([three], told, claimed)
    assert not is_committed([first], [None], TaskRecord(TASK, 0, 1))
    assert not is_committed([three], [Committed(50, claim_text(3, "run"))], claimed)
    with pytest.raises(StateMismatch, match="those up to 12 were committed"):
        is_committed([two, three], told, claimed)
    with pytest.raises(StateMismatch, match="are gone"):
        is_committed([two], [None], claimed)


def test_what_has_nothing_but_offsets_ends_as_what_is_open_beside_it() -> None:
    claimed = TaskRecord(TASK, 0, 1, claimed=True)
    told = [Committed(50, claim_text(3, "run", 12))]
    bare = [replace(batch(each), outputs=0) for each in (11, 12, 13)]
    assert is_committed([batch(12), bare[2]], told, claimed)
    assert not is_committed([bare[1], batch(13)], told, claimed)
    assert is_committed(bare[1:], told, claimed), "the changelog must not be behind the offsets"
    assert not is_committed(bare[2:], told, claimed)


def test_what_became_of_a_batch_is_known_by_what_was_begun_after_it() -> None:
    for after, later, expected in (
        ("nothing", [], None),
        ("a batch", [(60, 1)], True),
        ("the same offsets", [(50, 0)], True),
        ("others", [(40, 0)], False),
        ("others twice", [(40, 0), (40, 0)], False),
        ("others, and a batch", [(40, 0), (60, 1)], False),
    ):
        records = [
            CommitRecord(13 + at, 3, "run", Offsets.of(to), outputs=count)
            for at, (to, count) in enumerate(later)
        ]
        assert fate([batch(12), *records], 0) is expected, after


def test_a_changelog_of_a_newer_epoch_stops_a_stalled_promotee() -> None:
    check_last(None, TASK, 1)
    check_last(LAST, TASK, 3)
    with pytest.raises(Fenced, match="written at epoch 3"):
        check_last(LAST, TASK, 2)


def test_the_first_offset_is_the_committed_one_or_the_start_of_the_run() -> None:
    fresh = TaskRecord(TASK, 0, 1)
    claimed = TaskRecord(TASK, 0, 1, claimed=True)

    def bounds() -> list[tuple[int, int]]:
        return [(10, 90), (3, 5)]

    assert first_offsets([Committed(42)], claimed, "latest", bounds) == Offsets.of(42)
    assert first_offsets([None], fresh, "latest", lambda: [(10, 90)]) == Offsets.of(90)
    assert first_offsets([Committed(42), Committed(4)], claimed, "latest", bounds) == Offsets.of(42, 4)
    assert first_offsets([None, None], fresh, "earliest", bounds) == Offsets.of(10, 3)
    # Partitions that came later were committed at their first record, perhaps one topic's alone.
    assert first_offsets([Committed(0), None], fresh, "latest", bounds) == Offsets.of(0, 5)
    for gone in ([None], [Committed(42), None], [None, Committed(4)], [None, None]):
        with case(gone), pytest.raises(BadConfiguration, match="is gone"):
            first_offsets(gone, claimed, "earliest", bounds)


def test_what_those_after_it_show_to_have_been_committed_is_lost_unless_it_changed_nothing() -> None:
    def changing(number: int, offset: int) -> CommitRecord:
        return CommitRecord(number, 3, "run", Offsets.of(offset), changes=1)

    def bare(number: int, offset: int) -> CommitRecord:
        return CommitRecord(number, 4, "run", Offsets.of(offset))

    for why, later in (
        ("its offsets were taken over", [changing(14, 80), bare(15, 80)]),
        ("another batch followed", [changing(14, 80), changing(16, 90)]),
        ("the second of two", [changing(14, 80), bare(15, 50), changing(16, 90), bare(17, 90)]),
    ):
        with case(why), pytest.raises(StateMismatch, match="was aborted there"):
            check_aborted(later, LAST, TASK)
    for harmless in (
        [],
        [changing(14, 80)],
        [changing(14, 80), bare(15, 50)],
        [changing(14, 50), bare(15, 50)],
        [bare(14, 80), bare(15, 80)],
    ):
        check_aborted(harmless, LAST, TASK)
