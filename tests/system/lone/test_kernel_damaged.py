"""A batch that was damaged in a broker's file: named with its offset, and nothing behind it is read."""

from __future__ import annotations

import struct
from pathlib import Path

from embedded.cluster import LocalCluster
from standby.shared.model import Phase, Role
from tests.kernel_lab import Lab


def damage(cluster: LocalCluster, topic: str) -> tuple[int, int]:
    """Change a byte of a batch in the midst of partition 0, as a disk might; return its first offset and the next's."""
    segment = cluster.directory / "kafka" / "data" / f"{topic}-0" / f"{0:020}.log"
    content = segment.read_bytes()
    batches: list[tuple[int, int]] = []
    at = 0
    # Each begins with its first offset and the length of what follows.
    while at + 12 <= len(content):
        first, length = struct.unpack_from(">qi", content, at)
        if not length:
            break
        at += 12 + length
        batches.append((first, at))
    middle = len(batches) // 2
    first, end = batches[middle]
    with segment.open("r+b") as file:
        file.seek(end - 1)
        file.write(bytes([content[end - 1] ^ 0xFF]))
    return first, batches[middle + 1][0]


def test_a_damaged_batch_of_the_changelog_is_named_and_not_passed(
    own_cluster: LocalCluster, tmp_path: Path
) -> None:
    lab = Lab(own_cluster.kafka_bootstrap, tmp_path, 1)
    with lab.local("host-a") as active:
        lab.promote(active, 0, 1)
        for _ in range(5):
            lab.produce(50)
            active.await_processed()
        offset, _ = damage(own_cluster, lab.definition.changelog)
        with lab.local("host-b") as standby:
            standby.want(1, Role.STANDBY, 1)
            standby.await_phase(Phase.FAILED)
            (status,) = standby.statuses().values()
            assert f"changelog {lab.definition.changelog}-0 cannot be read on from " in status.detail
            assert str(offset) in status.detail
            assert "kafka-dump-log.sh" in status.detail
        # The active does not read it.
        lab.produce(50)
        active.await_processed()
    outputs = lab.committed_records(f"{lab.definition.name}-out")
    with lab.local("host-c") as without_state:
        lab.promote(without_state, 2, 2)
        lab.produce(50)
        without_state.await_phase(Phase.FAILED)
        (status,) = without_state.statuses().values()
        assert str(offset) in status.detail
    assert lab.committed_records(f"{lab.definition.name}-out") == outputs


def damaged_input(cluster: LocalCluster, directory: Path, **config: str) -> tuple[Lab, int, int]:
    """Return a job with a damaged batch in its input, and the offsets of that and of the next one."""
    lab = Lab(cluster.kafka_bootstrap, directory, 1, **config)
    for _ in range(5):
        lab.produce(20)
    lab.name(0, 1)
    return lab, *damage(cluster, lab.inputs[0])


def test_a_damaged_batch_of_the_input_is_named_and_not_passed(
    own_cluster: LocalCluster, tmp_path: Path
) -> None:
    lab, offset, _ = damaged_input(own_cluster, tmp_path)
    with lab.local("host-a") as active:
        active.want(0, Role.ACTIVE, 1)
        active.await_phase(Phase.FAILED)
        (status,) = active.statuses().values()
        assert status.detail.startswith("poison: ")
        assert f"input {lab.inputs[0]}[0], offset {offset}: " in status.detail
    assert lab.committed_offsets()[0] <= offset


def test_the_records_of_a_damaged_batch_are_left_out_where_the_job_says_so(
    own_cluster: LocalCluster, tmp_path: Path
) -> None:
    lab, first, behind = damaged_input(own_cluster, tmp_path, **{"task.on.error": "skip"})
    with lab.local("host-a") as active:
        active.want(0, Role.ACTIVE, 1)
        active.await_processed()
        lab.produce(20)
        active.await_processed()
        active.await_all(lambda each: each.skipped == behind - first)
    lab.input[0] = [each for each in lab.input[0] if not first <= each[0] < behind]
    lab.assert_exact()
