"""Committed input offsets that are gone, forgotten or out of range, on a real broker."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import TopicPartition

from standby.shared.model import Phase
from tests.kernel_lab import Container, Lab
from tests.patience import PATIENCE_SECONDS, soon

#: How long an idle active waits before it commits its offset again, and a little more.
AN_HOUR_MS = 3_601_000


class Clock:
    """The real time, which can be let jump."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


def forget_offsets(lab: Lab) -> None:
    """Have Kafka forget the group's offsets, as it does by itself after some days without a commit."""
    for future in lab.admin.delete_consumer_groups(
        [lab.definition.group], request_timeout=PATIENCE_SECONDS
    ).values():
        future.result(PATIENCE_SECONDS)
    assert lab.committed_offsets() == [0] * lab.tasks


def delete_input(lab: Lab, partition: int, before: int) -> None:
    topic = lab.definition.config["task.inputs"]
    for future in lab.admin.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result(PATIENCE_SECONDS)


def process_some(lab: Lab, container: Container, epoch: int) -> None:
    lab.promote(container, 0, epoch)
    container.await_processed()


def test_input_deleted_while_the_task_was_down_is_reported_and_never_a_stall(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    lab = Lab(kafka_bootstrap, tmp_path, 2, **{"task.input.lost": "fail"})
    lab.produce(100)
    with lab.local("host-a") as first:
        process_some(lab, first, 1)
    lab.produce(100)
    # Of partition 0 the first half of what was not processed yet.
    delete_input(lab, 0, lab.input[0][75][0])
    with lab.local("host-a") as second:
        lab.promote(second, 0, 2)
        second.await_all(
            lambda each: each.phase is (Phase.FAILED if each.replica.task.partition == 0 else Phase.ACTIVE)
        )
        (failed,) = (each for each in second.statuses().values() if each.phase is Phase.FAILED)
        assert "input was deleted before it was processed (task.input.lost)" in failed.detail


def test_an_idle_active_has_its_offset_kept_and_a_vanished_one_is_that_of_the_last_commit(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    clock = Clock()
    lab = Lab(kafka_bootstrap, tmp_path)
    lab.produce(40)
    with lab.local("host-a", clock=clock) as active:
        process_some(lab, active, 1)
        offsets = lab.committed_offsets()
        forget_offsets(lab)
        clock.ahead_ms = AN_HOUR_MS
        # Nothing tells of a commit without input; only Kafka shows it.
        soon(lambda: lab.committed_offsets() == offsets, "an idle task's offset is committed again")
        assert {each.phase for each in active.statuses().values()} == {Phase.ACTIVE}
        lab.produce(20)
        active.await_processed()
        lab.assert_exact()
    forget_offsets(lab)
    with lab.local("host-a") as again:
        lab.promote(again, 0, 2)
        lab.produce(20)
        again.await_processed()
    lab.assert_exact()
