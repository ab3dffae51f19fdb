"""Two faults in a row: a commit lacks markers, and a transaction behind it is lost. Nothing is wrong without a word."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standby.kernel.ports import WriterLost
from standby.model import Phase, Role
from standby.naming import transactional_id
from tests.fakes import ledger_job
from tests.fakes.kafka import offsets_of
from tests.memory_lab import WAYS, Make, MemoryContainer, MemoryLab
from tests.patience import PATIENCE_SECONDS

PLACES = ("out", "changelog", "offsets")
LEFT_OUT = [each for count in (1, 2, 3) for each in itertools.combinations(PLACES, count)]

#: Where a transaction is when it is lost, by the hook of the fake.
POINTS = ("before_begin", "before_record", "after_begin", "before_offsets", "before_commit", "after_commit")


@pytest.fixture
def lab(tmp_path: Path) -> MemoryLab:
    lab = MemoryLab(tmp_path, 1)
    lab.clock.hold(*WAYS)
    return lab


def at_the(number: int, act: Callable[[], None]) -> Callable[[], None]:
    """Return a call that acts the ``number``-th time only."""
    calls = itertools.count(1)
    return lambda: act() if next(calls) == number else None


def leave_out(lab: MemoryLab, names: tuple[str, ...]) -> None:
    """Have the next transaction that ends lack its marker in these partitions of the only task."""
    offsets = offsets_of(transactional_id("cluster", lab.tasks[0]))
    lab.kafka.skipped = {offsets if each == "offsets" else (each, 0) for each in names}


#: Input records of a batch: no more than a feed in memory takes at once.
BATCH = 7

#: More keys than records: what is lost of one is not made good by a later one.
KEYS = 10_007


def produce(lab: MemoryLab, count: int) -> None:
    """Write so many input records of which a feed sees all or none: a batch of its own."""
    with lab.kafka.lock:
        lab.produce(count, KEYS)


def has_failed(container: MemoryContainer) -> bool:
    return any(each.phase is Phase.FAILED for each in container.statuses())


def outcome(left_out: tuple[str, ...], point: str, number: int) -> str:
    """Return what of the commit is lost: its part of a partition in which the lost transaction's abort has ended it.

    Where the changelog lacks the marker, the first transaction behind is one that shows it, the second a claim, and the
    third a batch.
    """
    if point in ("before_begin", "after_commit"):
        return "nothing"
    # Before its record has arrived, its partition is in the transaction.
    if "changelog" in left_out and number == 1:
        return "changes"
    is_batch = number == (3 if "changelog" in left_out else 1)
    if "out" in left_out and is_batch and point in ("before_offsets", "before_commit"):
        return "outputs"
    return "nothing"


#: What is told where something is lost.
TOLD = {
    "changes": "what was committed to the changelog is lost",
    "outputs": "not to be seen in out-0 (at and before",
}

CASES = [
    pytest.param(
        *(left_out, point, number, is_same),
        # In the gate: whatever is looked at on its own, each of them once.
        marks=()
        if is_same == (number == 1) and number < 3 and left_out in (("out",), ("changelog", "offsets"))
        else pytest.mark.acceptance,
        id=f"{'-'.join(left_out)}, {number} {point}, {'same' if is_same else 'other'}",
    )
    for left_out in LEFT_OUT
    for number in (1, 2, 3)
    for point in POINTS
    for is_same in (True, False)
]


@pytest.mark.parametrize(("left_out", "point", "number", "is_same"), CASES)
def test_a_commit_lacks_markers_and_a_transaction_behind_it_is_lost(
    lab: MemoryLab, start: Make, left_out: tuple[str, ...], point: str, number: int, is_same: bool
) -> None:
    """The ``number``-th one behind it, in the same container as its successor or in another."""
    active = last = begun(lab, start)
    lab.kafka.before_commit = at_the(1, lambda: leave_out(lab, left_out))
    produce(lab, BATCH)
    active.await_processed()
    assert not lab.kafka.skipped

    is_lost, go_on = threading.Event(), threading.Event()

    def lose() -> None:
        is_lost.set()
        if not is_same:
            assert go_on.wait(PATIENCE_SECONDS)
        raise WriterLost("no answer for too long")

    setattr(lab.kafka, point, at_the(number, lose))
    while not is_lost.is_set():
        produce(lab, BATCH)
        ends = lab.ends()
        active.eventually(
            lambda: is_lost.is_set() or active.statuses()[0].input_committed == ends[0]  # noqa: B023
        )
    if not is_same:
        last = start("b")
        lab.name(1, 2, claimed=True)
        last.want(1, Role.ACTIVE, 2)
        last.await_phase(Phase.ACTIVE, Phase.FAILED)
    go_on.set()
    judge(lab, last, outcome(left_out, point, number))


def begun(lab: MemoryLab, start: Make) -> MemoryContainer:
    """Return an active that has processed a batch."""
    lab.name(0, 1)
    active = start("a")
    active.want(0, Role.ACTIVE, 1)
    produce(lab, BATCH)
    active.await_processed()
    return active


def judge(lab: MemoryLab, last: MemoryContainer, lost: str) -> None:
    """All is exact and goes on, or else what is lost is told."""
    ends = lab.ends()
    last.eventually(
        lambda: has_failed(last) or any(each.input_committed == ends[0] for each in last.statuses())
    )
    if has_failed(last):
        (status,) = last.statuses()
        assert lost in TOLD, status.detail
        assert TOLD[lost] in status.detail
        return
    assert lost == "nothing"
    produce(lab, 40)
    last.await_processed()
    lab.assert_exact()


@pytest.mark.parametrize("has_state", [True, False], ids=["state", "no state"])
def test_offsets_alone_hang_and_a_batch_that_has_just_begun_is_lost_nothing_is_told(
    lab: MemoryLab, start: Make, monkeypatch: pytest.MonkeyPatch, has_state: bool
) -> None:
    """The newest transaction in the coordinator's log is that of the batch, and not one whose record did not arrive."""
    if not has_state:
        monkeypatch.setattr(ledger_job, "step", stateless)
    active = begun(lab, start)
    lab.kafka.before_commit = at_the(1, lambda: leave_out(lab, ("offsets",)))
    produce(lab, BATCH)
    active.await_processed()
    lab.kafka.after_begin = at_the(1, lost)
    produce(lab, BATCH)
    active.await_processed()
    produce(lab, BATCH)
    active.await_processed()
    assert len(lab.kafka.committed_records("out", 0)) == 4 * BATCH


