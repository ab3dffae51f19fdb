"""Restores that are slowed down, and that wait for a promotion next to them."""

from __future__ import annotations

import time
from pathlib import Path

from standby.kernel import probes
from standby.model import Phase, ReplicaId, Role, Wanted
from tests.memory_lab import JOB, MemoryContainer, MemoryLab


def filled(tmp_path: Path, **config: str) -> MemoryLab:
    """Return a lab whose changelogs hold some 60 kB each."""
    lab = MemoryLab(tmp_path, 2, **config)
    lab.name(0, 1)
    active = lab.container("a")
    active.want(0, Role.ACTIVE, 1)
    lab.produce(2_000, keys=500)
    active.await_processed()
    active.close()
    return lab


def size(lab: MemoryLab) -> int:
    """Return the bytes of all keys and values in the changelogs."""
    return sum(
        len(each.key or b"") + len(each.value or b"")
        for task in lab.tasks
        for each in lab.kafka.logs["changelog", task.partition]
    )


def restored(lab: MemoryLab) -> float:
    """Return how many seconds a new standby of everything takes."""
    standby = lab.container("b")
    began = time.monotonic()
    standby.want(1, Role.STANDBY, 1)
    standby.await_phase(Phase.TAILING)
    seconds = time.monotonic() - began
    standby.close()
    return seconds


def test_a_throttled_restore_takes_as_long_as_its_bytes(tmp_path: Path) -> None:
    rate = 60_000
    lab = filled(tmp_path, **{"job.restore.max.bytes.per.second": str(rate)})
    expected = size(lab) / rate
    assert expected > 1, "too little to be slowed down"
    assert expected * 0.7 < restored(lab) < expected * 1.5 + 2


def test_a_promotion_is_never_throttled(tmp_path: Path) -> None:
    # Each record at this rate takes some 15 s.
    lab = filled(tmp_path, **{"job.restore.max.bytes.per.second": "1"})
    successor = lab.container("b")
    successor.want(1, Role.STANDBY, 1)
    successor.eventually(lambda: any((each.applied or 0) > 0 for each in successor.statuses()))
    assert all(each.phase is Phase.RESTORING for each in successor.statuses())
    lab.name(1, 2)
    began = time.monotonic()
    successor.want(1, Role.ACTIVE, 2)
    successor.await_processed()
    assert time.monotonic() - began < 5
    lab.assert_exact()
    successor.close()


def test_a_restore_waits_while_another_replica_drains(tmp_path: Path) -> None:
    lab = filled(tmp_path)
    lab.kafka.read_limit = 10
    first, second = lab.tasks
    seen: dict[str, dict[int, int]] = {}

    def look(point: str) -> None:
        if point in {probes.OFFSETS_READ, probes.DRAINED}:
            seen[point] = {each.replica.task.partition: each.applied or 0 for each in container.statuses()}
        if point == probes.DRAINED:
            lab.kafka.read_limit = 1_000_000

    container: MemoryContainer = lab.container("b", probe=look)
    lab.name(1, 2)
    wanted = (Wanted(ReplicaId(first, 1), Role.ACTIVE, 2), Wanted(ReplicaId(second, 1), Role.STANDBY, 2))
    container.replicas.obey(wanted, {JOB: lab.definition})
    container.eventually(
        lambda: (
            len(container.statuses()) == 2
            and all(each.phase in (Phase.ACTIVE, Phase.TAILING) for each in container.statuses())
        )
    )
    moved = {each: seen[probes.DRAINED][each] - seen[probes.OFFSETS_READ][each] for each in (0, 1)}
    # A few looks may pass until the drain has begun.
    assert moved[0] > 20 * moved[1], moved
    # It goes on afterwards, to the end.
    end = len(lab.kafka.logs["changelog", 1])
    container.eventually(
        lambda: {each.applied for each in container.statuses() if each.replica.task == second} == {end}
    )
    container.close()
