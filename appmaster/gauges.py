"""Gauges that are computed from the leader's view when they are read, so that nothing has to update them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from appmaster.planning.placement.spread import active_processors
from appmaster.planning.state.job import Job, JobState
from appmaster.planning.state.model import job_of
from appmaster.planning.state.view import CellState, ClusterView, Presence
from standby.shared.metric import LAGS, Metric, Samples, Values, single
from standby.shared.model import ReplicaId, ReplicaStatus, Role, TaskRecord

#: With more tasks than this, lags are left to the containers, which show them, too: 10,000 tasks would mean 60,000
#: lines, and a second of the leader's processor time at each scrape.
MOST_LAGS: Final = 1_000


def _of_task(
    name: str, text: str, value: Callable[[ClusterView, TaskRecord], float | None]
) -> Metric[ClusterView]:
    def values(view: ClusterView) -> Values:
        for task, recorded in view.records.items():
            known = value(view, recorded.record)
            if known is not None:
                yield (task.job, task.stage, str(task.partition)), known

    return Metric(name, text, ("job", "stage", "partition"), values)


def _of_job(name: str, text: str, value: Callable[[Job], float | None]) -> Metric[ClusterView]:
    def values(view: ClusterView) -> Values:
        for job in view.jobs.values():
            known = value(job)
            if known is not None:
                yield (job.name,), known

    return Metric(name, text, ("job",), values)


def _in_sync(view: ClusterView, record: TaskRecord) -> int | None:
    processor = view.processor_of(record.task)
    if processor is not None and view.jobs[processor.job].model.processors[processor].parked:
        return None
    return sum(record.placed.get(copy) in view.containers for copy in record.in_sync)


def _statuses(view: ClusterView) -> Values:
    for job in view.jobs.values():
        for state in JobState:
            yield (job.name, state.value), job.state is state


def _recent_failures(view: ClusterView) -> Values:
    for slot, attempts in view.attempts.items():
        job = view.jobs.get(job_of(slot))
        if job is not None:
            since = view.now_ms - job.policy.retry_window_ms
            recent = sum(each > since for each in attempts.failures_ms)
            if recent:
                yield (job.name, str(slot)), recent


def _actives(view: ClusterView) -> Values:
    for job in view.jobs.values():
        for host, count in active_processors(view, job).items():
            yield (job.name, host), count


def _containers(view: ClusterView) -> Values:
    states = Counter(each.presence for each in view.containers.values())
    return (((presence.value,), states[presence]) for presence in Presence)


def _spares(view: ClusterView) -> Values:
    for job in view.jobs.values():
        found = view.spares_of(job.name)
        ready = sum(each.is_warm for each in found)
        yield (job.name, "ready"), ready
        yield (job.name, "starting"), len(found) - ready


def _cells(view: ClusterView) -> Values:
    states = Counter(each.state for each in view.cells.values())
    return (((state.value,), states[state]) for state in CellState)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Whether a candidate leads."""

    epoch: int
    """0: it does not."""
    has_lease: bool
    """Without it the leader decides nothing: ZooKeeper does not answer it, and another one may lead."""


#: Of every candidate, whether it leads or not.
OF_CANDIDATE: Final[tuple[Metric[Leadership], ...]] = (
    single(
        "standfast_is_leader",
        "1 while this candidate leads; 0 also while ZooKeeper does not confirm it, so that it decides nothing.",
        lambda each: each.epoch > 0 and each.has_lease,
    ),
    single("standfast_controller_epoch", "Epoch of the leader; 0: not leading.", lambda each: each.epoch),
)

#: Only of the leader: the names of the jobs whose records it cannot read or use.
UNREADABLE: Final[Metric[Collection[str]]] = Metric(
    "standfast_job_unreadable",
    "1 for each job whose record the leader cannot read or use; absent for the others.",
    ("job",),
    lambda names: (((each,), 1) for each in sorted(names)),
)

