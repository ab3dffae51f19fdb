"""How open transactions are settled, case by case: what a takeover as a whole (test_markers.py) does not show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from standby.kernel.cancel_scope import CancelScope
from standby.kernel.job import JobKernel
from standby.kernel.ports import WriterLost
from standby.kernel.replica.settling import TransactionSettlement
from standby.replica.claim import CommitRecord, Committed, StateMismatch, decode_commit
from standby.replica.outbox import Emitted, Outputs
from standby.replica.store.overlay import Changes
from standby.shared.model import Offsets, ReplicaId, TaskRecord
from standby.shared.naming import transactional_id
from tests.fakes.clock import held
from tests.fakes.kafka import Entry, Transaction, offsets_of
from tests.memory_lab import MemoryLab
from tests.patience import PATIENCE_SECONDS

CHANGELOG, OUT = ("changelog", 0), ("out", 0)

#: A hanging record of an output, as a commit record names it.
UNSEEN = (("out", 0, 0),)

#: Virtual seconds by which a poll may be late.
POLL = 0.2


class Task:
    """A task with a history, and what settles it at epoch 2, whose waits take no time."""

    def __init__(self, directory: Path) -> None:
        self.lab = MemoryLab(directory, 1, **{"task.outputs": "out,second"})
        self.lab.name(0, 2, claimed=True)
        self.kafka, self.clock = self.lab.kafka, held("")
        self.began = self.clock.monotonic()
        self.record = TaskRecord(self.lab.tasks[0], 0, 2, claimed=True)
        self.name = transactional_id("cluster", self.record.task)
        self.broker = self.kafka.connect("cluster", self.lab.config, self.lab.definition)
        self.succeed()

    def succeed(self) -> None:
        """Have a new producer from now on, which fences the former one."""
        self.writer = self.broker.open_writer(0)
        self.writer.initialise(lambda: False, PATIENCE_SECONDS)

    def transaction(
        self, offset: int, *left_out: str, commits: bool = True, begins: bool = False, **more: Any
    ) -> CommitRecord:
        """Have one end without these markers; ``begins``: it ends when it has begun. Returns its commit record."""
        number = more.pop("batch", len(self.kafka.logs[CHANGELOG]))
        record = CommitRecord(number, 1, "run", Offsets.of(offset), **more)
        self.writer.begin(record.encode())
        if not begins:
            outputs = [Emitted("out", b"key", b"value")] * record.outputs
            changes: Changes = {b"key %d" % each: b"value" for each in range(record.changes)}
            self.writer.prepare(Outputs.of(outputs), changes, record.offsets, record.metadata)
        self.kafka.skipped = {offsets_of(self.name) if each == "offsets" else (each, 0) for each in left_out}
        if commits:
            self.writer.commit()
        else:
            self.writer.abort()
        return record

    def lose_before_its_record_arrives(self, *left_out: str) -> None:
        """Have a successor's transaction aborted that has added the changelog, and not written to it."""
        self.succeed()
        self.kafka.open[self.name] = Transaction(writer=self.kafka.epochs[self.name], touched={CHANGELOG})
        self.kafka.skipped = {(each, 0) for each in left_out}
        self.writer.abort()

    def hide(self, at: int) -> Transaction:
        """Return another task's open transaction, with a record at an offset of the output."""
        others = Transaction()
        self.kafka.logs[OUT].insert(at, Entry(b"key", b"another task's", others))
        return others

    def settling(self) -> TransactionSettlement:
        environment = SimpleNamespace(cluster="cluster", records=self.lab.records, clock=self.clock)
        known = {"broker": self.broker, "config": self.lab.config, "definition": self.lab.definition}
        job = cast("JobKernel", SimpleNamespace(**known, environment=environment))
        run = CancelScope(self.clock.pace)
        return TransactionSettlement(job, ReplicaId(self.record.task, 0), 2, self.writer, run)

    def settle(self) -> Sequence[Committed | None]:
        """Do as a takeover does, whose producer has fenced the former one."""
        self.succeed()
        settling = self.settling()
        committed, end = settling.committed(), settling.changelog_end()
        if settling.end_tail(end, committed, self.record):
            committed, end = settling.committed(), settling.changelog_end()
        return settling.end_rest(next(reversed(self.commits()), None), end, committed, self.record)

    @property
    def waited(self) -> float:
        """Return how many seconds."""
        return self.clock.monotonic() - self.began

    def commits(self) -> list[CommitRecord]:
        """Return the commit records that readers see."""
        end = len(self.kafka.logs[CHANGELOG])
        return [*map(decode_commit, self.broker.commit_records(0, 0, end, is_stable=True))]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


