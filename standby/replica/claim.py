"""The decisions on the way to active (design 4.1): who may go on, and from which input offset. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from standby.errors import BadConfiguration, Fenced
from standby.model import Offsets, TaskId, TaskRecord


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed input offset with the metadata that travelled with it."""

    offset: int
    metadata: str = ""


def claim_text(epoch: int, run: str) -> str:
    """Return the offset metadata that says who committed."""
    return json.dumps({"epoch": epoch, "run": run}, separators=(",", ":"))


def epoch_in(metadata: str) -> int:
    """Return the epoch in an offset's metadata; 0 when nobody has claimed the task yet.

    Raises `BadConfiguration` for metadata that is not ours: somebody else commits under this group. The state is
    none the worse for it, and must not be wiped.
    """
    if not metadata:
        return 0
    try:
        epoch = json.loads(metadata)["epoch"]
    except (ValueError, KeyError, TypeError):
        epoch = None
    if type(epoch) is not int:
        raise BadConfiguration(
            f"the committed offset has metadata that is not ours, {metadata[:80]!r}: somebody else commits under "
            "this group; stop them, and commit the right offset there, without metadata"
        )
    return epoch


def check_record(record: TaskRecord | None, task: TaskId, copy: int, epoch: int) -> TaskRecord:
    """Return the task's record when it names this copy at this epoch.

    Raises `Fenced` otherwise: whoever it names, a replica that is not named must not fence anybody.
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

    Kafka's fence is "the last init wins"; this check is what makes it "the highest epoch wins". Raises
    `BadConfiguration` when the inputs' offsets were not all claimed under one epoch: a task commits them in one
    transaction, so somebody else commits under this group.
    """
    claimed = {epoch_in(each.metadata) for each in committed if each is not None}
    newest = max(claimed, default=0)
    if newest > epoch:
        raise Fenced(f"{task}: its offset was claimed at epoch {newest}, newer than {epoch}")
    if len(claimed) > 1:
        raise BadConfiguration(
            f"{task}: the committed offsets of its inputs were claimed at different epochs, "
            f"{', '.join(map(str, sorted(claimed)))}: somebody else commits under this group"
        )


def offsets_of(committed: Sequence[Committed | None]) -> Offsets | None:
    """Return the committed offsets, None where one of the inputs has none."""
    known = tuple(each.offset for each in committed if each is not None)
    return Offsets(known) if len(known) == len(committed) else None


def first_offsets(
    committed: Sequence[Committed | None],
    record: TaskRecord,
    run_start: str,
    bounds: Callable[[], Sequence[tuple[int, int]]],
) -> Offsets:
    """Return the input offsets at which the task goes on, one for each input.

    The committed ones; where a run never committed, the first offset or the end of the input, which
    ``bounds`` returns, as ``run_start`` says. Raises `BadConfiguration` when a run that had an offset has
    none any more: that is never silently a reset (design 4.7). The inputs of a run do not change, so one that is
    missing beside others is as bad as all of them.
    """
    known = offsets_of(committed)
    if known is not None:
        return known
    if record.claimed:
        raise BadConfiguration(
            f"{record.task}: the committed input offset is gone although the task was claimed before; "
            "restore it (the group's offsets must outlive idle times) or delete the job"
        )
    return Offsets(
        tuple(
            there.offset if there is not None else first if run_start == "earliest" else end
            for there, (first, end) in zip(committed, bounds(), strict=True)
        )
    )
