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
from standby.shared.model import Phase, Role
from standby.shared.naming import transactional_id
from tests.fakes import ledger_job
from tests.fakes.kafka import Entry, Transaction, offsets_of
from tests.meanwhile import Hold
from tests.memory_lab import WAYS, MakeLab, MemoryContainer, MemoryLab
from tests.patience import PATIENCE_SECONDS

PLACES = ("out", "changelog", "offsets")
LEFT_OUT = [each for count in range(4) for each in itertools.combinations(PLACES, count)]
QUESTIONS = ("committed", "changelog_ends", "stable_ends", "output_ends", "commit_records")

#: Where a transaction is when it is lost, by the hook of the fake.
POINTS = ("before_begin", "before_record", "after_begin", "before_offsets", "before_commit", "after_commit")

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


def successor(lab: MemoryLab, copy: int = 1, **more: Any) -> MemoryContainer:
    """Return another container, which is to be active at epoch 2."""
    return lab.container("b", **more).activate(copy, 2, claimed=True)


#: Input records of a batch: no more than a feed in memory takes at once.
BATCH = 7


def produce_batch(lab: MemoryLab) -> None:
    """Write input of which a feed sees all or none: a batch of its own.

    With more keys than records: what is lost of one is not made good by a later one.
    """
    with lab.kafka.lock:
        lab.produce(BATCH, 10_007)


def taken_over(
    active: MemoryContainer,
    is_same: bool,
    have: Callable[[Callable[[], None]], None],
    loss: Callable[[], None] = lose,
) -> MemoryContainer:
    """Return the container that goes on after the ``loss`` of a producer: the same, or one that takes over meanwhile.

    ``have`` sets the place at which the producer is lost.
    """
    lab, is_lost, go_on = active.lab, threading.Event(), threading.Event()

    def lose_it() -> None:
        is_lost.set()
        if not is_same:
            assert go_on.wait(PATIENCE_SECONDS)
        loss()

    have(lose_it)
    while not is_lost.is_set():
        produce_batch(lab)
        end = lab.ends()[0]
        active.eventually(
            lambda: is_lost.is_set() or active.status().input_committed == end  # noqa: B023
        )
    last = active
    if not is_same:
        last = successor(lab)
        last.await_phase(Phase.ACTIVE, Phase.FAILED)
    go_on.set()
    return last


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


@pytest.mark.parametrize("fault", ["undelivered", "skipped"])
def test_what_hangs_is_swept_until_the_marker_is_there(
    lab: MemoryLab, active: MemoryContainer, fault: str
) -> None:
    """Whether a record of the sweep does not arrive, or its marker is left out again."""
    lose_at(lab, "before_commit", ("out",))
    lab.kafka.before_sweep = once(lambda: setattr(lab.kafka, fault, {("out", 0)}))
    active.process(20)
    assert lab.kafka.sweeps == 2
    lab.assert_exact()


