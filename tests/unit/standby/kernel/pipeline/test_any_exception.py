"""Exceptions of every kind from a job's code: each is a failure of its input, reported with its traceback, and no more.

The report of each kind has tests of its own (`tests/unit/standby/shared/test_errortext.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from standby.errors import BadConfiguration, Transient
from standby.shared import wire
from standby.shared.model import Fault, Phase, Role
from tests.fakes import ledger_job
from tests.fakes.errors import KINDS
from tests.fakes.feed import MemoryFeed
from tests.memory_lab import MakeLab, MemoryContainer, MemoryLab, having, on_error


def lab_of(make_lab: MakeLab, kind: str, tasks: int = 2) -> MemoryLab:
    """Return a lab whose job gives a record up, or fails, at its first error."""
    return make_lab(tasks, **on_error(kind, attempts=1))


def is_sent(container: MemoryContainer) -> bool:
    """Return whether the control thread can tell the leader how the replicas are."""
    report = wire.Report(1, tuple(container.statuses()))
    return wire.decode_up(wire.encode(report)) == report


def raise_named(rows: Any) -> None:
    """Raise the error that a record names, if there is one."""
    for value in rows["value"].to_pylist():
        if value.startswith(b"raise "):
            error = KINDS[value.removeprefix(b"raise ").decode()]()
            raise error


def named(lab: MemoryLab, kind: str, partition: int = 0) -> tuple[int, int]:
    """Write a record for which an error of this kind is raised; return its partition and offset."""
    key = f"{partition}/poison".encode()
    return partition, lab.kafka.append("in", partition, key, f"raise {kind}".encode())


def raising(rows: Any, state: Any, out: Any) -> None:
    """Do what the ledger does, but for records that name an error."""
    raise_named(rows)
    ledger_job.step(rows, state, out)


@pytest.mark.parametrize("where", ["step", "transform"])
def test_code_that_raises_anything_fails_its_task_alone_and_says_where(make_lab: MakeLab, where: str) -> None:
    lab = lab_of(make_lab, "fail", tasks=len(KINDS) + 1)
    for partition, kind in enumerate(KINDS):
        named(lab, kind, partition)
    lab.kafka.append("in", len(KINDS), b"k", b"v")
    more = {"step": raising} if where == "step" else {"script": having(transform=raise_named)}
    container = lab.container("a", **more).activate()
    container.eventually(lambda: container.phases.count(Phase.FAILED) == len(KINDS))
    assert is_sent(container)
    for partition, kind in enumerate(KINDS):
        failed = container.status(partition)
        assert failed.detail.startswith(f"poison: input in[{partition}], offsets ["), kind
        assert f"): {type(KINDS[kind]()).__name__}" in failed.detail, kind
        assert "raise error" in failed.traceback, kind
        assert "batch.py" not in failed.traceback, kind
    container.eventually(lambda: container.status(len(KINDS)).input_committed == 1)
    assert container.status(len(KINDS)).traceback == ""
    assert container.replicas.broken is None


def test_a_record_on_which_anything_is_raised_is_given_up_with_a_dead_letter(make_lab: MakeLab) -> None:
    lab = lab_of(make_lab, "dead-letter")
    given_up = [named(lab, kind) for kind in KINDS]
    lab.produce(6)
    container = lab.begun(0, step=raising)
    assert is_sent(container)
    assert container.replicas.broken is None
    lab.assert_exact(given_up)


def refused(kind: str) -> Any:
    """Raise as an import of the job's code does that failed."""
    try:
        error = KINDS[kind]()
        raise error
    except BaseException as raised:
        raise BadConfiguration(f"importing flights raised {kind}") from raised


@pytest.mark.parametrize("kind", ["surrogate", "exit"])
@pytest.mark.parametrize(
    "where",
    [
        lambda refuse: {"find_step": refuse},
        lambda refuse: {"script": lambda _: refuse()},
        lambda refuse: {"script": having(on_start=refuse)},
    ],
    ids=["step", "feed", "transform"],
)
def test_code_that_cannot_be_imported_fails_its_tasks_and_is_reported_with_where_it_failed(
    make_lab: MakeLab, where: Callable[..., dict[str, Any]], kind: str
) -> None:
    """And the container does not end before it has reported the reason to the leader."""
    lab = lab_of(make_lab, "skip")
    lab.produce(6)
    container = lab.container("a", **where(lambda: refused(kind))).activate()
    container.pass_time_until(lambda: container.are(Phase.FAILED))
    assert is_sent(container)
    for each in container.statuses():
        assert f"importing flights raised {kind}" in each.detail
        assert "raise error" in each.traceback
        assert each.fault is Fault.REFUSED
    assert container.replicas.broken is None


def lacking(*_: object) -> Any:
    """Raise as an import of the job's code does on a host that lacks something."""
    raise Transient("importing flights has failed on this host: Too many open files")


@pytest.mark.parametrize("where", [{"find_step": lacking}, {"script": lacking}], ids=["step", "feed"])
def test_code_that_a_host_cannot_import_now_is_not_refused(make_lab: MakeLab, where: dict[str, Any]) -> None:
    """So that the leader replaces the replica, and does not end the job."""
    lab = lab_of(make_lab, "skip")
    lab.produce(6)
    container = lab.container("a", **where).activate()
    container.pass_time_until(lambda: container.are(Phase.FAILED))
    for each in container.statuses():
        assert "Too many open files" in each.detail
        assert each.fault is Fault.OTHER
    assert container.replicas.broken is None


def test_a_feed_for_which_the_host_lacks_something_is_made_later(make_lab: MakeLab) -> None:
    tries: list[MemoryFeed] = []

    def script(feed: MemoryFeed) -> None:
        tries.append(feed)
        if len(tries) == 1:
            lacking()

    lab = lab_of(make_lab, "skip")
    lab.produce(6)
    container = lab.container("a", script=script).stand_by(0)
    container.eventually(lambda: bool(tries))
    container.activate(0, 2).pass_time_until(container.is_processed)
    assert len(tries) == 2
    lab.assert_exact()


@pytest.mark.parametrize("kind", ["surrogate", "quitting", "beyond"])
def test_whatever_a_feed_raises_beyond_its_port_ends_the_container_with_a_reason(
    make_lab: MakeLab, kind: str
) -> None:
    def warm(_: object) -> None:
        error = KINDS[kind]()
        raise error

    lab = lab_of(make_lab, "skip")
    # As an active it might have its input before it is warm, and then never be warmed.
    container = lab.container("a", script=having(on_warm=warm)).want(0, Role.STANDBY, 1)
    container.eventually(lambda: container.replicas.broken is not None)
    assert type(KINDS[kind]()).__name__ in (container.replicas.broken or "")
    (container.replicas.broken or "").encode()


def test_what_was_raised_is_reported_for_as_long_as_it_holds(make_lab: MakeLab) -> None:
    errors = iter([ValueError("first"), ValueError("second")])

    def step(rows: Any, state: Any, out: Any) -> None:
        for error in errors:
            raise error
        ledger_job.step(rows, state, out)

    lab = make_lab(1, **on_error("fail", attempts=1000))
    lab.kafka.append("in", 0, b"0/k", b"v")
    lab.clock.hold()
    container = lab.container("a", step=step).activate()
    for told in ("first", "second"):
        container.await_all(lambda each, told=told: each.traceback.endswith(f"ValueError: {told}"))  # type: ignore[misc]
        # More than the pause until it is tried again.
        lab.clock.advance(1)
    container.await_processed()
    assert (container.status().traceback, container.status().failures) == ("", None)
