"""Whether everything that was requested of a cluster has ended for good, so that another attempt has nothing to lead.

Skein 0.8.2 removes an application from YARN only if it succeeded, or with its last attempt: after a failed job YARN
starts attempt after attempt (decision 2). Each would be elected, fence the job's tasks once more, and report the same
failure again.
"""

from __future__ import annotations

from appmaster.blame import is_of_record
from appmaster.leadership.ports import JobRecords, QueuedChanges
from appmaster.planning.state.job import JobState
from appmaster.records import EndedRecord


def given_up(jobs: JobRecords, changes: QueuedChanges) -> str:
    """Return why jobs failed, if nothing else is left of what was requested; empty if a leader is needed.

    Raises `Transient`.
    """
    try:
        reasons = _reasons(jobs)
        return "; ".join(reasons) if reasons and not changes.has_queued() else ""
    except Exception as error:
        if not is_of_record(error):
            raise
        return ""  # a leader has to report what cannot be read


def _reasons(jobs: JobRecords) -> list[str]:
    reasons: list[str] = []
    for name in jobs.names():
        job, status = jobs.read(name), jobs.status(name)
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
