"""Two jobs joined by a topic: exact from the first's input to the second's output, whatever dies at whatever moment.

What the second reads is what the first has written in transactions, so that an active of the first that dies leaves
one open before the second's eyes, and its successor ends it.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from standby.kernel import probes
from standby.shared.model import Phase, Role
from tests.kernel_lab import Lab
from tests.patience import PATIENCE_SECONDS, STRIKE_SECONDS
from tests.system.lone.deaths import StartChild, process_the_rest, succeed, take_over, take_over_and_die

#: Transactions after which an active of the first dies at the latest, each before its commit.
MOST_TRANSACTIONS = 12


class After(Lab):
    """A job that reads the output of another; what that has committed is its input."""

    def __init__(self, first: Lab, directory: Path) -> None:
        self._output = first.definition.config["task.outputs"]
        super().__init__(first.bootstrap, directory, first.tasks, **{"task.inputs": self._output})
        self.inputs = (self._output,)

    def follow(self) -> None:
        """Take note of all that the first has committed, when nothing more comes."""
        self.input = [[] for _ in range(self.tasks)]
        for each in self.messages(self._output):
            partition, offset = each.partition(), each.offset()
            assert partition is not None
            assert offset is not None
            self.input[partition].append((offset, each.key() or b"", each.value() or b""))
        consumer = self.judge()
        for partition in range(self.tasks):
            # The last marker is passed, too.
            where = TopicPartition(self._output, partition)
            _, self._ends[self._output, partition] = consumer.get_watermark_offsets(where, PATIENCE_SECONDS)
        consumer.close()


@pytest.mark.parametrize("rounds", [2, pytest.param(17, marks=pytest.mark.soak)])
def test_two_chained_jobs_are_exact_whichever_dies(
    kafka_bootstrap: str, tmp_path: Path, start_child: StartChild, rounds: int
) -> None:
    """Deaths of an active of the first job in a transaction, of the second's, and of both at once."""
    directories = tmp_path / "first", tmp_path / "second"
    for each in directories:
        each.mkdir()
    first = Lab(kafka_bootstrap, directories[0])
    second = After(first, directories[1])
    moments = random.Random(11)

    def wait_a_moment() -> None:
        time.sleep(moments.uniform(0, STRIKE_SECONDS))

    def in_a_transaction() -> dict[str, object]:
        return {"kill_at": probes.BEFORE_COMMIT, "hit": moments.randint(1, MOST_TRANSACTIONS)}

    for lab in (first, second):
        lab.name(1, 1)
    with first.local("host-b") as writer, second.local("host-b") as reader, first.load(10, per_second=200):
        for keeper in (writer, reader):
            keeper.want(1, Role.ACTIVE, 1)
            keeper.await_phase(Phase.ACTIVE)
        for epoch in range(2, 2 + 4 * rounds, 4):
            # The first, with a transaction that stays open before the second until a successor ends it.
            dying = take_over(first, start_child, writer, epoch, **in_a_transaction())
            writer.await_phase(Phase.TAILING)
            succeed(first, dying, writer, epoch + 1)
            # The second at any moment.
            take_over_and_die(second, start_child, reader, epoch, wait_a_moment)
            # And both, the second while it waits for what the first has left open.
            waiting = take_over(second, start_child, reader, epoch + 2)
            waiting.await_all(lambda each: each.first_commit_ms is not None)
            reader.await_phase(Phase.TAILING)
            dying = take_over(first, start_child, writer, epoch + 2, **in_a_transaction())
            writer.await_phase(Phase.TAILING)
            assert dying.await_death() == -signal.SIGKILL
            waiting.send(signal.SIGKILL)
            assert waiting.await_death() == -signal.SIGKILL
            succeed(first, dying, writer, epoch + 3)
            succeed(second, waiting, reader, epoch + 3)
    process_the_rest(first, epoch + 4)
    second.follow()
    process_the_rest(second, epoch + 4)
    assert sum(map(len, second.input)) == sum(map(len, first.input)) > 0
