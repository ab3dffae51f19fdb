"""Exceptions of every kind from a job's code: each is a failure of its input, told with its traceback, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from standby.errors import BadConfiguration
from standby.shared import wire
from standby.shared.model import Phase, ReplicaStatus
from tests.fakes import ledger_job
from tests.fakes.errors import KINDS
from tests.fakes.feed import MemoryFeed
from tests.memory_lab import MemoryContainer, MemoryLab, active_of


def lab_of(directory: Path, on_error: str) -> MemoryLab:
    dead = {"task.dead.letter": "dead"} if on_error == "dead-letter" else {}
    return MemoryLab(directory, 2, **{"task.on.error": on_error, "task.on.error.attempts": "1", **dead})


def status_of(container: MemoryContainer, partition: int) -> ReplicaStatus | None:
    return next((each for each in container.statuses() if each.replica.task.partition == partition), None)


def has_failed(container: MemoryContainer) -> bool:
    status = status_of(container, 0)
    return status is not None and status.phase is Phase.FAILED


def is_sent(container: MemoryContainer) -> bool:
    """Return whether the control thread can tell the leader how the replicas are."""
    report = wire.Report(1, tuple(container.statuses()))
    return wire.decode_up(wire.encode(report)) == report


@pytest.mark.parametrize("where", ["step", "transform"])
@pytest.mark.parametrize("kind", KINDS)
def test_code_that_raises_anything_fails_its_task_alone_and_says_where(
    tmp_path: Path, kind: str, where: str
) -> None:
    def raises(rows: Any) -> None:
        if b"raise" in rows["value"].to_pylist():
            error = KINDS[kind]()
            raise error

    def step(rows: Any, state: Any, out: Any) -> None:
        if where == "step":
            raises(rows)
        ledger_job.step(rows, state, out)

    def script(feed: MemoryFeed) -> None:
        feed.transform = raises if where == "transform" else feed.transform

    lab = lab_of(tmp_path, "fail")
    lab.produce(6)
    lab.poison(0)
    with active_of(lab, step=step, script=script) as container:
        container.eventually(lambda: has_failed(container))
        assert is_sent(container)
        failed, other = status_of(container, 0), status_of(container, 1)
        assert failed is not None
        assert other is not None
        assert failed.detail.startswith("poison: input in[0], offsets [")
        assert f"): {type(KINDS[kind]()).__name__}" in failed.detail
        assert "raise error" in failed.traceback
        assert "batch.py" not in failed.traceback
        assert (other.phase, other.traceback) == (Phase.ACTIVE, "")
        container.eventually(lambda: (status_of(container, 1) or other).input_committed == 3)
        assert container.replicas.broken is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_on_which_anything_is_raised_is_given_up_with_a_dead_letter(
    tmp_path: Path, kind: str
) -> None:
    def step(rows: Any, state: Any, out: Any) -> None:
        if b"raise" in rows["value"].to_pylist():
            error = KINDS[kind]()
            raise error
        ledger_job.step(rows, state, out)

    lab = lab_of(tmp_path, "dead-letter")
    lab.produce(6)
    given_up = lab.poison(0)
    lab.produce(6)
    with active_of(lab, step=step) as container:
        container.await_processed()
        assert is_sent(container)
        assert container.replicas.broken is None
    lab.assert_exact([given_up])


def refused() -> Any:
    """Raise as a step's import does that failed."""
    try:
        error = KINDS["surrogate"]()
        raise error
    except ValueError as raised:
        raise BadConfiguration(f"task.step: importing flights raised {raised}") from raised


def assert_told_of_the_import(container: MemoryContainer) -> None:
    container.await_phase(Phase.FAILED)
    assert is_sent(container)
    for each in container.statuses():
        assert each.detail.startswith("task.step: importing flights raised half a pair")
        assert "raise error" in each.traceback
    assert container.replicas.broken is None


def test_a_step_that_cannot_be_imported_is_told_with_where_it_failed(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, "skip")
    lab.produce(6)
    with active_of(lab, find_step=refused) as container:
        assert_told_of_the_import(container)


def test_a_feed_that_the_jobs_code_does_not_let_be_made_fails_its_tasks_and_not_the_container(
    tmp_path: Path,
) -> None:
    """The container would end before the leader was told why."""

    def script(_: MemoryFeed) -> None:
        refused()

    lab = lab_of(tmp_path, "skip")
    lab.produce(6)
    with active_of(lab, script=script) as container:
        assert_told_of_the_import(container)


@pytest.mark.parametrize("kind", ["surrogate", "exit"])
def test_a_transform_that_cannot_be_begun_is_told_with_where_it_failed(tmp_path: Path, kind: str) -> None:
    def begin() -> None:
        try:
            error = KINDS[kind]()
            raise error
        except BaseException as raised:
            raise BadConfiguration("task.transform: it raised") from raised

    def script(feed: MemoryFeed) -> None:
        feed.on_start = begin

    lab = lab_of(tmp_path, "skip")
    lab.produce(6)
    with active_of(lab, script=script) as container:
        container.pass_time_until(lambda: container.are(Phase.FAILED))
        assert is_sent(container)
        assert all("raise error" in each.traceback for each in container.statuses())


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_feed_raises_beyond_its_port_ends_the_container_with_a_reason(
    tmp_path: Path, kind: str
) -> None:
    def warm(_: object) -> None:
        error = KINDS[kind]()
        raise error

    def script(feed: MemoryFeed) -> None:
        feed.on_warm = warm

    lab = lab_of(tmp_path, "skip")
    with active_of(lab, script=script) as container:
        container.eventually(lambda: container.replicas.broken is not None)
        assert type(KINDS[kind]()).__name__ in (container.replicas.broken or "")
        (container.replicas.broken or "").encode()


def test_what_was_raised_is_told_for_as_long_as_it_holds(tmp_path: Path) -> None:
    errors = iter([ValueError("first"), ValueError("second")])

    def step(rows: Any, state: Any, out: Any) -> None:
        for error in errors:
            raise error
        ledger_job.step(rows, state, out)

    lab = patient_lab(tmp_path)
    lab.kafka.append("in", 0, b"0/k", b"v")
    seen: list[str] = []
    with active_of(lab, step=step) as container:

        def look() -> bool:
            status = status_of(container, 0)
            if status is not None and status.traceback and status.traceback not in seen:
                seen.append(status.traceback)
            return status is not None and status.input_committed == 1

        container.eventually(look)
        assert [each.splitlines()[-1] for each in seen] == ["ValueError: first", "ValueError: second"]
        status = status_of(container, 0)
        assert status is not None
        assert (status.traceback, status.failures) == ("", None)


def patient_lab(directory: Path) -> MemoryLab:
    return MemoryLab(directory, 1, **{"task.on.error": "fail", "task.on.error.attempts": "1000"})