@pytest.mark.parametrize("is_answered", [True, pytest.param(False, marks=NOT_IN_THE_GATE)], ids=["", "slow"])
@pytest.mark.parametrize(
    ("point", "left_out", "last"),
    crossed([each for each in POINTS if each != "before_record"], LEFT_OUT, ["same", "other"]),
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

    def lose_it() -> None:
        if not is_answered:
            lab.kafka.unanswered.update(QUESTIONS)
        lose()

    owner = taken_over(active, last == "same", lambda act: lose_at(lab, point, left_out, act), lose_it)
    goes_on(lab, owner, 40)


def to_both(rows: Any, state: Any, out: Any) -> None:
    """Do what the ledger does, and copy the input to the second output."""
    ledger_job.step(rows, state, out)
    for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        out.emit(key, value, topic="second")


@pytest.mark.parametrize("is_same", [True, False], ids=["same", "other"])
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
@pytest.mark.parametrize("hanging", [("out",), ("second",), ("out", "second"), ()], ids="-".join)
def test_a_marker_that_one_of_several_outputs_lacks_tells_nothing_of_the_others(
    make_lab: MakeLab, hanging: tuple[str, ...], point: str, is_same: bool
) -> None:
    """Readers of the other have seen the batch, if it was committed: to abort it would show it twice there."""
    lab = of_one(make_lab, **{"task.outputs": "out,second"})
    last = lab.begun(step=to_both)
    lose_at(lab, point, ("changelog", "offsets", *hanging))
    lab.produce(20)
    if not is_same:
        last = successor(lab, step=to_both)
    goes_on(lab, last, 40)
    values = [value for _, value in lab.kafka.committed_records("second", 0)]
    assert values == [each.value for each in lab.kafka.logs["in", 0]]


@pytest.mark.parametrize("left_out", ["changelog", "offsets"])
@pytest.mark.parametrize("is_first", [True, False])
def test_where_nothing_but_claims_hangs_no_output_is_written_to(
    lab: MemoryLab, left_out: str, is_first: bool
) -> None:
    """A record that is there for its abort alone would be seen, where that in turn lacks its marker."""
    lab.name(0, 1)
    if not is_first:
        lab.begun().close()
    claiming = lab.container("a")
    lose_at(lab, "before_commit", (left_out,))
    lab.kafka.before_sweep = once(lambda: lab.kafka.skipped.add(("out", 0)))
    claiming.want(0, Role.ACTIVE, 1).await_phase(Phase.ACTIVE)
    goes_on(lab, claiming)


def test_what_was_committed_and_hangs_in_an_output_outlives_a_claim_that_hangs_in_the_changelog(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    """To end the claim in the output as well would take away what is there of the commit."""
    lose_at(lab, "after_commit", ("out",))
    produce_batch(lab)
    active.await_processed()
    assert lab.kafka.stable_end(("out", 0)) < len(lab.kafka.logs["out", 0])
    lose_at(lab, "before_commit", ("changelog",))
    goes_on(lab, successor(lab))


def test_what_only_the_coordinators_log_tells_is_a_named_failure_when_that_may_not_be_read(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    lab.kafka.is_log_closed = True
    lose_at(lab, "after_commit", ("changelog", "offsets"))
    lab.produce(20)
    assert "it is unknown whether it was committed" in failure(active)


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
        assert TOLD["changes"] in failure(active)
    else:
        goes_on(lab, active, 40)


# ---- a commit lacks markers, and a transaction behind it is lost ----


#: What is reported where something is lost.
TOLD = {
    "changes": "what was committed to the changelog is lost",
    "outputs": "not visible in out-0 (at and before",
}


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


def judge(lab: MemoryLab, last: MemoryContainer, lost: str) -> None:
    """All is exact and goes on, or else what is lost is reported."""
    await_end(lab, last)
    if last.are(Phase.FAILED):
        assert TOLD.get(lost, "nothing is lost") in failure(last)
    else:
        assert lost == "nothing"
        goes_on(lab, last, 40)


CASES = [
    pytest.param(
        *(left_out, point, number, is_same),
        # In the gate: whatever is looked at on its own, each of them once.
        marks=()
        if is_same == (number == 1) and number < 3 and left_out in (("out",), ("changelog", "offsets"))
        else NOT_IN_THE_GATE,
        id=f"{'-'.join(left_out)}, {number} {point}, {'same' if is_same else 'other'}",
    )
    for left_out in LEFT_OUT
    if left_out
    for number in (1, 2, 3)
    for point in POINTS
    for is_same in (True, False)
]


@pytest.mark.parametrize(("left_out", "point", "number", "is_same"), CASES)
def test_a_commit_lacks_markers_and_a_transaction_behind_it_is_lost(
    lab: MemoryLab, active: MemoryContainer, left_out: tuple[str, ...], point: str, number: int, is_same: bool
) -> None:
    """The ``number``-th one behind it, in the same container as its successor or in another."""
    lab.kafka.before_commit = once(lambda: leave_out(lab, left_out))
    produce_batch(lab)
    active.await_processed()
    assert not lab.kafka.skipped
    last = taken_over(active, is_same, lambda act: setattr(lab.kafka, point, at_the(number, act)))
    judge(lab, last, outcome(left_out, point, number))


def stateless(rows: Any, _state: Any, out: Any) -> None:
    """Copy the input."""
    for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        out.emit(key, value)


@pytest.mark.parametrize("step", [ledger_job.step, stateless])
def test_offsets_alone_hang_and_a_batch_that_has_just_begun_is_lost_nothing_is_reported(
    lab: MemoryLab, step: Any
) -> None:
    """The newest transaction in the coordinator's log is that of the batch, and not one whose record did not arrive."""
    active = lab.begun(BATCH, step=step)
    lab.kafka.before_commit = once(lambda: leave_out(lab, ("offsets",)))
    produce_batch(lab)
    active.await_processed()
    lab.kafka.after_begin = once(lose)
    for _ in range(2):
        produce_batch(lab)
        active.await_processed()
    assert len(lab.kafka.committed_records("out", 0)) == 4 * BATCH


def test_a_commit_that_is_to_be_seen_by_a_transaction_of_which_no_record_arrives_is_reported(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    """The abort ends both in the changelog: only the coordinator's log knows what became of the first one."""
    lose_at(lab, "after_commit", ("changelog", "offsets"))
    lab.kafka.before_record = at_the(2, lose)
    produce_batch(lab)
    judge(lab, active, "changes")


@pytest.mark.parametrize("ends", ["by its commit", "by an abort"])
def test_what_hangs_in_an_output_is_ended_by_the_next_commit_there_and_by_nothing_else(
    lab: MemoryLab, active: MemoryContainer, ends: str
) -> None:
    """Also of a commit that another container has made, and did not live to look at."""
    lose_at(lab, "after_commit", ("out",))
    produce_batch(lab)
    active.await_processed()
    assert lab.kafka.stable_end(("out", 0)) < len(lab.kafka.logs["out", 0])
    if ends == "by an abort":
        lab.kafka.before_commit = once(lose)
    produce_batch(lab)
    judge(lab, active, "nothing" if ends == "by its commit" else "outputs")


@pytest.mark.parametrize("is_same", [True, False], ids=["same", "other"])
def test_an_output_that_another_task_hides_is_waited_for_before_anything_there_counts_as_lost(
    lab: MemoryLab, active: MemoryContainer, is_same: bool
) -> None:
    """Kafka ends what its producer has left open after its time-out, and then shows what was committed behind it."""
    others = Transaction()
    with lab.kafka.lock:
        lab.kafka.logs["out", 0].append(Entry(b"key", b"another task's", others))
    produce_batch(lab)
    active.await_processed()

    def end_it() -> None:
        with lab.kafka.lock:
            others.outcome = False
            lab.kafka.lock.notify_all()

    def lose_by(act: Callable[[], None]) -> None:
        lab.clock.later(4, end_it)
        act()

    last = taken_over(
        active, is_same, lambda act: setattr(lab.kafka, "before_commit", once(lambda: lose_by(act)))
    )
    goes_on(lab, last)


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