def test_it_is_told_whether_a_transaction_was_ended_in_the_changelog(task: Task) -> None:
    """A takeover then asks for the offsets and the end again."""
    for left_out, is_so in (((), False), (("changelog", "offsets"), True)):
        task.transaction(1, *left_out)
        task.succeed()
        settling = task.settling()
        found = settling.end_tail(settling.changelog_end(), settling.committed(), task.record)
        assert found is is_so, left_out


def test_an_own_commit_is_found(task: Task) -> None:
    """Also one before its number, where it is when the marker before it is missing."""
    own = task.transaction(0, "changelog"), task.transaction(1, batch=2)
    for each in own:
        task.settling().check_own(each, each.batch, len(task.kafka.logs[CHANGELOG]))


# ---- changelog and offsets hang, or the offsets alone ----


def test_claims_are_committed_again_as_the_last_one_whatever_became_of_them(task: Task) -> None:
    task.kafka.is_log_closed = True
    task.transaction(1, "changelog", "offsets")
    task.transaction(2, "changelog", "offsets", generation=1)
    task.settle()
    last = task.commits()[-1]
    assert (last.offsets.total, last.generation, last.epoch) == (2, 1, 2)
    assert task.kafka.sweeps == 0


def test_a_batch_without_outputs_is_aborted_whatever_became_of_it(task: Task) -> None:
    """A claim of other offsets may be behind it."""
    task.kafka.is_log_closed = True
    kept = task.transaction(1)
    task.transaction(2, "changelog", "offsets", changes=1)
    task.transaction(1, "changelog", "offsets")
    task.settle()
    assert task.commits() == [kept]


def test_a_batch_in_the_log_is_known_by_its_outputs_when_producers_are_not_known(task: Task) -> None:
    kept = task.transaction(1)
    task.transaction(2, "changelog", "offsets", commits=False, outputs=1)
    task.kafka.ended[task.name] = [replace(each, writer=None) for each in task.kafka.ended[task.name]]
    task.settle()
    assert task.commits() == [kept]


@pytest.mark.parametrize("is_log_closed", [False, True])
def test_a_log_without_the_end_of_the_batch_or_that_may_not_be_read_does_not_tell(
    task: Task, is_log_closed: bool
) -> None:
    task.transaction(1, "changelog", "offsets", outputs=1)
    if is_log_closed:
        task.kafka.is_log_closed = True
    else:
        task.lose_before_its_record_arrives("changelog")
        del task.kafka.ended[task.name][:-1]
    with pytest.raises(StateMismatch, match="it is unknown whether it was committed"):
        task.settle()


def test_a_commit_that_is_made_again_has_a_number_between_the_last_one_and_the_claim(task: Task) -> None:
    last = task.transaction(1, "offsets")
    end = len(task.kafka.logs[CHANGELOG])
    assert task.settle() == (Committed(1, last.metadata),)
    assert last.batch < task.commits()[-1].batch < end


def test_the_newest_in_the_log_is_a_batch_if_the_one_before_it_is_of_the_same_producer(task: Task) -> None:
    """And not a transaction without a record, before which the claim is the newest batch."""
    task.transaction(1)
    task.succeed()
    task.transaction(1, "offsets")
    task.transaction(2, commits=False, begins=True, outputs=1)
    task.settle()
    assert task.kafka.sweeps == 1


def test_a_claim_that_was_committed_and_then_aborted_in_the_changelog_has_lost_nothing(task: Task) -> None:
    task.transaction(1)
    task.transaction(2, commits=False, outputs=1)
    task.succeed()
    task.transaction(1, "changelog", "offsets")
    task.lose_before_its_record_arrives()
    task.settle()
    assert task.kafka.sweeps == 1


@pytest.mark.parametrize("left_out", ["changelog", "offsets"])
@pytest.mark.parametrize("is_first", [True, False])
def test_where_nothing_but_claims_hangs_no_output_is_written_to(
    task: Task, is_first: bool, left_out: str
) -> None:
    """A record that is there for its abort alone would be seen, where that in turn lacks its marker.

    And what was committed and hangs there would be gone.
    """
    if is_first:
        task.record = replace(task.record, claimed=False)
    else:
        task.transaction(1, "out", outputs=1)
    written = len(task.kafka.logs[OUT])
    task.transaction(1, left_out, commits=False)
    task.settle()
    assert len(task.kafka.logs[OUT]) == written


@pytest.mark.parametrize("has_record", [True, False])
def test_a_commit_is_lost_if_what_was_to_show_it_in_the_changelog_was_aborted(
    task: Task, has_record: bool
) -> None:
    task.transaction(1)
    task.transaction(2, "changelog", "offsets", changes=1, outputs=1)
    if has_record:
        task.succeed()
        task.transaction(2, commits=False)
    else:
        task.lose_before_its_record_arrives()
    with pytest.raises(StateMismatch, match="what was committed to the changelog is lost"):
        task.settle()


