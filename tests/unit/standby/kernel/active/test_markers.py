"""Kafka leaves markers out in some partitions: nothing committed is lost, nothing aborted is shown.

Or else, when a transaction behind it is lost as well, what is lost is reported.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from standby.kernel import probes
from standby.kernel.ports import WriterLost
from standby.replica.claim import Committed, claim_text
from standby.replica.store.keys import COMMIT
from standby.shared.model import Phase
from standby.shared.naming import transactional_id
from tests.fakes.kafka import offsets_of
from tests.meanwhile import Hold
from tests.memory_lab import WAYS, MakeLab, MemoryContainer, MemoryLab
from tests.patience import PATIENCE_SECONDS

PLACES = ("out", "changelog", "offsets")
LEFT_OUT = [each for count in range(4) for each in itertools.combinations(PLACES, count)]
QUESTIONS = ("committed", "changelog_ends", "stable_ends", "output_ends", "commit_records")

#: Where a transaction is when it is lost, by the hook of the fake.
POINTS = ("before_begin", "after_begin", "before_offsets", "before_commit", "after_commit")

NOT_IN_THE_GATE = pytest.mark.acceptance


def crossed(*sides: Sequence[Any]) -> list[Any]:
    """Return all combinations as parameters; those of the gate have each two values of different sides once or more."""
    numbered = itertools.product(*(enumerate(each) for each in sides))
    return [
        pytest.param(
            *(value for _, value in found),
            marks=NOT_IN_THE_GATE if sum(number for number, _ in found) % len(sides[-1]) else (),
            id="-".join(name_of(value) for _, value in found),
        )
        for found in numbered
    ]


def name_of(value: Any) -> str:
    """Return how a parameter is called; of partitions all of them."""
    return ("+".join(value) or "none") if isinstance(value, tuple) else str(value)


def of_one(make_lab: MakeLab, **config: str) -> MemoryLab:
    lab = make_lab(1, **config)
    lab.clock.hold(*WAYS)
    return lab


@pytest.fixture
def lab(make_lab: MakeLab) -> MemoryLab:
    return of_one(make_lab)


@pytest.fixture
def active(lab: MemoryLab) -> MemoryContainer:
    return lab.begun()


def at_the(number: int, act: Callable[[], None]) -> Callable[[], None]:
    """Return a call that acts the ``number``-th time only."""
    calls = itertools.count(1)
    return lambda: act() if next(calls) == number else None


def once(act: Callable[[], None]) -> Callable[[], None]:
    return at_the(1, act)


def lose() -> None:
    raise WriterLost("no answer for too long")


def leave_out(lab: MemoryLab, names: tuple[str, ...]) -> None:
    """Have the next transaction that ends lack its marker in these partitions of the only task."""
    offsets = offsets_of(transactional_id("cluster", lab.tasks[0]))
    lab.kafka.skipped = {offsets if each == "offsets" else (each, 0) for each in names}


def lose_at(lab: MemoryLab, point: str, left_out: tuple[str, ...], act: Callable[[], None] = lose) -> None:
    """Have the producer lost by ``act`` at a point of the next batch, whose commit or abort lacks these markers."""

    def strike() -> None:
        leave_out(lab, left_out)
        act()

    if point == "after_commit":
        lab.kafka.before_commit = once(lambda: leave_out(lab, left_out))
        lab.kafka.after_commit = once(act)
    else:
        setattr(lab.kafka, point, once(strike))


def successor(lab: MemoryLab, copy: int = 1) -> MemoryContainer:
    """Return another container, which is to be active at epoch 2."""
    return lab.container("b").activate(copy, 2, claimed=True)


#: Input records of a batch: no more than a feed in memory takes at once.
BATCH = 7


def produce_batch(lab: MemoryLab) -> None:
    """Write input of which a feed sees all or none: a batch of its own.

    With more keys than records: what is lost of one is not made good by a later one.
    """
    with lab.kafka.lock:
        lab.produce(BATCH, 10_007)


def goes_on(lab: MemoryLab, last: MemoryContainer, records: int = 20) -> None:
    """Fail unless all is exact now and after more input."""
    last.await_processed()
    lab.kafka.skipped = set()
    last.process(records)
    lab.assert_exact()


def failure(container: MemoryContainer) -> str:
    """Return why the task has failed, once it has."""
    return container.await_phase(Phase.FAILED).status().detail


def await_end(lab: MemoryLab, last: MemoryContainer) -> None:
    """Return once all input is processed, or the task has failed."""
    end = lab.ends()[0]
    last.eventually(
        lambda: last.are(Phase.FAILED) or any(each.input_committed == end for each in last.statuses())
    )


# ---- one commit or abort lacks markers ----


@pytest.mark.parametrize("left_out", ["out", "changelog"])
def test_a_question_for_committed_offsets_that_times_out_aborts_nothing(
    lab: MemoryLab, active: MemoryContainer, left_out: str
) -> None:
    """What is committed and has its marker missing somewhere would be gone there."""
    # Or that would tell, though nothing was answered.
    lab.kafka.is_log_closed = True

    def answer_is_lost() -> None:
        lab.kafka.unanswered["committed"] = 1
        lose()

    lose_at(lab, "after_commit", (left_out,), answer_is_lost)
    lab.produce(20)
    active.eventually(lambda: not lab.kafka.unanswered["committed"])
    active.await_processed()
    assert lab.kafka.sweeps == 0
    goes_on(lab, active)


def test_a_stalled_promotee_of_an_older_epoch_aborts_nothing(lab: MemoryLab, active: MemoryContainer) -> None:
    hold = Hold(probes.RECORD_READ)
    promotee = lab.container("b", probe=hold).activate(1, 2, claimed=True)
    hold.await_reached()
    # The leader has given it up meanwhile: what is open from here on is not its to end.
    active.activate(0, 3, claimed=True).process(20)
    lab.kafka.hanging = {transactional_id("cluster", lab.tasks[0]): {}}
    hold.let_go()
    promotee.await_phase(Phase.FENCED)
    assert lab.kafka.sweeps == 0


@pytest.mark.parametrize("is_answered", [True, pytest.param(False, marks=NOT_IN_THE_GATE)], ids=["", "slow"])
@pytest.mark.parametrize(
    ("point", "left_out", "last"),
    crossed(POINTS, LEFT_OUT, ["same", "other"]),
)
def test_wherever_a_batch_is_lost_and_whatever_markers_are_left_out_all_is_exact(
    lab: MemoryLab,
    active: MemoryContainer,
    point: str,
    left_out: tuple[str, ...],
    last: str,
    is_answered: bool,
) -> None:
    """Out of the batch's commit, or of the abort by which its successor ends it: it itself, or another container."""
    is_lost, go_on = threading.Event(), threading.Event()

    def lose_it() -> None:
        is_lost.set()
        if last == "other":
            assert go_on.wait(PATIENCE_SECONDS)
        if not is_answered:
            lab.kafka.unanswered.update(QUESTIONS)
        lose()

    lose_at(lab, point, left_out, lose_it)
    produce_batch(lab)
    assert is_lost.wait(PATIENCE_SECONDS)
    owner = active if last == "same" else successor(lab).await_phase(Phase.ACTIVE)
    go_on.set()
    goes_on(lab, owner, 40)


