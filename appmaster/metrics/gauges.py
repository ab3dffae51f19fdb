"""What the leader's view looks like at this moment, as metrics: nothing has to keep them up to date. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from appmaster.planning.state.job import JobState
from appmaster.planning.state.model import job_of
from appmaster.planning.state.view import CellState, ClusterView, Presence
from standby.shared.metric import REPLICA_LABELS, Kind, Metric
from standby.shared.model import ReplicaId, Role

#: A leader of more tasks leaves lags to the containers, which show them too: 10,000 tasks would be 60,000
#: lines, and a second of the leader's processor at each scrape.
MOST_LAGS: Final = 1_000

_TASK_LABELS: Final = ("job", "stage", "partition")

_Values = Iterable[tuple[tuple[str, ...], float]]


def of_view(view: ClusterView) -> Iterator[Metric]:
    """Yield every gauge of the leader; of a candidate that does not lead, only who and what it is."""
    yield _gauge("standfast_is_leader", "1 while this candidate leads.", (), [((), int(view.epoch > 0))])
    yield _gauge("standfast_controller_epoch", "Epoch of the leader; 0: not leading.", (), [((), view.epoch)])
    if view.epoch == 0:
        return
    yield from _of_replicas(view)
    yield from _of_tasks(view)
    yield from _of_jobs(view)
    yield from _of_cluster(view)


def _gauge(name: str, text: str, labels: tuple[str, ...], values: _Values) -> Metric:
    return Metric(name, text, Kind.GAUGE, labels, tuple((key, float(value)) for key, value in values))


def _of_replicas(view: ClusterView) -> Iterator[Metric]:
    """Yield the lag of every replica as its container reported it last; an unknown one is left out."""
    records: list[tuple[tuple[str, ...], float]] = []
    seconds: list[tuple[tuple[str, ...], float]] = []
    sizes: list[tuple[tuple[str, ...], float]] = []
    for task, recorded in view.records.items() if len(view.records) <= MOST_LAGS else ():
        record = recorded.record
        for copy, container in record.placed.items():
            known = view.containers.get(container)
            status = known.statuses.get(ReplicaId(task, copy)) if known is not None else None
            if status is None:
                continue
            role = Role.ACTIVE if record.active == copy else Role.STANDBY
            labels = (task.job, task.stage, str(task.partition), str(copy), role.value)
            if status.lag_records is not None:
                records.append((labels, status.lag_records))
            if status.lag_ms is not None:
                seconds.append((labels, status.lag_ms / 1000))
            if status.lag_bytes is not None:
                sizes.append((labels, status.lag_bytes))
    yield _gauge(
        "standfast_replica_lag_records",
        "Changelog offsets that are not applied to the local store yet.",
        REPLICA_LABELS,
        records,
    )
    yield _gauge(
        "standfast_replica_lag_seconds",
        "For how long the replica has been behind the changelog's end.",
        REPLICA_LABELS,
        seconds,
    )
    yield _gauge(
        "standfast_replica_lag_bytes",
        "About how many bytes of keys and values are not applied to the local store yet.",
        REPLICA_LABELS,
        sizes,
    )


def _of_tasks(view: ClusterView) -> Iterator[Metric]:
    in_sync: list[tuple[tuple[str, ...], float]] = []
    epochs: list[tuple[tuple[str, ...], float]] = []
    for task, recorded in view.records.items():
        record = recorded.record
        labels = (task.job, task.stage, str(task.partition))
        live = sum(record.placed.get(copy) in view.containers for copy in record.in_sync)
        in_sync.append((labels, live))
        epochs.append((labels, record.epoch))
    yield _gauge(
        "standfast_in_sync_replicas",
        "Replicas of the task that are in sync, the active included.",
        _TASK_LABELS,
        in_sync,
    )
    yield _gauge("standfast_task_epoch", "Epoch of the task.", _TASK_LABELS, epochs)


def _of_jobs(view: ClusterView) -> Iterator[Metric]:
    jobs = tuple(view.jobs.values())
    yield _gauge(
        "standfast_job_status",
        "1 for the status that the job has, 0 for the others.",
        ("job", "status"),
        (((job.name, state.value), int(job.state is state)) for job in jobs for state in JobState),
    )
    yield _gauge(
        "standfast_wanted_replicas",
        "Replicas that each task of the job is to have, the active included.",
        ("job",),
        (((job.name,), job.model.copies) for job in jobs),
    )
    yield _gauge(
        "standfast_parked_processors",
        "Processors that failed too often and are withdrawn until `standfast unpark`.",
        ("job",),
        (((job.name,), sum(bool(each.parked) for each in job.model.processors.values())) for job in jobs),
    )
    yield _gauge(
        "standfast_changelog_at_risk",
        "1 while brokers delete records of the job's changelog, by its cleanup.policy.",
        ("job",),
        (((job.name,), int(bool(job.changelog_risk))) for job in jobs),
    )
    yield _gauge(
        "standfast_retry_failures",
        "Failures of a slot within its job's window; absent: none.",
        ("job", "slot"),
        _recent_failures(view),
    )
    yield _gauge(
        "standfast_retry_allowed",
        "Failures of one slot that the job's retry budget allows in its window; absent: no bound.",
        ("job",),
        (((job.name,), job.policy.retry_count) for job in jobs if job.policy.retry_count >= 0),
    )


def _recent_failures(view: ClusterView) -> _Values:
    for slot, attempts in view.attempts.items():
        job = view.jobs.get(job_of(slot))
        if job is not None:
            since = view.now_ms - job.policy.retry_window_ms
            recent = sum(each > since for each in attempts.failures_ms)
            if recent:
                yield (job.name, str(slot)), recent


def _of_cluster(view: ClusterView) -> Iterator[Metric]:
    states = Counter(each.presence for each in view.containers.values())
    yield _gauge(
        "standfast_containers",
        "Containers, by how sure the leader is that they live.",
        ("state",),
        (((presence.value,), states[presence]) for presence in Presence),
    )
    cells = Counter(each.state for each in view.cells.values())
    yield _gauge(
        "standfast_cells",
        "Cells, by whether their Skein application master answers: if not, they are lost.",
        ("state",),
        [
            (("up",), cells[CellState.UP]),
            (("awaited",), cells[CellState.AWAITED]),
            (("lost",), cells[CellState.LOST]),
        ],
    )
    yield _gauge(
        "standfast_requests_waiting",
        "Container requests that have not brought a container yet.",
        (),
        [((), len(view.requests))],
    )
    yield _gauge(
        "standfast_drained_hosts",
        "Drained hosts (`standfast drain`).",
        (),
        [((), len(view.drained))],
    )
    yield _gauge(
        "standfast_handovers_under_way",
        "Planned hand-overs that are being prepared: the standby gets ready while the active goes on.",
        (),
        [((), len(view.handovers))],
    )
    yield _gauge(
        "standfast_failovers_under_way",
        "Processors whose new active has not committed yet.",
        (),
        [((), len(view.failovers))],
    )
