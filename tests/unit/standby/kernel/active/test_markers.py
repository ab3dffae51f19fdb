"""Kafka leaves markers out in some partitions: nothing committed is lost, nothing aborted is shown."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from standby.kernel import probes
from standby.kernel.ports import WriterLost
from standby.model import Phase, Role
from standby.naming import transactional_id
from standby.replica.claim import Committed, claim_text
from standby.replica.store.keys import COMMIT
from tests.fakes import ledger_job
from tests.fakes.kafka import offsets_of
from tests.memory_lab import WAYS, MemoryContainer, MemoryLab
from tests.patience import PATIENCE_SECONDS

Make = Callable[..., MemoryContainer]


@pytest.fixture
def lab(tmp_path: Path) -> MemoryLab:
    lab = MemoryLab(tmp_path, 1)
    lab.clock.hold(*WAYS)
    return lab


@pytest.fixture
def active(lab: MemoryLab, start: Make) -> MemoryContainer:
    """Return copy 0, active at epoch 1, with some input behind it."""
    active = begun(lab, start)
    return active


def once(act: Callable[[], None]) -> Callable[[], None]:
    """Return a call that acts the first time only."""
    left = [act]
    return lambda: left.pop()() if left else None


def lose() -> None:
    raise WriterLost("no answer for too long")


@pytest.mark.parametrize("left_out", ["out", "changelog"])
def test_a_question_for_committed_offsets_that_times_out_aborts_nothing(
    lab: MemoryLab, active: MemoryContainer, left_out: str
) -> None:
    """What is committed and has its marker missing somewhere would be gone there."""

    def answer_is_lost() -> None:
        lab.kafka.unanswered["committed"] = 1
        lose()

    def leave_out() -> None:
        lab.kafka.skipped = {(left_out, 0)}

    lab.kafka.before_commit = once(leave_out)
    lab.kafka.after_commit = once(answer_is_lost)
    lab.produce(20)
    active.eventually(lambda: not lab.kafka.unanswered["committed"])
    active.await_processed()
    assert lab.kafka.sweeps == 0
    lab.produce(20)
    active.await_processed()
    lab.assert_exact()


def test_a_stalled_promotee_of_an_older_epoch_aborts_nothing(
    lab: MemoryLab, active: MemoryContainer, start: Make
) -> None:
    stalled, go_on = threading.Event(), threading.Event()

    def stall(point: str) -> None:
        if point == probes.RECORD_READ:
            stalled.set()
            assert go_on.wait(PATIENCE_SECONDS)

    promotee = start("b", probe=stall)
    lab.name(1, 2, claimed=True)
    promotee.want(1, Role.ACTIVE, 2)
    assert stalled.wait(PATIENCE_SECONDS)
    # The leader has given it up meanwhile: what is open from here on is not its to end.
    lab.name(0, 3, claimed=True)
    active.want(0, Role.ACTIVE, 3)
    lab.produce(20)
    active.await_processed()
    lab.kafka.hanging = {transactional_id("cluster", lab.tasks[0]): {}}
    go_on.set()
    promotee.await_phase(Phase.FENCED)
    assert lab.kafka.sweeps == 0


@pytest.mark.parametrize("fault", ["a record does not arrive", "the marker is left out again"])
def test_what_hangs_is_swept_until_the_marker_is_there(
    lab: MemoryLab, active: MemoryContainer, fault: str
) -> None:
    out = {("out", 0)}

    def lose_it() -> None:
        lab.kafka.skipped = set(out)
        lose()

    def fail() -> None:
        if fault == "a record does not arrive":
            lab.kafka.undelivered = set(out)
        else:
            lab.kafka.skipped = set(out)

    lab.kafka.before_commit = once(lose_it)
    lab.kafka.before_sweep = once(fail)
    lab.produce(20)
    active.await_processed()
    assert lab.kafka.sweeps == 2
    lab.assert_exact()


def test_a_batch_that_is_lost_while_it_is_written_is_not_doubled(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    """Some of it may have arrived when its producer is lost, and its abort have no marker there."""

    def lose_it() -> None:
        lab.kafka.skipped = {("out", 0)}
        lose()

    lab.kafka.before_offsets = once(lose_it)
    lab.produce(20)
    active.await_processed()
    assert not lab.kafka.skipped
    lab.produce(20)
    active.await_processed()
    lab.assert_exact()


def test_offsets_that_kafka_forgot_are_those_of_the_last_commit(
    lab: MemoryLab, active: MemoryContainer, start: Make
) -> None:
    """A job may be killed or parked for longer than Kafka keeps offsets."""
    active.close()
    lab.kafka.offsets.clear()
    lab.produce(20)
    lab.name(0, 2, claimed=True)
    later = start("b")
    later.want(0, Role.ACTIVE, 2)
    later.await_processed()
    lab.assert_exact()


def failure(container: MemoryContainer) -> str:
    """Return why the task has failed, once it has."""
    container.await_phase(Phase.FAILED)
    (status,) = container.statuses()
    return status.detail


def test_a_changelog_that_was_made_again_is_no_state_of_the_committed_offsets(
    lab: MemoryLab, active: MemoryContainer, start: Make
) -> None:
    active.close()
    lab.kafka.logs["changelog", 0].clear()
    lab.name(0, 2, claimed=True)
    later = start("b")
    later.want(0, Role.ACTIVE, 2)
    found = failure(later)
    assert "and its changelog has no commit at all" in found
    assert "delete the job and submit it anew" in found


def test_a_changelog_that_lost_its_end_is_no_state_of_the_committed_offsets(
    lab: MemoryLab, active: MemoryContainer, start: Make
) -> None:
    kept = len(lab.kafka.logs["changelog", 0])
    lab.produce(20)
    active.await_processed()
    active.close()
    del lab.kafka.logs["changelog", 0][kept:]
    lab.name(0, 2, claimed=True)
    later = start("b")
    later.want(0, Role.ACTIVE, 2)
    assert "and its changelog has commits up to number" in failure(later)


def test_offsets_that_somebody_else_committed_are_no_longer_those_of_the_state(
    lab: MemoryLab, active: MemoryContainer, start: Make
) -> None:
    active.close()
    (where,) = lab.kafka.offsets
    right = lab.kafka.offsets[where].offset
    lab.kafka.offsets[where] = Committed(5)
    lab.name(0, 2, claimed=True)
    later = start("b")
    later.want(0, Role.ACTIVE, 2)
    assert f"commit {right} there, without metadata" in failure(later)
    lab.kafka.offsets[where] = Committed(right)
    lab.name(0, 3, claimed=True)
    later.want(0, Role.ACTIVE, 3)
    lab.produce(20)
    later.await_processed()
    lab.assert_exact()


def test_a_changelog_without_commit_records_gets_its_first_with_the_claim(
    lab: MemoryLab, active: MemoryContainer, start: Make
) -> None:
    """As a release before them has left it."""
    active.close()
    log = lab.kafka.logs["changelog", 0]
    log[:] = [each for each in log if each.key != COMMIT]
    (where,) = lab.kafka.offsets
    lab.kafka.offsets[where] = Committed(lab.kafka.offsets[where].offset, claim_text(1, "run"))
    before = len(log)
    lab.name(0, 2, claimed=True)
    later = start("b")
    later.want(0, Role.ACTIVE, 2)
    later.await_phase(Phase.ACTIVE)
    assert log[before].key == COMMIT
    lab.produce(20)
    later.await_processed()
    lab.assert_exact()
    assert lab.kafka.sweeps == 0


#: Where a batch is when its container is lost, by the hook of the fake.
POINTS = ("before_begin", "after_begin", "before_offsets", "before_commit", "after_commit")
PLACES = ("out", "changelog", "offsets")
LEFT_OUT = [each for count in range(4) for each in itertools.combinations(PLACES, count)]
QUESTIONS = ("committed", "changelog_ends", "stable_ends", "output_ends", "commit_records")


def places_of(lab: MemoryLab, names: tuple[str, ...]) -> set[tuple[str, int]]:
    """Return the partitions of the only task."""
    offsets = offsets_of(transactional_id("cluster", lab.tasks[0]))
    return {offsets if each == "offsets" else (each, 0) for each in names}


@pytest.mark.parametrize(
    "is_answered", [True, pytest.param(False, marks=pytest.mark.acceptance)], ids=["", "slow"]
)
@pytest.mark.parametrize("is_same", [True, False], ids=["same", "other"])
@pytest.mark.parametrize("left_out", LEFT_OUT, ids=lambda each: "-".join(each) or "none")
@pytest.mark.parametrize("point", POINTS)
def test_wherever_a_batch_is_lost_and_whatever_markers_are_left_out_all_is_exact(
    lab: MemoryLab,
    active: MemoryContainer,
    start: Make,
    point: str,
    left_out: tuple[str, ...],
    is_same: bool,
    is_answered: bool,
) -> None:
    """Out of the batch's commit, or of the abort by which its successor ends it."""
    places = places_of(lab, left_out)
    is_lost, go_on = threading.Event(), threading.Event()

    def lose_it() -> None:
        if point != "after_commit":
            lab.kafka.skipped = set(places)
        if not is_answered:
            lab.kafka.unanswered.update(QUESTIONS)
        is_lost.set()
        if not is_same:
            assert go_on.wait(PATIENCE_SECONDS)
        lose()

    if point == "after_commit":
        lab.kafka.before_commit = once(lambda: setattr(lab.kafka, "skipped", set(places)))
    setattr(lab.kafka, point, once(lose_it))
    lab.produce(20)
    assert is_lost.wait(PATIENCE_SECONDS)
    last = active
    if not is_same:
        last = start("b")
        lab.name(1, 2, claimed=True)
        last.want(1, Role.ACTIVE, 2)
        last.await_phase(Phase.ACTIVE, Phase.FAILED)
    go_on.set()
    last.await_processed()
    lab.kafka.skipped = set()
    lab.produce(40)
    last.await_processed()
    lab.assert_exact()


