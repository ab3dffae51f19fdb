"""The decisions of a takeover (rule `one-way`): whether it may proceed, and from which input offset. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from standby.errors import BadConfiguration, CorruptState, Fenced
from standby.shared.model import Offsets, TaskId, TaskRecord


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed input offset with its metadata."""

    offset: int
    metadata: str = ""


class StateMismatch(BadConfiguration):
    """The changelog and the committed offsets do not match: to continue would give wrong results."""


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A transaction's record of itself in the changelog; the metadata of its offsets refers to it.

    Either of the two shows what became of the other (rule `commit-record`).
    """

    batch: int
    """Increases with every transaction of the task; normally the record's own offset in the changelog.

    It is lower if aborted records came in between, and higher by one if the marker of the previous transaction is
    missing.
    """
    epoch: int
    run: str
    offsets: Offsets
    """The input offsets after this transaction."""
    changes: int = 0
    outputs: int = 0
    """Number of changelog records beside this one, and of output records."""
    generation: int = 0
    """Of the run's topics (`standby.shared.wire.TopicIdentity`), as its writer knew it."""
    unseen: tuple[tuple[str, int, int], ...] = ()
    """Topic, partition and offset of output still open when it began, usually of earlier commits."""

    @property
    def end(self) -> int:
        """The changelog offset after its marker, if nothing was lost."""
        return self.batch + self.changes + 2

    @property
    def is_bare(self) -> bool:
        """Whether it commits offsets only."""
        return not (self.changes or self.outputs)

    def encode(self) -> bytes:
        """Return the record's value."""
        fields: dict[str, object] = {
            "batch": self.batch,
            "epoch": self.epoch,
            "run": self.run,
            "offsets": self.offsets.each,
            "changes": self.changes,
            "outputs": self.outputs,
        }
        if self.generation:
            fields["topics"] = self.generation
        if self.unseen:
            fields["unseen"] = self.unseen
        return json.dumps(fields, separators=(",", ":")).encode()

    @property
    def metadata(self) -> str:
        """The metadata of the offsets that its transaction commits."""
        return claim_text(self.epoch, self.run, self.batch, self.generation)


