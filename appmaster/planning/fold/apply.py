"""``apply(view, event)``: the only place where the leader's view changes. Pure.

No decision is made here. An event of an older incarnation, or of something unknown, changes nothing: late news is
normal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from appmaster.planning.fold import cells, from_cluster
from appmaster.planning.fold.changes import unsettle, unsettle_all, unsettle_job, with_records
from appmaster.planning.fold.from_actions import start
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import Job, JobState
from appmaster.planning.state.mappings import put, without
from appmaster.planning.state.model import JobModel, Slot, SpareSlotId, is_right, job_of
from appmaster.planning.state.view import ClusterView
from standby.shared.model import ProcessorId, SlotId, TaskId

V = TypeVar("V")

#: Time after a stall of the leader in which it has certainly read everything that waits in its sockets.
LISTEN_MS: Final = 500


def apply(view: ClusterView, event: Event) -> ClusterView:
    """Return the view after ``event``."""
    return _RULES[type(event)](view, event)


def _elected(view: ClusterView, event: happened.Elected) -> ClusterView:
    return replace(view, epoch=event.epoch, now_ms=event.now_ms)


def _ticked(view: ClusterView, event: happened.Ticked) -> ClusterView:
    if event.stalled_ms > 0:
        view = _excused(view, event.now_ms, event.stalled_ms)
    over = [each for each, ending in view.ending.items() if event.now_ms >= ending.until_ms]
    for each in over:
        view = unsettle(view, view.processors_in(each))
        view = replace(view, ending=without(view.ending, each))
    if event.wall_offset_ms is not None:
        view = replace(view, wall_offset_ms=event.wall_offset_ms)
    return replace(view, now_ms=event.now_ms)


def _excused(view: ClusterView, now_ms: int, stalled_ms: int) -> ClusterView:
    """Return the view with every wait shortened by the time for which the leader stalled (rule `who-is-lost`).

    During the stall the leader received and forwarded nothing. No wait is moved to begin later than now. Otherwise a
    container that was heard just after the stall could be silent for as long as the stall lasted, and one that a new
    leader expects for as long as that leader had been a follower.
    """

    def later(at_ms: int) -> int:
        return min(now_ms, at_ms + stalled_ms)

    return replace(
        view,
        containers={
            each.id: replace(
                each,
                heard_ms=later(each.heard_ms),
                answered_ms=later(each.answered_ms),
                responded_ms=later(each.responded_ms),
                since_ms=later(each.since_ms),
                still_since_ms=0,
                still_ms=0,
                at_disk_ms=later(each.at_disk_ms) if each.at_disk_ms else 0,
                standing={
                    replica: replace(standing, since_ms=later(standing.since_ms))
                    for replica, standing in each.standing.items()
                },
            )
            for each in view.containers.values()
        },
        requests={
            number: replace(each, since_ms=later(each.since_ms)) for number, each in view.requests.items()
        },
        handovers={
            processor: replace(each, since_ms=later(each.since_ms))
            for processor, each in view.handovers.items()
        },
        rebalancing={
            job: each if each.whole_ms is None else replace(each, whole_ms=later(each.whole_ms))
            for job, each in view.rebalancing.items()
        },
        ending={
            container: replace(each, until_ms=each.until_ms + stalled_ms)
            for container, each in view.ending.items()
        },
        self_doubt_until_ms=view.self_doubt_until_ms + (stalled_ms if view.self_doubt_until_ms else 0),
        listening_until_ms=now_ms + LISTEN_MS,
    )


def _job_loaded(view: ClusterView, event: happened.JobLoaded) -> ClusterView:
    known = view.jobs.get(event.name)
    recorded = event.model if event.model is not None else JobModel(event.name, {}, version=0)
    if known is None:
        job = Job(
            event.name,
            event.run,
            event.spec,
            recorded,
            event.policy,
            event.revision,
            event.is_wanted,
            event.purge,
            is_fence_waived=event.is_fence_waived,
            notes=event.notes,
            quarantined=event.quarantined,
            obstacle=event.obstacle,
            changelog_risk=event.changelog_risk,
            is_changelog_known=event.is_changelog_known,
            is_risk_logged=_is_at_risk(None, event),
            is_risk_recorded=event.was_at_risk,
            was_deployed=event.was_deployed,
            failure=event.failure,
            last_traceback=event.traceback,
            is_fenced=event.is_over,
            state=JobState.UNDEPLOYED if event.is_over and not event.is_wanted else JobState.DEPLOYING,
        )
    else:
        if _is_new_chance(known, event):
            view, known = _begun_anew(view, known)
        if event.revision != known.revision:
            known = replace(known, refused=0, refusal="")
        is_newer = recorded.znode >= known.model.znode
        job = replace(
            known,
            run=event.run,
            spec=event.spec,
            # Read before the last write but delivered after it: the older version changes nothing.
            model=recorded if is_newer else known.model,
            is_modelling=known.is_modelling and not is_newer,
            policy=event.policy,
            revision=event.revision,
            is_wanted=event.is_wanted,
            purge=event.purge,
            is_fence_waived=event.is_fence_waived,
            notes=event.notes,
            quarantined=event.quarantined,
            obstacle=event.obstacle,
            changelog_risk=event.changelog_risk,
            is_changelog_known=event.is_changelog_known,
            is_risk_logged=_is_at_risk(known, event),
        )
    return _reindexed(replace(view, jobs=put(view.jobs, event.name, job)), event.name)


def _is_at_risk(known: Job | None, event: happened.JobLoaded) -> bool:
    """Return whether a job's changelog is about to lose records; as was found last while this leader does not know."""
    if event.changelog_risk or event.is_changelog_known or (known is not None and known.changelog_risk):
        return bool(event.changelog_risk)
    return known.is_risk_logged if known is not None else event.was_at_risk