#: Where a successor is when it is lost as well; not each of them sweeps.
TAKEOVER_POINTS = ("before_sweep", "before_begin", "after_begin", "before_commit", "after_commit")


@pytest.mark.parametrize("left_out", LEFT_OUT, ids=lambda each: "-".join(each) or "none")
@pytest.mark.parametrize("second", TAKEOVER_POINTS)
@pytest.mark.parametrize(
    "first", [pytest.param("before_offsets", marks=pytest.mark.acceptance), "before_commit", "after_commit"]
)
def test_wherever_a_takeover_is_lost_on_its_way_all_is_exact(
    lab: MemoryLab,
    active: MemoryContainer,
    first: str,
    second: str,
    left_out: tuple[str, ...],
) -> None:
    places = places_of(lab, left_out)

    def lose_both() -> None:
        if first != "after_commit":
            lab.kafka.skipped = set(places)
        setattr(lab.kafka, first, lambda: None)
        setattr(lab.kafka, second, once(lose))
        lose()

    if first == "after_commit":
        lab.kafka.before_commit = once(lambda: setattr(lab.kafka, "skipped", set(places)))
    setattr(lab.kafka, first, lose_both)
    lab.produce(20)
    active.eventually(
        lambda: (
            any(each.phase is Phase.FAILED for each in active.statuses())
            or all(each.input_committed == lab.ends()[0] for each in active.statuses())
        )
    )
    lab.kafka.skipped = set()
    if any(each.phase is Phase.FAILED for each in active.statuses()):
        # The abort of what was to show the batch's changes has taken them away.
        assert (first, "changelog" in left_out) == ("after_commit", True)
        assert "what was committed to the changelog is lost" in failure(active)
        return
    lab.produce(40)
    active.await_processed()
    lab.assert_exact()


