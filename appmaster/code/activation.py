"""From a job's record to what candidates need of it, and to the revision that the leader leads. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from appmaster.changes.revisions import is_active, requested_settings
from appmaster.code.rules import JobNeeds
from appmaster.records import JobRecord
from standby.config import parse
from standby.errors import BadConfiguration


def needs(record: JobRecord) -> JobNeeds:
    """Return what a job requires of the candidates."""
    definition = record.definition
    former = {each.revision: each.code for each in record.former}
    found = JobNeeds(
        definition.name, definition.run, definition.revision, definition.code, record.activated, former
    )
    try:
        config = parse(requested_settings(record))
    except BadConfiguration:
        # Written by another version of standfast: its code is needed nevertheless.
        return found
    wait_seconds = config.code_wait_seconds
    return JobNeeds(
        definition.name,
        definition.run,
        definition.revision,
        definition.code,
        record.activated,
        former,
        config.code_replicas,
        None if wait_seconds < 0 else wait_seconds * 1000,
    )


def effective(record: JobRecord) -> JobRecord | None:
    """Return a job as it is to be led: in the newest active revision; None if none is active.

    A revision whose code is not distributed yet does not exist for the planner, which continues with the one before
    and its configuration. A job without a bundle needs no candidate to hold it, and a job that is to end needs no code.
    """
    if not record.is_wanted or is_active(record, record.definition):
        return record
    active = [each for each in record.former if is_active(record, each)]
    if not active:
        return None
    newest = max(active, key=lambda each: each.revision)
    former = tuple(each for each in record.former if each.revision < newest.revision)
    return replace(record, definition=newest, former=former, settings={})
