"""Task records without ZooKeeper."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from standby.errors import Transient
from standby.shared.model import InputFailures, TaskId, TaskRecord


class MemoryRecords:
    """Task records in memory; a `standby.ports.RecordReader` that a test plays the leader with."""

    def __init__(self) -> None:
        self._records: dict[TaskId, TaskRecord] = {}
        self._lock = threading.Lock()
        self.is_away = False

    def name(
        self,
        task: TaskId,
        copy: int,
        epoch: int,
        *,
        claimed: bool = False,
        failures: InputFailures | None = None,
    ) -> None:
        """Make ``copy`` the task's active at ``epoch``."""
        with self._lock:
            self._records[task] = TaskRecord(task, copy, epoch, claimed=claimed, failures=failures)

    def forget(self, task: TaskId) -> None:
        with self._lock:
            self._records.pop(task, None)

    def read(self, task: TaskId) -> TaskRecord | None:
        if self.is_away:
            raise Transient("the records cannot be read")
        with self._lock:
            return self._records.get(task)


class FileRecords:
    """Task records in a file, for children of a test: partition → [copy, epoch, claimed, failures]."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(
        self, records: dict[int, tuple[int, int, bool]], failures: Mapping[int, InputFailures] | None = None
    ) -> None:
        """Replace the records, at once; ``failures`` are those of the partitions that have some."""
        found = failures or {}
        bodies = {
            each: [*record, [found[each].offset, found[each].count] if each in found else None]
            for each, record in records.items()
        }
        scratch = self._file.with_suffix(".new")
        scratch.write_text(json.dumps(bodies), encoding="utf-8")
        scratch.replace(self._file)

    def read(self, task: TaskId) -> TaskRecord | None:
        found = json.loads(self._file.read_text(encoding="utf-8")).get(str(task.partition))
        if found is None:
            return None
        failures = None if found[3] is None else InputFailures(found[3][0], found[3][1], "told by the test")
        return TaskRecord(task, found[0], found[1], claimed=found[2], failures=failures)
