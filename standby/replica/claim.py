"""The decisions on the way to active (design 4.1): who may go on, and from which input offset. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from standby.errors import BadConfiguration, CorruptState, Fenced
from standby.model import TaskId, TaskRecord


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

    Raises `CorruptState` for metadata that is not ours: somebody else commits under this group.
    """
    if not metadata:
        return 0
    try:
        epoch = json.loads(metadata)["epoch"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(
            f"the committed offset has metadata that is not ours: {metadata[:80]!r}"
        ) from error
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise CorruptState(f"the committed offset has metadata that is not ours: {metadata[:80]!r}")
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


def check_committed(committed: Committed | None, task: TaskId, epoch: int) -> None:
    """Raise `Fenced` when the committed offset was claimed under a newer epoch than ``epoch``.

    Kafka's fence is "the last init wins"; this check is what makes it "the highest epoch wins".
    """
    if committed is None:
        return
    claimed = epoch_in(committed.metadata)
    if claimed > epoch:
        raise Fenced(f"{task}: its offset was claimed at epoch {claimed}, newer than {epoch}")


def first_offset(
    committed: Committed | None, record: TaskRecord, run_start: str, bounds: Callable[[], tuple[int, int]]
) -> int:
    """Return the input offset at which the task goes on.

    The committed one; in a run that never committed, the first offset or the end of the input, which
    ``bounds`` returns, as ``run_start`` says. Raises `BadConfiguration` when a run that had an offset has
    none any more: that is never silently a reset (design 4.7).
    """
    if committed is not None:
        return committed.offset
    if record.claimed:
        raise BadConfiguration(
            f"{record.task}: the committed input offset is gone although the task was claimed before; "
            "restore it (the group's offsets must outlive idle times) or delete the job"
        )
    first, end = bounds()
    return first if run_start == "earliest" else end