#: What is reported where something is lost.
CHANGES = "what was committed to the changelog is lost"
OUTPUTS = "not visible in out-0 (at and before"


@pytest.mark.parametrize(
    ("left_out", "point", "number", "told"),
    [
        (("changelog", "offsets"), "before_record", 1, CHANGES),
        (("changelog", "offsets"), "before_commit", 1, CHANGES),
        (("changelog", "offsets"), "before_commit", 2, ""),
        (("out",), "before_begin", 1, ""),
        (("out",), "before_offsets", 1, OUTPUTS),
        (("out",), "before_commit", 1, OUTPUTS),
        (("out",), "before_commit", 2, ""),
        (("out",), "after_commit", 1, ""),
        # The first one behind shows the commit, the second is a claim, and the third a batch.
        (("changelog", "out", "offsets"), "before_commit", 3, OUTPUTS),
    ],
)
def test_a_commit_lacks_markers_and_a_transaction_behind_it_is_lost(
    lab: MemoryLab, active: MemoryContainer, left_out: tuple[str, ...], point: str, number: int, told: str
) -> None:
    """The ``number``-th one behind it: all is exact, or what is lost is reported."""
    is_lost = threading.Event()

    def lose_it() -> None:
        is_lost.set()
        lose()

    lab.kafka.before_commit = once(lambda: leave_out(lab, left_out))
    produce_batch(lab)
    active.await_processed()
    setattr(lab.kafka, point, at_the(number, lose_it))
    for _ in range(number):
        produce_batch(lab)
        await_end(lab, active)
    assert is_lost.is_set()
    if told:
        assert told in failure(active)
    else:
        goes_on(lab, active, 40)