#: Only of the leader.
OF_VIEW: Final[tuple[Metric[ClusterView], ...]] = (
    _of_task(
        "standfast_in_sync_replicas",
        "Replicas of the task that are in sync, the active included; absent while its processor is parked.",
        _in_sync,
    ),
    _of_task("standfast_task_epoch", "Epoch of the task.", lambda _, record: record.epoch),
    Metric(
        "standfast_job_status",
        "1 for the status that the job has, 0 for the others.",
        ("job", "status"),
        _statuses,
    ),
    _of_job(
        "standfast_wanted_replicas",
        "Replicas that each task of the job is to have, the active included.",
        lambda job: job.model.copies,
    ),
    Metric(
        "standfast_active_processors",
        "Processors of the job that are active on the host; 0: the host has only standbys of the job.",
        ("job", "host"),
        _actives,
    ),
    _of_job(
        "standfast_parked_processors",
        "Processors that failed too often and are withdrawn until `standfast unpark`.",
        lambda job: sum(bool(each.parked) for each in job.model.processors.values()),
    ),
    _of_job(
        "standfast_changelog_at_risk",
        "1 while brokers delete records of the job's changelog, by its cleanup.policy; absent while not known.",
        lambda job: bool(job.changelog_risk) if job.is_changelog_known else None,
    ),
    Metric(
        "standfast_retry_failures",
        "Failures of a slot within its job's window; absent: none.",
        ("job", "slot"),
        _recent_failures,
    ),
    _of_job(
        "standfast_retry_allowed",
        "Failures of one slot that the job's retry budget allows in its window; absent: no bound.",
        lambda job: job.policy.retry_count if job.policy.retry_count >= 0 else None,
    ),
    Metric(
        "standfast_containers",
        "Containers, by what the leader knows about whether they are alive.",
        ("state",),
        _containers,
    ),
    Metric(
        "standfast_spare_containers",
        "Spare containers of the job, by whether their pipeline is warm.",
        ("job", "state"),
        _spares,
    ),
    _of_job(
        "standfast_wanted_spare_containers",
        "Spare containers that the job is to have (`job.container.spare.count`).",
        lambda job: job.policy.spare_count,
    ),
    Metric(
        "standfast_cells",
        "Cells, by whether their Skein application master answers; if it does not any more, the cell is lost.",
        ("state",),
        _cells,
    ),
    single(
        "standfast_requests_waiting",
        "Container requests that have not led to a registered container yet.",
        lambda view: len(view.requests),
    ),
    single("standfast_drained_hosts", "Drained hosts (`standfast drain`).", lambda view: len(view.drained)),
    single(
        "standfast_handovers_under_way",
        "Planned hand-overs that are being prepared: the standby gets ready while the active continues.",
        lambda view: len(view.handovers),
    ),
    single(
        "standfast_failovers_under_way",
        "Processors whose new active has not committed yet.",
        lambda view: len(view.failovers),
    ),
)


def view_gauges(view: ClusterView, *, has_lease: bool = True) -> Iterator[Samples]:
    """Yield every gauge of the leader; of a candidate that does not lead, only its identity and role."""
    leadership = Leadership(view.epoch, has_lease)
    yield from (each.of(leadership) for each in OF_CANDIDATE)
    if view.epoch == 0:
        return
    replicas = tuple(_replicas(view))
    yield from (each.of(replicas) for each in LAGS)
    yield from (each.of(view) for each in OF_VIEW)


def _replicas(view: ClusterView) -> Iterator[tuple[tuple[str, ...], ReplicaStatus]]:
    """Yield every replica with its last reported status."""
    for task, recorded in view.records.items() if len(view.records) <= MOST_LAGS else ():
        record = recorded.record
        for copy, container in record.placed.items():
            known = view.containers.get(container)
            status = known.statuses.get(ReplicaId(task, copy)) if known is not None else None
            if status is not None:
                role = Role.ACTIVE if record.active == copy else Role.STANDBY
                yield (task.job, task.stage, str(task.partition), str(copy), role.value), status
