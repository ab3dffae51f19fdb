"""Changes of the view that several events have in common. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.mappings import put, without
from appmaster.planning.state.model import SharedSlotId, Slot, job_of
from appmaster.planning.state.reasons import Loss, Reason, Setback, SetbackKind
from appmaster.planning.state.view import (
    HOLDING,
    ClusterView,
    Container,
    ContainerRequest,
    LostActive,
    Presence,
    Rebalancing,
    Recorded,
    RequestKind,
    places,
)
from standby.shared.exits import ExitCause, ProcessEnd
from standby.shared.model import InputFailures, Phase, ProcessorId, ReplicaId, ReplicaStatus, SlotId, TaskId


def unsettle(view: ClusterView, processors: Iterable[ProcessorId]) -> ClusterView:
    """Return the view in which ``processors`` are unsettled: the passes look at them again.

    A processor that is not in its job's model, or no longer, is left out: no pass would ever settle it.
    """
    more = frozenset(each for each in processors if each not in view.unsettled and _is_known(view, each))
    if not more:
        return view
    view = replace(view, unsettled=view.unsettled | more)
    for name in {each.job for each in more}:
        known = view.rebalancing.get(name)
        if known is None or known.whole_ms is not None:
            not_whole = replace(known or Rebalancing(), whole_ms=None)
            view = replace(view, rebalancing=put(view.rebalancing, name, not_whole))
    return view


def bounded_anew(view: ClusterView, job: str) -> ClusterView:
    """Return the view in which the count of hand-overs that spread a job's actives starts again at 0.

    A request (`standfast rebalance`) that has used up its hand-overs is over.
    """
    known = view.rebalancing.get(job)
    if known is None or not known.moves or job not in view.jobs:
        return view
    is_asked = known.is_asked and not known.is_spent(len(view.jobs[job].model.processors))
    return replace(view, rebalancing=put(view.rebalancing, job, replace(known, moves=0, is_asked=is_asked)))


def _is_known(view: ClusterView, processor: ProcessorId) -> bool:
    job = view.jobs.get(processor.job)
    return job is not None and processor in job.model.processors


def without_request(view: ClusterView, request: ContainerRequest, at_ms: int) -> ClusterView:
    """Return the view without a request that was not served.

    If it was to reserve the host of a displaced standby, that is restored, and none is displaced for a while.
    """
    view = replace(view, requests=without(view.requests, request.number))
    job = view.jobs.get(job_of(request.slot))
    if request.kind is not RequestKind.RESERVATION or not isinstance(request.slot, SlotId) or job is None:
        return view
    # `job.hotstandby.samehost.timeout.ms` may be 0, and any other host can only be found meanwhile.
    until = at_ms + 4 * job.policy.reservation_ms
    return replace(view, no_displacing=put(view.no_displacing, request.slot.processor, until))


def unsettle_all(view: ClusterView) -> ClusterView:
    """Return the view in which every processor is unsettled."""
    return unsettle(view, (processor for _, processor in view.processors()))


def unsettle_job(view: ClusterView, job: str) -> ClusterView:
    """Return the view in which every processor of a job is unsettled."""
    return unsettle(view, view.jobs[job].model.processors)


def unsettle_around(view: ClusterView, container: Container) -> ClusterView:
    """Return the view in which everything that a container's coming or going affects is unsettled.

    In a mixed job that is all of it: its containers share the copies, and another one may have to be emptied now.
    """
    job = view.job_of(container)
    if job is not None and job.model.is_mixed:
        return unsettle_job(view, job.name)
    return unsettle(view, view.processors_in(container.id))


def with_records(view: ClusterView, recorded: Iterable[Recorded]) -> ClusterView:
    """Return the view with these records, its index of them, and their processors unsettled."""
    records = dict(view.records)
    edited: dict[str, dict[TaskId, int]] = {}
    moved: set[Slot] = set()
    touched: set[ProcessorId] = set()
    for each in recorded:
        task = each.record.task
        old = records.get(task)
        before = places(old.record) if old is not None else {}
        after = places(each.record)
        if before != after:
            for container in before.keys() | after.keys():
                held = edited.setdefault(container, dict(view.assigned.get(container, {})))
                held.pop(task, None)
                if container in after:
                    held[task] = after[container]
        records[task] = each
        processor = view.processor_of(task)
        if processor is not None:
            touched.add(processor)
            was_in = old.record.placed if old is not None else {}
            moved.update(SlotId(processor, copy) for copy, _ in each.record.placed.items() - was_in.items())
    ahead = {task: epoch for task, epoch in view.ahead.items() if epoch > _epoch(records.get(task))}
    attempts = {
        slot: replace(each, move_not_before_ms=0, moves_in_row=0) if slot in moved else each
        for slot, each in view.attempts.items()
    }
    view = replace(view, records=records, ahead=ahead, attempts=attempts)
    if edited:
        assigned = {**view.assigned, **edited}
        view = replace(view, assigned={each: held for each, held in assigned.items() if held})
        view = with_known_hosts(view, edited)
        # Other processors share a container with what has changed there: their home may be a different one now.
        touched.update(*(view.processors_in(each) for each in edited))
    return unsettle(_still_missed(view, touched), touched)


def _still_missed(view: ClusterView, written: Collection[ProcessorId]) -> ClusterView:
    """Return the view without lost actives that the written records have replaced already.

    Such an active was lost while its hand-over was being written.
    """
    over = [each for each in view.lost_actives if each in written and _is_served(view, each)]
    if not over:
        return view
    missed = {each: lost for each, lost in view.lost_actives.items() if each not in over}
    return replace(view, lost_actives=missed)


def _is_served(view: ClusterView, processor: ProcessorId) -> bool:
    """Return whether each task of a processor has its active in a container that may hold it, or is to have none."""
    records = [view.records[each].record for each in view.job_tasks(processor) if each in view.records]
    return all(
        each.active is None or view.holder(each.placed.get(each.active)) is not None for each in records
    )


def _epoch(recorded: Recorded | None) -> int:
    return recorded.record.epoch if recorded is not None else 0


def with_inventory(view: ClusterView, replicas: Iterable[ReplicaStatus]) -> ClusterView:
    """Return the view with the epochs that a container has seen, where they are higher than the records'."""
    ahead = {
        each.replica.task: each.epoch
        for each in replicas
        if each.epoch > max(_epoch(view.records.get(each.replica.task)), view.ahead.get(each.replica.task, 0))
    }
    return replace(view, ahead={**view.ahead, **ahead}) if ahead else view