def _is_new_chance(known: Job, event: happened.JobLoaded) -> bool:
    """Return whether a job that had ended, or was given up, has been submitted or deployed again."""
    if known.is_led or not event.is_wanted:
        return False
    return not known.is_wanted or (event.run, event.revision) != (known.run, known.revision)


def _begun_anew(view: ClusterView, job: Job) -> tuple[ClusterView, Job]:
    """Return the view, and the job in it, without anything left over from the job's last deployment."""
    attempts = {slot: each for slot, each in view.attempts.items() if job_of(slot) != job.name}
    fresh = replace(
        job,
        state=JobState.DEPLOYING,
        reasons=(),
        was_deployed=False,
        fence=0,
        is_fenced=False,
        fencing_failures=0,
        fencing_error="",
        fence_again_ms=0,
        faults={},
        refused=0,
        refusal="",
        failure=None,
        last_traceback="",
    )
    return replace(view, attempts=attempts), fresh


def _topic_noted(view: ClusterView, event: happened.TopicNoted) -> ClusterView:
    return view


def _job_forgotten(view: ClusterView, event: happened.JobForgotten) -> ClusterView:
    job = view.jobs.get(event.name)
    if job is None:
        return view
    view, _ = _begun_anew(view, job)
    return replace(
        view,
        jobs=without(view.jobs, event.name),
        records={task: each for task, each in view.records.items() if task.job != event.name},
        writing={task: each for task, each in view.writing.items() if task.job != event.name},
        assigned={each: held for each, held in _assigned_to_others(view, event.name) if held},
        crashes={task: each for task, each in view.crashes.items() if task.job != event.name},
        unsettled=frozenset(each for each in view.unsettled if each.job != event.name),
        in_sync_ms=_of_others(view.in_sync_ms, event.name),
        no_displacing=_of_others(view.no_displacing, event.name),
        lost_actives=_of_others(view.lost_actives, event.name),
        failovers=_of_others(view.failovers, event.name),
        handovers=_of_others(view.handovers, event.name),
        rebalancing=without(view.rebalancing, event.name),
    )


def _jobs_unreadable(view: ClusterView, event: happened.JobsUnreadable) -> ClusterView:
    return view if event.names == view.unreadable else replace(view, unreadable=event.names)


def _assigned_to_others(view: ClusterView, job: str) -> Iterator[tuple[str, dict[TaskId, int]]]:
    for container, held in view.assigned.items():
        yield container, {task: copy for task, copy in held.items() if task.job != job}