@pytest.fixture
def lab_of_two(tmp_path: Path) -> Iterator[tuple[MemoryLab, Make]]:
    """A job with two outputs, and what starts its containers."""
    lab, made = MemoryLab(tmp_path, 1, **{"task.outputs": "out,second"}), list[MemoryContainer]()
    lab.clock.hold(*WAYS)

    def start(host: str) -> MemoryContainer:
        made.append(lab.container(host, step=to_both))
        return made[-1]

    yield lab, start
    for each in made:
        each.replicas.close(PATIENCE_SECONDS)


def to_both(rows: Any, state: Any, out: Any) -> None:
    """Do what the ledger does, and copy the input to the second output."""
    ledger_job.step(rows, state, out)
    for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        out.emit(key, value, topic="second")


@pytest.mark.parametrize("is_same", [True, False], ids=["same", "other"])
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
@pytest.mark.parametrize("hanging", [("out",), ("second",), ("out", "second"), ()], ids="-".join)
def test_a_marker_that_one_of_several_outputs_lacks_tells_nothing_of_the_others(
    lab_of_two: tuple[MemoryLab, Make], hanging: tuple[str, ...], point: str, is_same: bool
) -> None:
    """Readers of the other have seen the batch, if it was committed: to abort it would show it twice there."""

    lab, start = lab_of_two
    active = begun(lab, start)
    places = places_of(lab, ("changelog", "offsets", *hanging))

    def lose_it() -> None:
        lab.kafka.skipped = set(places) if point == "before_commit" else lab.kafka.skipped
        lose()

    if point == "after_commit":
        lab.kafka.before_commit = once(lambda: setattr(lab.kafka, "skipped", set(places)))
    setattr(lab.kafka, point, once(lose_it))
    lab.produce(20)
    last = active
    if not is_same:
        last = start("b")
        lab.name(1, 2, claimed=True)
        last.want(1, Role.ACTIVE, 2)
    last.await_processed()
    lab.kafka.skipped = set()
    lab.produce(40)
    last.await_processed()
    lab.assert_exact()
    values = [value for _, value in lab.kafka.committed_records("second", 0)]
    assert values == [each.value for each in lab.kafka.logs["in", 0]]


def test_what_only_the_coordinators_log_tells_is_a_named_failure_when_that_may_not_be_read(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    places = places_of(lab, ("changelog", "offsets"))
    lab.kafka.is_log_closed = True
    lab.kafka.before_commit = once(lambda: setattr(lab.kafka, "skipped", set(places)))
    lab.kafka.after_commit = once(lose)
    lab.produce(20)
    assert "nobody knows whether it was committed" in failure(active)