def with_known_hosts(view: ClusterView, containers: Iterable[str]) -> ClusterView:
    """Return the view in which containers that this leader has not heard from are on the hosts that the records name.

    The same-host check needs these hosts before the containers connect.
    """
    for each in containers:
        container = view.containers.get(each)
        if container is None or container.host:
            continue
        for task, copy in view.assigned.get(each, {}).items():
            record = view.records[task].record
            # While a standby is displaced, the record names the host where the active will start, not where it was.
            is_there = record.displaced is None or copy != record.active
            if record.placed.get(copy) == each and is_there:
                heard = replace(container, host=record.hosts.get(copy, ""))
                view = replace(view, containers=put(view.containers, each, heard))
                break
    return view


def slot_of(view: ClusterView, container: Container) -> Slot | None:
    """Return the slot that a container's failure counts against: the one it serves, or the one it was requested for."""
    job = view.job_of(container)
    if job is not None and job.model.is_mixed:
        return container.slot or SharedSlotId(job.name, 0)
    return view.home(container.id) or container.slot


def lost(view: ClusterView, container: Container, loss: Reason[Loss], at_ms: int) -> ClusterView:
    """Return the view in which ``container`` has lost its roles, with the time from which each active is missed.

    A container that was told to exit does not count as a failure, and one that is lost already is not lost again.
    """
    if container.presence not in HOLDING:
        return view
    suspect = replace(container, presence=Presence.SUSPECT, since_ms=at_ms, loss=loss)
    view = replace(
        view,
        containers=put(view.containers, container.id, suspect),
        logged_lost=view.logged_lost | {container.id},
    )
    view = unsettle(view, view.processors_in(container.id))
    for each in {task.job for task in view.assigned.get(container.id, ())}:
        view = bounded_anew(view, each)
    actives = view.actives_in(container.id)
    for task in actives:
        processor = view.processor_of(task)
        if processor is not None:
            missed = LostActive(container.id, loss.kind, at_ms, container.cell)
            view = replace(view, lost_actives=put(view.lost_actives, processor, missed))
    if container.end is not None:
        view = _crashed(view, container, container.end, actives)
    return view