def decode_commit(value: bytes) -> CommitRecord:
    """Return the record that ``value`` encodes. Raises `CorruptState`."""
    try:
        fields = json.loads(value)
        offsets = Offsets(tuple(int(each) for each in fields["offsets"]))
        return CommitRecord(
            batch=int(fields["batch"]),
            epoch=int(fields["epoch"]),
            run=str(fields["run"]),
            offsets=offsets,
            changes=int(fields["changes"]),
            outputs=int(fields["outputs"]),
            generation=int(fields.get("topics", 0)),
            unseen=tuple(
                (str(topic), int(number), int(offset)) for topic, number, offset in fields.get("unseen", ())
            ),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(f"{value[:80]!r} is no commit record") from error


def claim_text(epoch: int, run: str, batch: int | None = None, generation: int = 0) -> str:
    """Return the offset metadata, which identifies the committer, the transaction, and the topic generation."""
    fields: dict[str, int | str] = {"epoch": epoch, "run": run}
    if batch is not None:
        fields["batch"] = batch
    if generation:
        fields["topics"] = generation
    return json.dumps(fields, separators=(",", ":"))


def epoch_in(metadata: str) -> int:
    """Return the epoch in an offset's metadata; 0 when the task has not been claimed yet.

    Raises `BadConfiguration` for foreign metadata: another client commits with this group. The state itself is
    intact, and must not be wiped.
    """
    if not metadata:
        return 0
    try:
        epoch = json.loads(metadata)["epoch"]
    except (ValueError, KeyError, TypeError):
        epoch = None
    if type(epoch) is not int:
        raise BadConfiguration(
            f"the committed offset has metadata that is not ours, {metadata[:80]!r}: another client commits with "
            "this group; stop it, and commit the right offset there, without metadata"
        )
    return epoch


def batch_of(committed: Sequence[Committed | None]) -> int | None:
    """Return the number of the transaction that committed these checked offsets; None if not recorded."""
    batches = [
        json.loads(each.metadata).get("batch") for each in committed if each is not None and each.metadata
    ]
    return max((each for each in batches if each is not None), default=None)


def is_committed(
    open_ones: Sequence[CommitRecord], committed: Sequence[Committed | None], record: TaskRecord
) -> bool:
    """Return whether the open transactions at the changelog's end were committed, judging by the offsets.

    Transactions with only offsets may end either way, if there are others. Raises `StateMismatch` when only some of
    the others were committed, because they can only be ended together; and when Kafka no longer has the offsets.
    """
    task, batch = record.task, batch_of(committed)
    open_batches = [each.batch for each in open_ones]
    if record.claimed and all(each is None for each in committed):
        raise StateMismatch(
            f"{task}: the transactions {', '.join(map(str, open_batches))} are open at the end of its changelog "
            "partition, and its committed offsets, which would show whether they were committed, are gone; delete the "
            "job, and submit it again"
        )
    if all(each.is_bare for each in open_ones):
        # The changelog must not be behind the offsets.
        return batch is not None and open_batches[0] <= batch
    fates = {batch is not None and each.batch <= batch for each in open_ones if not each.is_bare}
    if len(fates) > 1:
        raise StateMismatch(
            f"{task}: the transactions {', '.join(map(str, open_batches))} are open at the end of its changelog "
            f"partition, and only those up to {batch} were committed: "
            "they can only end alike, so state would be lost or doubled; delete the job, and submit it again"
        )
    return fates.pop()


def settled_offsets(
    committed: Sequence[Committed | None], last: CommitRecord | None, task: TaskId
) -> Offsets | None:
    """Return the offsets that belong to the state whose last transaction is ``last``; None if unknown.

    Usually these are the committed offsets. Kafka may have expired them, or lost the newest ones (it may skip
    markers); then the changelog has them. Raises `StateMismatch` when the offsets are ahead of the changelog, or
    another client committed other offsets.
    """
    known, batch = offsets_of(committed), batch_of(committed)
    if batch is not None and (last is None or batch > last.batch):
        had = "no commit at all" if last is None else f"commits up to number {last.batch} only"
        raise StateMismatch(
            f"{task}: commit number {batch} committed its input offsets, but its changelog has {had}: what was "
            "committed to the changelog is lost (was it deleted and created again, or truncated by an unclean "
            "leader election?). To continue would give wrong results: restore the changelog, or delete the job "
            "and submit it again"
        )
    if last is None or (batch is None and any(each is not None and each.metadata for each in committed)):
        # There is no commit to compare the offsets with, or they do not name theirs.
        return known
    if known is not None and known != last.offsets and batch in (None, last.batch):
        raise StateMismatch(
            f"{task}: the committed input offset is {known}, but its state is that of {last.offsets}: another client "
            f"commits with this group. Stop it, and commit {last.offsets} there, without metadata"
        )
    return last.offsets


def check_aborted(later: Sequence[CommitRecord], last: CommitRecord, task: TaskId) -> None:
    """Raise `StateMismatch` when a transaction aborted in the changelog after ``last`` had been committed.

    A transaction with only offsets has lost nothing: it may be a claim after an accepted input, which each takeover
    repeats.
    """
    for at, each in enumerate(later):
        if not each.is_bare and each.offsets != last.offsets and fate(later, at):
            raise lost_commit(later, task)


def fate(records: Sequence[CommitRecord], at: int) -> bool | None:
    """Return whether ``records[at]``, which is not bare, was committed, judging by later ones; None without any.

    A replica begins a batch only after it has committed the previous one. A takeover begins with a transaction of
    offsets only. These are the offsets of that batch if it was committed, to make it visible or to claim what comes
    after it, and other offsets if it was aborted.
    """
    each, later = records[at], records[at + 1 :]
    if not later:
        return None
    return not later[0].is_bare or any(other.is_bare and other.offsets == each.offsets for other in later)


def lost_outputs(places: Sequence[tuple[str, int, int]], batch: int, task: TaskId) -> StateMismatch:
    """Return the error for committed outputs that were aborted in ``places`` together with the commit ``batch``."""
    listed = ", ".join(
        f"{topic}-{number} (at and before offset {offset})" for topic, number, offset in places
    )
    return StateMismatch(
        f"{task}: outputs that were committed are not visible in {listed}: Kafka had skipped their marker there, "
        f"and commit {batch}, which would have made them visible, was lost. They are still in the log, for readers of "
        "uncommitted records. To continue would omit them: delete the job, and submit it again"
    )


def lost_commit(later: Sequence[CommitRecord], task: TaskId) -> StateMismatch:
    """Return the error for commits of which one was aborted in the changelog although it was committed."""
    listed = ", ".join(str(each.batch) for each in later)
    return StateMismatch(
        f"{task}: what was committed to the changelog is lost: one of the commits {listed} was aborted there, because "
        "Kafka had skipped its marker, and what came after it was lost; its outputs may exist. To continue would give "
        "wrong results: delete the job, and submit it again"
    )


def check_record(record: TaskRecord | None, task: TaskId, copy: int, epoch: int) -> TaskRecord:
    """Return the task's record when it names this copy at this epoch.

    Raises `Fenced` otherwise: a replica that the record does not name must not fence any other.
    """
    if record is None:
        raise Fenced(f"{task}: there is no task record")
    if record.active != copy or record.epoch != epoch:
        raise Fenced(
            f"{task}: the record names copy {record.active} at epoch {record.epoch}, not copy {copy} at {epoch}"
        )
    return record


def check_committed(committed: Sequence[Committed | None], task: TaskId, epoch: int) -> None:
    """Raise `Fenced` when a committed offset was claimed under a newer epoch than ``epoch``.

    Kafka's fence means "the last init wins"; this check turns it into "the highest epoch wins". Raises
    `BadConfiguration` when the inputs' offsets were not all claimed under one epoch: a task commits them in one
    transaction, so another client must be committing with this group.
    """
    claimed = {epoch_in(each.metadata) for each in committed if each is not None}
    newest = max(claimed, default=0)
    if newest > epoch:
        raise Fenced(f"{task}: its offset was claimed at epoch {newest}, newer than {epoch}")
    if len(claimed) > 1:
        raise BadConfiguration(
            f"{task}: the committed offsets of its inputs were claimed at different epochs, "
            f"{', '.join(map(str, sorted(claimed)))}: another client commits with this group"
        )


def check_last(last: CommitRecord | None, task: TaskId, epoch: int) -> None:
    """Raise `Fenced` when the last commit in the changelog was made under a newer epoch than ``epoch``."""
    if last is not None and last.epoch > epoch:
        raise Fenced(f"{task}: its changelog was written at epoch {last.epoch}, newer than {epoch}")


def offsets_of(committed: Sequence[Committed | None]) -> Offsets | None:
    """Return the committed offsets; None when one of the inputs has none."""
    known = tuple(each.offset for each in committed if each is not None)
    return Offsets(known) if len(known) == len(committed) else None


def first_offsets(
    committed: Sequence[Committed | None],
    record: TaskRecord,
    run_start: str,
    bounds: Callable[[], Sequence[tuple[int, int]]],
) -> Offsets:
    """Return the input offsets at which the task continues, one for each input.

    These are the committed offsets. For a run that never committed, it is the first offset or the end of each input
    (from ``bounds``), depending on ``run_start``. Raises `BadConfiguration` when a run that had an offset no longer
    has one: offsets are never reset silently (rule `committed-offsets`). The inputs of a run do not change, so a
    single missing offset is as bad as all of them.
    """
    known = offsets_of(committed)
    if known is not None:
        return known
    if record.claimed:
        raise BadConfiguration(
            f"{record.task}: the committed input offset is gone, although the task was claimed before; "
            "restore it (the group's offsets must outlive idle times) or delete the job"
        )
    return Offsets(
        tuple(
            there.offset if there is not None else first if run_start == "earliest" else end
            for there, (first, end) in zip(committed, bounds(), strict=True)
        )
    )
