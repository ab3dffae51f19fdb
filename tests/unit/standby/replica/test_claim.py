"""What commits say of themselves, and when the changelog has lost one that was committed."""

from __future__ import annotations

import pytest

from standby.errors import BadConfiguration
from standby.replica.claim import (
    CommitRecord,
    Committed,
    StateMismatch,
    check_aborted,
    check_committed,
    claim_text,
    decode_commit,
)
from standby.shared.model import Offsets, TaskId

TASK = TaskId("job", "main", 0)
LAST = CommitRecord(batch=10, epoch=1, run="r", offsets=Offsets((5,)), changes=1)


def changing(batch: int, offset: int) -> CommitRecord:
    return CommitRecord(batch, epoch=1, run="r", offsets=Offsets((offset,)), changes=1)


def bare(batch: int, offset: int) -> CommitRecord:
    return CommitRecord(batch, epoch=2, run="r", offsets=Offsets((offset,)))


@pytest.mark.parametrize(
    "later",
    [
        [changing(12, 8), bare(13, 8)],
        [changing(12, 8), changing(14, 9)],
        [changing(12, 8), bare(13, 5), changing(14, 9), bare(15, 9)],
    ],
    ids=["its offsets were taken over", "another batch followed", "the second of two"],
)
def test_what_those_after_it_show_to_have_been_committed_is_lost(later: list[CommitRecord]) -> None:
    with pytest.raises(StateMismatch, match="was aborted there"):
        check_aborted(later, LAST, TASK)


def test_what_was_aborted_or_changed_nothing_is_no_loss() -> None:
    for later in (
        [],
        [changing(12, 8)],
        [changing(12, 8), bare(13, 5)],
        [changing(12, 5), bare(13, 5)],
        [bare(12, 8), bare(13, 8)],
    ):
        check_aborted(later, LAST, TASK)


def test_a_record_tells_no_generation_nor_open_outputs_where_there_are_none() -> None:
    record = CommitRecord(batch=3, epoch=1, run="r", offsets=Offsets((5,)))
    assert record.is_bare
    assert record.encode() == b'{"batch":3,"epoch":1,"run":"r","offsets":[5],"changes":0,"outputs":0}'
    assert decode_commit(record.encode()) == record


def test_an_offset_without_a_claim_beside_a_claimed_one_is_somebody_elses() -> None:
    with pytest.raises(BadConfiguration, match="at different epochs, 0, 1"):
        check_committed([Committed(5), Committed(5, claim_text(1, "r"))], TASK, epoch=1)
    check_committed([Committed(5), Committed(5)], TASK, epoch=1)