def _crashed(
    view: ClusterView, container: Container, end: ProcessEnd, actives: Sequence[TaskId]
) -> ClusterView:
    """Return the view after a process ended, attributed to the active tasks whose code it ran (rule `fair-blame`).

    A task whose code ran alone has failed, unless something else may have ended the process and this is the first
    end at its offset. If code of several tasks ran, no failure is counted: each of them runs alone from now on, so
    that the next end is conclusive.
    """
    if end.is_from_outside:
        return view
    crashes = dict(view.crashes)
    for each in end.ran:
        task = each.task
        if task not in actives:
            continue
        status = container.statuses.get(ReplicaId(task, view.assigned[container.id][task]))
        offset = each.position if each.position is not None else _waiting_at(status)
        if offset is None:
            continue
        recorded = view.records[task].record.failures
        if recorded is not None and recorded.container == container.id:
            continue  # A former leader has taken this end into account.
        known = [
            failures
            for failures in (recorded, status.failures if status else None)
            if failures is not None and failures.offset == offset
        ]
        before = max((failures.count for failures in known), default=0)
        is_failure = len(end.ran) == 1 and (end.cause is ExitCause.ITSELF or bool(known))
        crashes[task] = InputFailures(
            offset,
            before + is_failure,
            f"the process died: {end}",
            known[-1].topic if known else "",
            is_apart=True,
            container=container.id,
        )
    return replace(view, crashes=crashes)


def _waiting_at(status: ReplicaStatus | None) -> int | None:
    """Return the committed offset of an active that last reported input to process; None if it reported none."""
    if status is None or status.phase is not Phase.ACTIVE or status.input_committed is None:
        return None
    has_none = status.input_end is not None and status.input_end <= status.input_committed
    return None if has_none else status.input_committed


def failed_attempt(
    view: ClusterView, slot: Slot, at_ms: int, last: Setback, *, counts: bool = True, waits: bool = True
) -> ClusterView:
    """Return the view after a failure of ``slot``: the next request waits, longer each time.

    ``counts``: whether the failure spends retry budget. A refused or expired request does not, nor does a failure of
    a container to which a copy was to move, because that copy serves where it is; it has a row of its own
    (`Attempts.row`). ``waits``: whether there is a wait after the first failure in a row, too.
    """
    job = view.jobs.get(job_of(slot))
    if job is None:
        return view
    policy = job.policy
    old = view.attempts.get(slot, Attempts())
    is_move = view.is_held(slot)
    before, _ = old.row(is_move=is_move)
    until_ms = at_ms + (policy.backoff_ms(before) if before or waits else 0)
    recent = tuple(each for each in old.failures_ms if each > at_ms - policy.retry_window_ms)
    if is_move:
        attempts = replace(
            old, failures_ms=recent, move_not_before_ms=until_ms, moves_in_row=before + 1, last=last
        )
    else:
        failures = (*recent, at_ms) if counts else recent
        attempts = replace(old, failures_ms=failures, not_before_ms=until_ms, in_row=before + 1, last=last)
    return replace(view, attempts=put(view.attempts, slot, attempts))


def avoid(view: ClusterView, host: str, at_ms: int, slot: Slot, why: str) -> ClusterView:
    """Return the view in which no container is requested on ``host`` for a while."""
    job = view.jobs.get(job_of(slot))
    if job is None:
        return view
    return replace(view, avoided=put(view.avoided, host, (at_ms + job.policy.avoid_host_ms, why)))


def gone(view: ClusterView, container: str, at_ms: int) -> ClusterView:
    """Return the view without a container that has ended; its slot is free for a new request."""
    known = view.containers[container]
    slot = slot_of(view, known)
    job = view.job_of(known)
    serves = bool(view.assigned.get(container))
    view = unsettle_around(view, known)
    if job is not None:
        view = replace(view, arrived_ms=put(view.arrived_ms, job.name, at_ms))
        if known.binding:
            view = unsettle_job(view, job.name)
    failovers = {
        processor: each
        for processor, each in view.failovers.items()
        # What the model has no processor for any more is decided about no further: nothing else would end it.
        if each.to != container or _is_known(view, processor)
    }
    view = replace(view, containers=without(view.containers, container), failovers=failovers)
    if (
        slot is not None
        and (serves or known.is_spare)
        and known.presence not in (Presence.LEAVING, Presence.ORPHAN)
    ):
        # A first loss is followed by a request at once; repeated ones wait longer each time. An end that was caused
        # from outside spends none of the job's retry budget.
        last = Setback(SetbackKind.LOST, known.host, detail=known.reason or "lost")
        view = failed_attempt(view, slot, at_ms, last, counts=known.is_own_failure, waits=False)
    return view