# ---- a successor is lost on its way, too ----


@pytest.mark.parametrize(
    ("left_out", "second", "first"),
    crossed(
        LEFT_OUT,
        ["before_sweep", "before_begin", "after_begin", "before_commit", "after_commit"],
        ["before_commit", "after_commit", "before_offsets"],
    ),
)
def test_wherever_a_takeover_is_lost_on_its_way_all_is_exact(
    lab: MemoryLab, active: MemoryContainer, first: str, second: str, left_out: tuple[str, ...]
) -> None:
    """Not each of them sweeps."""

    def lose_both() -> None:
        setattr(lab.kafka, second, once(lose))
        lose()

    lose_at(lab, first, left_out, lose_both)
    lab.produce(20)
    await_end(lab, active)
    if active.are(Phase.FAILED):
        # The abort of what was to show the batch's changes has taken them away.
        assert (first, "changelog" in left_out) == ("after_commit", True)
        assert CHANGES in failure(active)
    else:
        goes_on(lab, active, 40)


# ---- offsets and changelog do not belong together ----


def test_offsets_that_kafka_forgot_are_those_of_the_last_commit(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    """A job may be killed or parked for longer than Kafka keeps offsets."""
    active.close()
    lab.kafka.offsets.clear()
    lab.produce(20)
    successor(lab, 0).await_processed()
    lab.assert_exact()


def test_a_changelog_that_lost_its_end_is_no_state_of_the_committed_offsets(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    kept = len(lab.kafka.logs["changelog", 0])
    active.process(20)
    active.close()
    del lab.kafka.logs["changelog", 0][kept:]
    found = failure(successor(lab, 0))
    assert "but its changelog has commits up to number" in found
    assert "delete the job and submit it again" in found


def test_a_standby_is_not_promoted_whose_changelog_lost_its_end_meanwhile(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    """Its state has what the committed offsets belong to, but nobody after it would."""
    kept = len(lab.kafka.logs["changelog", 0])
    standby = lab.container("b").stand_by()
    active.process(20)
    end = len(lab.kafka.logs["changelog", 0])
    standby.await_all(lambda each: each.applied == end)
    active.close()
    # The promotion is to find out, rather than the replay, which would replace the state.
    for reader in lab.kafka.readers:
        reader.is_deaf = True
    with lab.kafka.lock:
        del lab.kafka.logs["changelog", 0][kept:]
    assert f"its state is at {end}, past the end {kept}" in failure(standby.activate(1, 2, claimed=True))


def test_a_changelog_without_commit_records_gets_its_first_with_the_claim(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    """As a release before them has left it."""
    active.close()
    log = lab.kafka.logs["changelog", 0]
    log[:] = [each for each in log if each.key != COMMIT]
    (where,) = lab.kafka.offsets
    lab.kafka.offsets[where] = Committed(lab.kafka.offsets[where].offset, claim_text(1, "run"))
    before = len(log)
    later = successor(lab, 0)
    later.await_phase(Phase.ACTIVE)
    assert log[before].key == COMMIT
    goes_on(lab, later)
    assert lab.kafka.sweeps == 0