def test_a_commit_that_is_to_be_seen_by_a_transaction_of_which_no_record_arrives_is_told(
    lab: MemoryLab, start: Make
) -> None:
    """The abort ends both in the changelog: only the coordinator's log knows what became of the first one."""
    active = begun(lab, start)
    lab.kafka.before_commit = at_the(1, lambda: leave_out(lab, ("changelog", "offsets")))
    lab.kafka.after_commit = at_the(1, lost)
    lab.kafka.before_record = at_the(2, lost)
    produce(lab, BATCH)
    judge(lab, active, "changes")


@pytest.mark.parametrize("ends", ["by its commit", "by an abort"])
def test_what_hangs_in_an_output_is_ended_by_the_next_commit_there_and_by_nothing_else(
    lab: MemoryLab, start: Make, ends: str
) -> None:
    """Also of a commit that another container has made, and did not live to look at."""
    active = begun(lab, start)
    lab.kafka.before_commit = at_the(1, lambda: leave_out(lab, ("out",)))
    lab.kafka.after_commit = at_the(1, lost)
    produce(lab, BATCH)
    active.await_processed()
    assert lab.kafka.stable_end(("out", 0)) < len(lab.kafka.logs["out", 0])
    if ends == "by an abort":
        lab.kafka.before_commit = at_the(1, lost)
    produce(lab, BATCH)
    judge(lab, active, "nothing" if ends == "by its commit" else "outputs")


def lost() -> None:
    raise WriterLost("no answer for too long")


def stateless(rows: Any, _state: Any, out: Any) -> None:
    """Copy the input."""
    for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        out.emit(key, value)
