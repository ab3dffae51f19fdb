"""Failing records on a real broker: left out once, whatever dies where, and found when they end processes."""

from __future__ import annotations

import signal
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from standby.adapters.kafka.broker import connect
from standby.config import parse
from standby.kernel import probes
from standby.replica.outbox import Headers
from standby.shared.model import InputFailures, Phase, Role
from tests.kernel_lab import CLUSTER, Lab
from tests.patience import LOOK_SECONDS
from tests.system.lone.deaths import StartChild
from tests.topics import make_topics


def lab_with_dead_letters(
    kafka_bootstrap: str, directory: Path, tasks: int, **config: str
) -> tuple[Lab, str]:
    dead = f"dead-{uuid.uuid4().hex[:10]}"
    lab = Lab(
        kafka_bootstrap,
        directory,
        tasks,
        **{"task.on.error": "dead-letter", "task.dead.letter": dead, **config},
    )
    make_topics(kafka_bootstrap, [NewTopic(dead, tasks, 1)])
    return lab, dead


def test_there_is_one_dead_letter_when_its_transaction_is_deadly(
    kafka_bootstrap: str, tmp_path: Path, start_child: StartChild
) -> None:
    """The first commit is the claim; then come the good half before the record, its dead letter, the half behind it."""
    lab, dead = lab_with_dead_letters(kafka_bootstrap, tmp_path, tasks=1)
    headers: Headers = (("trace", b"1"), ("trace", b"2"), ("none", None))
    lab.produce(5)
    lab.poison(b"raise", headers=headers)
    lab.produce(5)
    doomed = start_child(lab, "host-a", kill_at=probes.BEFORE_COMMIT, hit=3)
    lab.promote(doomed, 0, 1)
    with lab.local("host-b") as successor:
        successor.want(1, Role.STANDBY, 1)
        assert doomed.await_death() == -signal.SIGKILL
        lab.promote(successor, 1, 2)
        lab.produce(5)
        successor.await_processed()
    (letter,) = lab.messages(dead)
    assert (letter.key(), letter.value()) == (b"0/poison", b"raise")
    found: Any = letter.headers()
    assert tuple(found[:3]) == headers
    ours = dict(found[3:])
    assert (ours["standfast-offset"], ours["standfast-error-type"]) == (b"5", b"ValueError")
    assert ours["standfast-topic"] == lab.inputs[0].encode()
    lab.assert_exact()
    lab.assert_local_state("host-b")


def test_a_record_that_ends_every_process_is_given_up_in_the_end(
    kafka_bootstrap: str, tmp_path: Path, start_child: StartChild
) -> None:
    """The test plays the leader: it counts each end at the offset that was committed last."""
    lab, dead = lab_with_dead_letters(
        kafka_bootstrap, tmp_path, 1, **{"task.on.error.attempts": "2", "task.batch.max.records": "16"}
    )
    lab.produce(13)
    lab.poison(b"crash")
    lab.produce(13)
    broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
    failures: InputFailures | None = None
    end = lab.input[0][-1][0] + 1
    for epoch in range(1, 20):
        lab.name(0, epoch, claimed=epoch > 1, failures={0: failures} if failures is not None else None)
        child = start_child(lab, "host-a")
        child.want(0, Role.ACTIVE, epoch)
        told: InputFailures | None = None
        while child.process.poll() is None:
            statuses = list(child.statuses().values())
            if any(each.phase is Phase.ACTIVE and each.input_committed == end for each in statuses):
                break
            time.sleep(LOOK_SECONDS)
        else:
            assert child.await_death() == -signal.SIGKILL
            child.await_told()
            told = next((each.failures for each in child.statuses().values()), None)
            (committed,) = broker.committed([0])[0]
            assert committed is not None
            known = [
                each for each in (failures, told) if each is not None and each.offset == committed.offset
            ]
            count = max((each.count for each in known), default=0) + 1
            failures = InputFailures(committed.offset, count)
            continue
        (status,) = child.statuses().values()
        assert status.failures is None
        child.end()
        break
    else:
        raise AssertionError(f"it ends processes for ever: {failures}")
    broker.close()
    # As often as is asked for, and then one for each half of 16 at the most.
    assert epoch - 1 <= 2 + 4
    assert lab.committed_records(dead) == [(b"0/poison", b"crash")]
    lab.assert_exact()