def _of_others(known: Mapping[ProcessorId, V], job: str) -> dict[ProcessorId, V]:
    return {processor: each for processor, each in known.items() if processor.job != job}


def _model_written(view: ClusterView, event: happened.ModelWritten) -> ClusterView:
    known = view.jobs.get(event.job)
    if known is None:
        return view  # deleted meanwhile
    job = replace(known, model=event.model, is_modelling=False)
    return _reindexed(replace(view, jobs=put(view.jobs, event.job, job)), event.job)


def _reindexed(view: ClusterView, job: str) -> ClusterView:
    """Return the view after a change of a job's model: all its processors are unsettled, removed ones are dropped."""
    present = view.jobs[job]
    right = replace(present, is_model_right=is_right(present.model, present.spec))
    view = replace(view, jobs=put(view.jobs, job, right))
    known = frozenset(each for other in view.jobs.values() for each in other.model.processors)
    # Otherwise nothing would end the hand-over of a processor that no longer exists.
    handovers = {each: handover for each, handover in view.handovers.items() if each in known}
    view = replace(view, unsettled=view.unsettled & known, handovers=handovers)
    return unsettle_job(_without_attempts(view, right), job)


def _without_attempts(view: ClusterView, job: Job) -> ClusterView:
    """Return the view without the failures of slots that a job does not have any more."""
    if not view.attempts:
        return view
    held, asked = view.containers.values(), view.requests.values()
    used = {*(each.slot for each in held), *(each.slot for each in asked)}

    def is_kept(slot: Slot) -> bool:
        if job_of(slot) != job.name or slot in used:
            return True
        if isinstance(slot, SlotId):
            processor = job.model.processors.get(slot.processor)
            return processor is not None and slot.copy in processor.copies
        most = job.policy.spare_count if isinstance(slot, SpareSlotId) else job.model.containers
        return slot.number < most

    return replace(view, attempts={slot: each for slot, each in view.attempts.items() if is_kept(slot)})


def _model_refused(view: ClusterView, event: happened.ModelRefused) -> ClusterView:
    # No new model is written until the present one has been read again.
    return view


def _records_loaded(view: ClusterView, event: happened.RecordsLoaded) -> ClusterView:
    loaded = {each.record.task for each in event.records}
    writing = {task: decision for task, decision in view.writing.items() if task not in loaded}
    over = frozenset(view.bindings).difference(writing.values())
    return _unbound(with_records(replace(view, writing=writing), event.records), over)


def _unbound(view: ClusterView, decisions: Iterable[str]) -> ClusterView:
    """Return the view in which no container waits for these decisions."""
    over = {each: view.bindings[each] for each in decisions if each in view.bindings}
    if not over:
        return view
    containers = dict(view.containers)
    for each in over.values():
        if each in containers:
            containers[each] = replace(containers[each], binding="")
    bindings = {decision: each for decision, each in view.bindings.items() if decision not in over}
    return replace(view, containers=containers, bindings=bindings)


def _records_written(view: ClusterView, event: happened.RecordsWritten) -> ClusterView:
    writing = dict(view.writing)
    for each in event.records:
        if writing.get(each.record.task) == event.decision:
            del writing[each.record.task]
    view = _unbound(with_records(replace(view, writing=writing), event.records), (event.decision,))
    written = {each.record.task for each in event.records}
    for processor, failover in view.failovers.items():
        if failover.recorded_ms == 0 and written.issuperset(failover.tasks):
            recorded = replace(failover, recorded_ms=event.at_ms)
            view = replace(view, failovers=put(view.failovers, processor, recorded))
    return view


def _records_refused(view: ClusterView, event: happened.RecordsRefused) -> ClusterView:
    # No new decision is made about these tasks until their records have been read again.
    return view


def _hosts_known(view: ClusterView, event: happened.HostsKnown) -> ClusterView:
    described = {each.name: each for each in event.hosts}
    if described == view.described:
        return view
    # Copies that share a fault domain may have a better location now.
    return cells.with_offers(replace(unsettle_all(view), described=described))


