"""Records on which the job's own code fails, in the kernel as a whole; exactness around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from standby.api import RowError
from standby.errors import CorruptState, Transient
from standby.kernel import probes
from standby.kernel.ports import WriterLost
from standby.shared.model import InputFailures, Phase, Role
from tests.fakes import ledger_job
from tests.memory_lab import MakeLab, having, on_error
from tests.patience import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (lambda _: ValueError("a poisoned record"), "ValueError: a poisoned record"),
        # Of the row topic, partition and offset are named.
        (lambda row: RowError(row, "has no price"), "RowError: the record at offset 12 has no price"),
    ],
    ids=["of the batch", "of a row"],
)
def test_fail_ends_the_replica_after_its_attempts_and_says_where(
    make_lab: MakeLab, error: Callable[[int], Exception], told: str
) -> None:
    runs: list[list[int]] = []

    def step(rows: Any, state: Any, out: Any) -> None:
        values = rows["value"].to_pylist()
        if b"raise" in values:
            runs.append(rows["_offset"].to_pylist())
            raise error(values.index(b"raise"))
        ledger_job.step(rows, state, out)

    lab = make_lab(**on_error("fail"))
    active = lab.begun(step=step)
    with lab.kafka.lock:
        lab.produce(4)
        lab.poison(0)
    active.eventually(lambda: active.status(0).phase is Phase.FAILED)
    assert runs == [[10, 11, 12]] * 3
    failed = active.status(0)
    assert failed.detail == f"poison: input in[0], offsets [10, 13): {told}"
    assert failed.failures == InputFailures(10, 3, failed.detail.removeprefix("poison: "))
    assert active.status(1).phase is Phase.ACTIVE


def test_dead_letters_carry_the_record_and_why(make_lab: MakeLab) -> None:
    headers = (("trace", b"1"), ("trace", b"2"), ("none", None))
    lab = make_lab(**on_error("dead-letter"))
    lab.produce(10)
    lab.poison(0, headers=headers)
    lab.poison(0)
    active = lab.begun(10)
    lab.assert_exact([(0, 5), (0, 6)])
    letters = [each for each in lab.kafka.logs["dead", 0] if not each.is_marker]
    assert [(each.key, each.value) for each in letters] == [(b"0/poison", b"raise")] * 2
    assert letters[0].headers[:3] == headers
    ours = dict(letters[0].headers[3:])
    assert ours == {
        "standfast-topic": b"in",
        "standfast-partition": b"0",
        "standfast-offset": b"5",
        "standfast-error-type": b"ValueError",
        "standfast-error-message": b"a poisoned record",
        "standfast-attempts": b"3",
        "standfast-job": b"ledger",
        "standfast-task": b"ledger/main.0",
        "standfast-epoch": b"1",
    }
    assert dict(letters[1].headers)["standfast-offset"] == b"6"
    # The offset is committed a moment before the record is counted.
    active.eventually(lambda: [each.skipped for each in active.statuses()] == [2, 0])


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_dead_letter_whose_commit_is_lost_comes_once(make_lab: MakeLab, lost: str) -> None:
    """Before the commit took effect, or after: the record is given up once, and never run into the state."""
    lab, struck = make_lab(**on_error("dead-letter")), list[bool]()

    def strike() -> None:
        transactions = [each.transaction for each in lab.kafka.logs["dead", 0]]
        if transactions and not struck:
            struck.append(True)
            assert transactions[0] is not None
            assert transactions[0].outcome is (True if lost == "after" else None)
            raise WriterLost("no answer")

    setattr(lab.kafka, f"{lost}_commit", strike)
    lab.produce(10)
    given_up = lab.poison(0)
    lab.begun(10)
    assert struck
    assert lab.kafka.committed_records("dead", 0) == [(b"0/poison", b"raise")]
    lab.assert_exact([given_up])


@pytest.mark.parametrize(
    ("where", "trouble"),
    [
        ("feed", Transient("no answer")),
        ("feed", CorruptState("it is gone")),
        ("step", CorruptState("a bad block")),
    ],
)
def test_trouble_of_the_feed_or_below_the_step_is_no_failure_of_the_job(
    make_lab: MakeLab, where: str, trouble: Exception
) -> None:
    """State that is found corrupt is restored."""
    troubles = [trouble] * (4 if where == "feed" else 1)

    def look(at: str) -> None:
        if troubles and at == where:
            raise troubles.pop()

    def step(rows: Any, state: Any, out: Any) -> None:
        look("step")
        ledger_job.step(rows, state, out)

    lab = make_lab(**on_error("fail", attempts=1))
    lab.produce(30)
    active = lab.container("a", script=having(on_look=lambda: look("feed")), step=step).activate()
    active.pass_time_until(active.is_processed)
    assert not troubles
    assert all(each.failures is None for each in active.statuses())
    lab.assert_exact()


def test_the_parts_of_a_batch_that_are_well_are_committed_at_once(make_lab: MakeLab) -> None:
    runs: list[tuple[bytes, int]] = []

    def step(rows: Any, state: Any, out: Any) -> None:
        runs.append((rows["key"].to_pylist()[0][:1], rows["_offset"].to_pylist()[0]))
        ledger_job.step(rows, state, out)

    lab = make_lab(**on_error("skip"))
    given_up = lab.poison(1)
    lab.begun(20, step=step)
    assert runs.count((b"1", 0)) >= 3
    # Computed before the other one failed.
    assert runs.count((b"0", 0)) == 1, "it had to be run again"
    lab.assert_exact([given_up])


def test_each_failure_is_news_for_the_leader(make_lab: MakeLab) -> None:
    lab = make_lab(**on_error("skip", attempts=1000))
    active = lab.begun(0)
    lab.poison(0)
    active.eventually(lambda: (active.status(0).failures or InputFailures(0, 0)).count >= 2)
    active.changed.clear()
    assert active.changed.wait(PATIENCE_SECONDS), "no phase changes any more: only a further failure can tell"
    assert {each.phase for each in active.statuses()} == {Phase.ACTIVE}


def test_failures_count_as_reported_once_a_report_with_them_has_left_the_process(make_lab: MakeLab) -> None:
    lab = make_lab(**on_error("skip"))
    container = lab.container("a")
    for task in lab.tasks:
        lab.records.name(task, 0, 1, failures=InputFailures(0, 1, "the container was lost"))
    container.want(0, Role.ACTIVE, 1).await_phase(Phase.ACTIVE)
    drawn = tuple(container.replicas.statuses().values())
    held = [each.active for each in container.replicas.held() if each.active is not None]
    for each in held:
        each.reported = None
    container.replicas.statuses()
    assert [each.is_reported for each in held] == [False, False], "it was only drawn up"
    container.replicas.note_reported(tuple(replace(each, failures=None) for each in drawn))
    assert [each.is_reported for each in held] == [False, False], "not with these failures"
    container.replicas.note_reported(drawn)
    assert [each.is_reported for each in held] == [True, True]


def test_a_bug_of_ours_gives_no_record_up(make_lab: MakeLab) -> None:
    def probe(point: str) -> None:
        if point == probes.STEPPED:
            raise RuntimeError("a bug")

    lab = make_lab(**on_error("skip", attempts=1))
    lab.produce(10)
    active = lab.container("a", probe=probe).activate()
    active.pass_time_until(lambda: active.are(Phase.FAILED))
    assert all(
        "the feed failed 5 times in a row: RuntimeError: a bug" in each.detail for each in active.statuses()
    )
    assert {each.offset for each in lab.kafka.offsets.values()} == {0}
