"""Whether everything that a cluster was asked for has ended for good, so that a further attempt has nothing to lead.

Skein 0.8.2 takes an application off YARN only when it succeeded, or with its last attempt: after a failed job YARN
starts attempt after attempt (decision 2). Each would be elected, fence the job's tasks once more, and say again that it
has failed.
"""

from __future__ import annotations

from typing import Protocol

from appmaster.planning.view import JobState
from appmaster.records import EndedRecord, JobRecord, StatusRecord
from standby.errors import BadConfiguration


class Records(Protocol):
    """What is recorded of a cluster's jobs.

    Each call raises `Transient`, and `BadConfiguration` for what is no record.
    """

    def jobs(self) -> tuple[str, ...]:
        """Return the names of all jobs."""
        ...

    def job(self, job: str) -> JobRecord | None:
        """Return a job's record."""
        ...

    def status(self, job: str) -> StatusRecord | None:
        """Return how far a leader came with a job."""
        ...

    def has_queued(self) -> bool:
        """Return whether a change is asked for that no leader has settled yet."""
        ...


def given_up(records: Records) -> str:
    """Return why jobs were given up, when nothing else is left of what was asked for; empty when a leader is needed.

    Raises `Transient`.
    """
    try:
        reasons = _reasons(records)
        return "; ".join(reasons) if reasons and not records.has_queued() else ""
    except BadConfiguration:
        return ""  # what cannot be read is for a leader to tell


def _reasons(records: Records) -> list[str]:
    reasons: list[str] = []
    for name in records.jobs():
        job, status = records.job(name), records.status(name)
        if job is None:
            continue
        if status is None:
            return []
        definition = job.definition
        if job.is_wanted and status.ended == EndedRecord(definition.run, definition.revision):
            reasons += [f"{name}: {each}" for each in status.reasons[:1]]
        elif job.is_wanted or status.state != JobState.UNDEPLOYED:
            return []
    return reasons