# ---- outputs ----


def test_an_open_transaction_in_an_output_hangs_when_it_does_not_end_within_a_second(task: Task) -> None:
    task.transaction(1)
    task.transaction(2, "out", commits=False, outputs=1)
    task.settle()
    assert task.kafka.sweeps == 1
    assert 1 <= task.waited < 1 + POLL


def test_a_partition_that_does_not_answer_counts_as_hanging(task: Task) -> None:
    """A leader that is away for a moment does not make an aborted record a committed one."""
    task.transaction(1)
    task.transaction(2, "out", commits=False, outputs=1)
    task.kafka.leaderless = {OUT}
    task.clock.later(2, task.kafka.leaderless.clear)
    task.settle()
    assert task.kafka.sweeps == 1


def hanging(task: Task, *left_out: str, begins: bool = False) -> None:
    """Leave a committed record open in the output, and have the next batch aborted, which names it."""
    task.transaction(1, "out", outputs=1)
    task.transaction(2, *left_out, commits=False, begins=begins, outputs=1, unseen=UNSEEN)


@pytest.mark.parametrize("is_log_closed", [False, True])
def test_committed_output_is_lost_if_it_is_open_where_a_lost_batch_may_have_written(
    task: Task, is_log_closed: bool
) -> None:
    """One marker would end both."""
    hanging(task, "out", begins=is_log_closed)
    task.kafka.is_log_closed = is_log_closed
    with pytest.raises(StateMismatch, match=r"not visible in out-0 \(at and before offset 0\)"):
        task.settle()


def test_committed_output_is_lost_if_the_abort_of_a_lost_batch_has_ended_it(task: Task) -> None:
    hanging(task)
    with pytest.raises(StateMismatch, match=r"not visible in out-0 \(at and before offset 0\)"):
        task.settle()


def test_committed_output_is_left_to_the_next_commit_if_the_lost_batch_has_not_written_there(
    task: Task,
) -> None:
    hanging(task, begins=True)
    task.settle()
    assert task.kafka.sweeps == 0
    assert task.waited < 2 * (1 + POLL), "nobody's time-out was waited for"


@pytest.mark.parametrize("is_log_closed", [False, True])
def test_committed_output_is_not_lost_while_another_transaction_may_hide_it_until_its_time_out(
    task: Task, is_log_closed: bool
) -> None:
    """Of 20 s, and up to 10 s more until the broker looks."""
    others = task.hide(0)
    task.transaction(1, outputs=1)
    task.transaction(2, commits=False, outputs=1, unseen=(("out", 0, 1),))
    task.kafka.is_log_closed = is_log_closed
    task.clock.later(30, lambda: setattr(others, "outcome", False))
    task.settle()
    assert others.outcome is False


def test_committed_output_is_visible_in_front_of_another_open_transaction(task: Task) -> None:
    task.transaction(1, outputs=1)
    task.hide(1)
    task.transaction(2, commits=False, outputs=1, unseen=UNSEEN)
    task.settle()
    assert task.kafka.sweeps == 0


@pytest.mark.parametrize("has_written", [True, False])
def test_committed_output_that_was_compacted_is_not_lost_if_nothing_of_the_lost_batch_was_written_there(
    task: Task, has_written: bool
) -> None:
    """Its marker came late. Only an abort there could have ended it in another way."""
    task.transaction(1, outputs=1)
    task.transaction(2, commits=False, begins=not has_written, outputs=1, unseen=UNSEEN)
    # Nothing is at this offset for any reader.
    task.kafka.logs[OUT][0] = replace(task.kafka.logs[OUT][0], is_marker=True)
    with pytest.raises(StateMismatch, match="not visible in out-0") if has_written else nullcontext():
        task.settle()


@pytest.mark.parametrize("comes", [True, False])
def test_a_sweep_is_complete_when_its_own_marker_is_there(task: Task, comes: bool) -> None:
    """Also late, and behind another task's open transaction."""
    task.transaction(1)
    task.transaction(2, "offsets", commits=False, outputs=1)
    task.kafka.before_sweep = lambda: setattr(task.kafka, "skipped", {OUT})

    def come() -> None:
        for each in task.kafka.left_open.pop((task.name, OUT)):
            each.outcome = False
        task.hide(len(task.kafka.logs[OUT]))

    if comes:
        task.clock.later(1, come)
    with nullcontext() if comes else pytest.raises(WriterLost, match="aborts what hangs is seen in out-0"):
        task.settle()
    assert task.kafka.sweeps == 1
