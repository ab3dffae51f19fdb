"""From a job's record to what the candidates and the leader may do with it. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from appmaster.changes.revisions import asked_of, is_active
from appmaster.code.rules import JobNeeds
from appmaster.records import JobRecord
from standby.config import parse_recorded
from standby.errors import BadConfiguration


def needs(record: JobRecord) -> JobNeeds:
    """Return what a job asks of the candidates."""
    definition = record.definition
    former = {each.revision: each.code for each in record.former}
    found = JobNeeds(definition.name, definition.revision, definition.code, record.activated, former)
    try:
        config = parse_recorded(asked_of(record))
    except BadConfiguration:
        # Of another version of standfast: its code is wanted all the same.
        return found
    wait_seconds = config.code_wait_seconds
    return JobNeeds(
        definition.name,
        definition.revision,
        definition.code,
        record.activated,
        former,
        config.code_replicas,
        None if wait_seconds < 0 else wait_seconds * 1000,
    )


def effective(record: JobRecord) -> JobRecord | None:
    """Return a job as it is to be led: in the newest revision that is active; None while none is.

    A revision whose code is not spread yet is not there for the planner: it goes on with the one before, with the
    configuration of that one. A job without a bundle needs nobody to hold anything, and one that is to end needs no
    code.
    """
    if not record.is_wanted or is_active(record, record.definition):
        return record
    active = [each for each in record.former if is_active(record, each)]
    if not active:
        return None
    newest = max(active, key=lambda each: each.revision)
    former = tuple(each for each in record.former if each.revision < newest.revision)
    return replace(record, definition=newest, former=former, settings={})
