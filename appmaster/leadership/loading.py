"""Converts the records of jobs into the leader's events, each job independently of the others.

A job that cannot be led (its record is of another version, its grouper is missing, or it causes an unexpected error)
is reported and does not affect the other jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.blame import describe_error, is_of_job, traceback_of
from appmaster.changes.revisions import requested_settings
from appmaster.code.activation import effective
from appmaster.config import job_spec, planner_policy
from appmaster.planning.state.events import (
    Event,
    HostsKnown,
    JobForgotten,
    JobLoaded,
    JobsUnreadable,
    RecordsLoaded,
)
from appmaster.planning.state.job import JobState
from appmaster.planning.state.model import JobSpec
from appmaster.planning.state.view import ClusterView
from appmaster.records import EndedRecord, JobRecord, Loaded, failure_of
from appmaster.topics.input_growth import TopicState
from locality.hosts import HostInfo, HostTable, parse_table
from standby.config import JobConfig, parse
from standby.errors import BadConfiguration
from standby.shared.wire import JobDefinition

_log: Final = logging.getLogger(__name__)

#: For a revision that the code service has not looked at yet.
_NOT_ACTIVE: Final = "its code is not active yet"


@dataclass
class JobLoading:
    """Makes events of records; used by one thread at a time. Its public values are replaced, never modified."""

    definitions: dict[str, dict[int, JobDefinition]]
    """Job → each known revision of its run; filled here."""
    view: Callable[[], ClusterView]
    racks: Mapping[str, str] = field(default_factory=dict)
    """Host → its rack, as YARN reported it when the application was submitted."""
    topics: Callable[[], Mapping[str, TopicState]] = dict
    """Returns what was found out about the topics of jobs."""
    quarantined: Callable[[], Mapping[str, str]] = dict
    """Returns the jobs whose code no container can load now, and why."""
    waiting: Callable[[], Mapping[str, str]] = dict
    """Returns the jobs whose present revision is not active yet, and what it waits for."""
    records: Mapping[str, JobRecord] = field(default_factory=dict)
    """The jobs as they are led."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """The jobs that cannot be led, and why; one that was led before continues unchanged."""

    def events(self, jobs: Mapping[str, Loaded | Exception], new: Collection[str]) -> Iterator[Event]:
        """Yield every job as an event, and the task records of ``new`` ones.

        ``jobs`` has all jobs, each with its records or with the error that prevented reading them.
        """
        found: list[Event] = []
        hosts: dict[str, HostInfo] = {}
        records: dict[str, JobRecord] = {}
        unreadable: dict[str, str] = {}
        for name, loaded in jobs.items():
            try:
                if isinstance(loaded, Exception):
                    raise loaded
                more, record, table = self._of_job(name, loaded)
                if name in new:
                    more.append(RecordsLoaded(loaded.tasks))
            except Exception as error:
                if not is_of_job(error):
                    raise
                said = unreadable[name] = describe_error(error)
                _log.error("job %s cannot be led: %s", name, said, exc_info=traceback_of(error))
                continue
            found += more
            records[name] = record
            named = {*self.racks, *table.racks, *table.attributes}
            hosts |= {each: table.host(each, rack=self.racks.get(each, "")) for each in named}
        self.records, self.unreadable = records, unreadable
        for deleted in self.definitions.keys() - jobs.keys():
            del self.definitions[deleted]
        yield HostsKnown(tuple(hosts.values()))
        yield from (JobForgotten(each) for each in self.view().jobs if each not in jobs)
        yield from found
        # Last: the containers of a job that can be read again go on until its records are known.
        yield JobsUnreadable(frozenset(unreadable).difference(self.view().jobs))

    def _of_job(self, name: str, loaded: Loaded) -> tuple[list[Event], JobRecord, HostTable]:
        """Return a job as events, its record as it is led, and what it says about hosts.

        Raises `BadConfiguration` if it cannot be led.
        """
        topics = self.topics().get(name, TopicState()).of(loaded.job.definition.run)
        quarantined, notes = self.quarantined().get(name, ""), [topics.notes]
        record = effective(loaded.job)
        if record is None:
            # Known from now on, so that it has a status; no container is requested before its code is active.
            record = loaded.job
            quarantined = self.waiting().get(name, _NOT_ACTIVE)
        elif record.definition.revision < loaded.job.definition.revision:
            notes.append(
                f"revision {loaded.job.definition.revision}: {self.waiting().get(name, _NOT_ACTIVE)}"
            )
        definition = record.definition
        config = parse(requested_settings(record))
        asked, problem = self._spec(name, config, definition.tasks)
        table = parse_table(config.racks, config.host_attributes)
        revisions = {each.revision: each for each in (*reversed(record.former), definition)}
        kept = self.definitions.get(name, {}).items()
        of_run = {number: each for number, each in kept if each.run == definition.run}
        self.definitions[name] = {**of_run, **revisions}
        status = loaded.status
        state = status.state if status is not None else ""
        has_failed = status is not None and state == JobState.FAILED
        events: list[Event] = [
            JobLoaded(
                name,
                definition.run,
                asked,
                loaded.model,
                planner_policy(config),
                definition.revision,
                record.is_wanted,
                record.purge,
                is_fence_waived=record.is_fence_waived,
                was_deployed=state in (JobState.DEPLOYED, JobState.INCOMPLETE),
                failure=failure_of(status.failure, status.reasons[0])
                if status is not None and has_failed
                else None,
                traceback=status.traceback if status is not None and has_failed else "",
                notes=tuple(each for each in (*notes, problem, *table.wrong) if each),
                quarantined=quarantined,
                obstacle=topics.obstacle.of(definition) if topics.obstacle is not None else "",
                changelog_risk=topics.risk,
                is_changelog_known=topics.is_risk_known,
                was_at_risk=status is not None and status.is_at_risk and status.run == definition.run,
                is_over=_is_over(record, loaded),
            )
        ]
        known = self.view().jobs.get(name)
        if known is not None and known.run != definition.run:
            # It was deleted and submitted again since the last read: nothing of the old run applies to the new one, of
            # which there are no records yet that this leader has not written.
            events.insert(0, JobForgotten(name))
        return events, record, table

    def _spec(self, name: str, config: JobConfig, tasks: int) -> tuple[JobSpec, str]:
        """Return what the job asks of its model; if that is invalid, what a running job has, and the error."""
        try:
            return job_spec(config, tasks), ""
        except BadConfiguration as error:
            known = self.view().jobs.get(name)
            if known is None:
                raise
            return known.spec, str(error)


def _is_over(record: JobRecord, loaded: Loaded) -> bool:
    """Return whether nothing is left to do for a job that is not wanted or has failed, according to its status."""
    status, definition = loaded.status, record.definition
    if status is None or any(each.record.active is not None for each in loaded.tasks):
        return False
    if record.is_wanted:
        return status.ended == EndedRecord(definition.run, definition.revision)
    return status.state == JobState.UNDEPLOYED and status.run == definition.run


def has_new_work(records: Mapping[str, JobRecord], view: ClusterView) -> bool:
    """Return whether a job's record asks for more than the leader had seen when every job had ended. Pure."""
    for name, record in records.items():
        known = view.jobs.get(name)
        asked = record.definition.run, record.definition.revision
        is_seen = known is not None and known.is_wanted and asked == (known.run, known.revision)
        if record.is_wanted and not is_seen:
            return True
    return False