def _hosts_drained(view: ClusterView, event: happened.HostsDrained) -> ClusterView:
    if dict(event.hosts) == dict(view.drained):
        return view
    return unsettle_all(replace(view, drained=dict(event.hosts)))


def _commanded(view: ClusterView, event: happened.Commanded) -> ClusterView:
    return replace(view, commands=(*view.commands, event.command))


def _command_withdrawn(view: ClusterView, event: happened.CommandWithdrawn) -> ClusterView:
    return replace(view, commands=tuple(each for each in view.commands if each.number != event.number))


def _tasks_fenced(view: ClusterView, event: happened.TasksFenced) -> ClusterView:
    job = view.jobs.get(event.job)
    if job is None or job.fence != event.number:
        return view  # of an earlier deployment
    fenced = replace(job, fence=0, is_fenced=True, fencing_failures=0, fencing_error="")
    return replace(view, jobs=put(view.jobs, event.job, fenced))


def _fencing_failed(view: ClusterView, event: happened.FencingFailed) -> ClusterView:
    known = view.jobs.get(event.job)
    if known is None or known.fence != event.number:
        return view
    job = replace(
        known,
        fence=0,
        fencing_failures=known.fencing_failures + 1,
        fencing_error=event.reason,
        fence_again_ms=view.now_ms + known.policy.backoff_ms(known.fencing_failures),
    )
    return replace(view, jobs=put(view.jobs, event.job, job))


def _effect_failed(view: ClusterView, event: happened.EffectFailed) -> ClusterView:
    job = view.jobs.get(event.job)
    if job is None or event.effect in job.faults:
        # The error's text may differ each time, and each change of a status is written.
        return view
    return replace(
        view,
        jobs=put(view.jobs, job.name, replace(job, faults=put(job.faults, event.effect, event.reason))),
    )


def _effect_done(view: ClusterView, event: happened.EffectDone) -> ClusterView:
    job = view.jobs.get(event.job)
    if job is None:
        return view
    return replace(
        view, jobs=put(view.jobs, job.name, replace(job, faults=without(job.faults, event.effect)))
    )


def _started(view: ClusterView, event: happened.Started) -> ClusterView:
    return start(view, event.action, event.at_ms)


_RULES: Final[Mapping[type, Callable[[ClusterView, Any], ClusterView]]] = {
    happened.Elected: _elected,
    happened.Ticked: _ticked,
    happened.JobLoaded: _job_loaded,
    happened.TopicNoted: _topic_noted,
    happened.JobForgotten: _job_forgotten,
    happened.JobsUnreadable: _jobs_unreadable,
    happened.ModelWritten: _model_written,
    happened.ModelRefused: _model_refused,
    happened.RecordsLoaded: _records_loaded,
    happened.RecordsWritten: _records_written,
    happened.RecordsRefused: _records_refused,
    happened.HostsKnown: _hosts_known,
    happened.HostsDrained: _hosts_drained,
    happened.Commanded: _commanded,
    happened.CommandWithdrawn: _command_withdrawn,
    happened.CellFound: cells.cell_found,
    happened.CellAwaited: cells.cell_awaited,
    happened.CellLost: cells.cell_lost,
    happened.ContainerExpected: from_cluster.container_expected,
    happened.ContainerUnregistered: from_cluster.container_unregistered,
    happened.RequestPlaced: from_cluster.request_placed,
    happened.RequestRefused: from_cluster.request_refused,
    happened.ContainerGranted: from_cluster.container_granted,
    happened.ContainerCompleted: from_cluster.container_completed,
    happened.ContainerRegistered: from_cluster.container_registered,
    happened.HeartbeatReceived: from_cluster.heartbeat_received,
    happened.ReportReceived: from_cluster.report_received,
    happened.ContainerStreamBroken: from_cluster.stream_broken,
    happened.PortProbed: from_cluster.port_probed,
    happened.TasksFenced: _tasks_fenced,
    happened.FencingFailed: _fencing_failed,
    happened.EffectFailed: _effect_failed,
    happened.EffectDone: _effect_done,
    happened.Started: _started,
}
