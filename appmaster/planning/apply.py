"""``apply(view, event)``: the only place where the leader's view changes. Pure.

No decision is taken here. Where an event is of an older incarnation or of something unknown, it
changes nothing: late news is normal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from appmaster.planning import events as happened
from appmaster.planning.changes import avoid, failed_attempt, gone, lost, put, with_news, without
from appmaster.planning.events import Event
from appmaster.planning.started import start
from appmaster.planning.tell import followed_failover, reported_phases
from appmaster.planning.view import (
    ClusterView,
    Container,
    Job,
    News,
    Presence,
    RequestState,
)
from standby.model import SlotId


def apply(view: ClusterView, event: Event) -> ClusterView:
    """Return the view after ``event``."""
    return _RULES[type(event)](view, event)


def _elected(view: ClusterView, event: happened.Elected) -> ClusterView:
    return replace(view, epoch=event.epoch, now_ms=event.now_ms, wall_offset_ms=event.wall_offset_ms)


def _ticked(view: ClusterView, event: happened.Ticked) -> ClusterView:
    if event.stalled_ms <= 0:
        return replace(view, now_ms=event.now_ms)
    # Nobody could be heard while the leader stood still: every silence is shortened by that time.
    containers = {
        each.id: replace(
            each, heard_ms=each.heard_ms + event.stalled_ms, since_ms=each.since_ms + event.stalled_ms
        )
        for each in view.containers.values()
    }
    return replace(view, now_ms=event.now_ms, containers=containers)


def _job_loaded(view: ClusterView, event: happened.JobLoaded) -> ClusterView:
    known = view.jobs.get(event.name)
    if known is None:
        job = Job(
            event.name,
            event.run,
            event.model,
            event.policy,
            event.is_wanted,
            event.purge,
            was_deployed=event.was_deployed,
            failure=event.failure,
        )
    else:
        job = replace(
            known,
            run=event.run,
            model=event.model,
            policy=event.policy,
            is_wanted=event.is_wanted,
            purge=event.purge,
        )
    return replace(view, jobs=put(view.jobs, event.name, job))


def _records_loaded(view: ClusterView, event: happened.RecordsLoaded) -> ClusterView:
    records = {**view.records, **{each.record.task: each for each in event.records}}
    writing = {
        task: decision
        for task, decision in view.writing.items()
        if task not in {each.record.task for each in event.records}
    }
    return rebind(replace(view, records=records, writing=writing))


def rebind(view: ClusterView) -> ClusterView:
    """Return the view with every container's binding as the records have it.

    The records are the truth; a container's ``slot`` is the leader's index of it. A container whose
    binding is being written keeps it: the acknowledgement or the refusal settles that.
    """
    places: dict[str, SlotId] = {}
    hosts: dict[str, str] = {}
    for _, processor in view.processors():
        recorded = view.records.get(view.job_tasks(processor)[0])
        if recorded is not None:
            for copy, container in recorded.record.placed.items():
                places[container] = SlotId(processor, copy)
                hosts[container] = recorded.record.hosts.get(copy, "")
    containers = dict(view.containers)
    for each in view.containers.values():
        slot = places.get(each.id)
        if slot is not None and (each.slot != slot or not each.is_bound):
            # One that has not spoken to this leader yet is where it was bound: the same-host check needs it.
            containers[each.id] = replace(each, slot=slot, is_bound=True, host=each.host or hosts[each.id])
        elif slot is None and each.is_bound and each.slot is not None:
            tasks = view.job_tasks(each.slot.processor) if each.slot.processor.job in view.jobs else ()
            if not any(task in view.writing for task in tasks):
                containers[each.id] = replace(each, is_bound=False)
    return replace(view, containers=containers)


def _records_written(view: ClusterView, event: happened.RecordsWritten) -> ClusterView:
    records = {**view.records, **{each.record.task: each for each in event.records}}
    writing = {task: decision for task, decision in view.writing.items() if decision != event.decision}
    view = rebind(replace(view, records=records, writing=writing))
    for processor, failover in view.failovers.items():
        if failover.recorded_ms == 0 and any(
            each.record.decision == event.decision and each.record.task in view.job_tasks(processor)
            for each in event.records
        ):
            view = replace(
                view, failovers=put(view.failovers, processor, replace(failover, recorded_ms=event.at_ms))
            )
    return view


def _records_refused(view: ClusterView, event: happened.RecordsRefused) -> ClusterView:
    # The tasks stay closed to new decisions until their records have been read again.
    return with_news(view, News("decision_refused", decision=event.decision, reason=event.reason))


def _hosts_known(view: ClusterView, event: happened.HostsKnown) -> ClusterView:
    return replace(view, hosts=tuple(sorted(event.hosts)))


def _container_expected(view: ClusterView, event: happened.ContainerExpected) -> ClusterView:
    if event.container in view.containers:
        return view
    container = Container(
        event.container, event.skein_id, Presence.EXPECTED, event.at_ms, heard_ms=event.at_ms, is_bound=False
    )
    return rebind(replace(view, containers=put(view.containers, event.container, container)))


def _request_placed(view: ClusterView, event: happened.RequestPlaced) -> ClusterView:
    request = view.requests.get(event.number)
    if request is None:
        return view
    placed = replace(request, skein_id=event.skein_id, state=RequestState.WAITING)
    return replace(view, requests=put(view.requests, event.number, placed))


def _request_refused(view: ClusterView, event: happened.RequestRefused) -> ClusterView:
    request = view.requests.get(event.number)
    if request is None:
        return view
    view = replace(view, requests=without(view.requests, event.number))
    view = failed_attempt(view, request.slot, event.at_ms, event.reason, counts=False)
    return with_news(
        view,
        News("request_refused", job=request.slot.processor.job, host=request.host, reason=event.reason),
    )


def _container_granted(view: ClusterView, event: happened.ContainerGranted) -> ClusterView:
    for request in view.requests.values():
        if request.skein_id == event.skein_id and request.state is not RequestState.GRANTED:
            granted = replace(request, state=RequestState.GRANTED, since_ms=event.at_ms)
            return replace(view, requests=put(view.requests, request.number, granted))
    return view


def _container_completed(view: ClusterView, event: happened.ContainerCompleted) -> ClusterView:
    for request in view.requests.values():
        if request.skein_id == event.skein_id:
            # It ended before it ever spoke to us: a launch that failed.
            view = replace(view, requests=without(view.requests, request.number))
            view = failed_attempt(view, request.slot, event.at_ms, f"ended at launch: {event.message}")
            if request.host is not None:
                view = avoid(
                    view, request.host, event.at_ms, request.slot, "a container ended there at launch"
                )
            return with_news(
                view,
                News(
                    "launch_failed",
                    job=request.slot.processor.job,
                    copy=request.slot.copy,
                    host=request.host,
                    reason=event.message,
                ),
            )
    for container in view.containers.values():
        if container.skein_id == event.skein_id:
            view = lost(view, container, f"yarn-completed: {event.message}", event.at_ms)
            return gone(view, container.id, event.at_ms)
    return view


def _container_registered(view: ClusterView, event: happened.ContainerRegistered) -> ClusterView:
    known = view.containers.get(event.container)
    if known is not None and event.incarnation < known.incarnation:
        return view
    slot, is_bound = (known.slot, known.is_bound) if known is not None else (None, False)
    presence = Presence.ORPHAN if known is None else Presence.LIVE
    requests = view.requests
    for request in view.requests.values():
        if request.skein_id == event.skein_id:
            slot = request.slot
            presence = Presence.LIVE
            requests = without(view.requests, request.number)
            break
    if known is not None and known.presence is Presence.LEAVING:
        presence = Presence.LEAVING
    container = Container(
        event.container,
        event.skein_id,
        presence,
        event.at_ms,
        host=event.host,
        incarnation=event.incarnation,
        pid=event.pid,
        http_port=event.http_port,
        heard_ms=event.at_ms,
        slot=slot,
        is_bound=is_bound,
        statuses={each.replica: each for each in event.replicas},
        leftovers=event.leftovers,
        is_warm=known.is_warm if known is not None else False,
    )
    view = replace(view, requests=requests, containers=put(view.containers, event.container, container))
    view = rebind(view)
    return with_news(
        view,
        News(
            "container_registered",
            container=event.container,
            host=event.host,
            reason="returned" if known is not None else "new",
            data={"skein_id": event.skein_id, "pid": event.pid, "holds": len(event.replicas)},
        ),
    )


def _heard(view: ClusterView, container: str, incarnation: int, at_ms: int) -> Container | None:
    """Return the container with its silence ended, or None when the message is of no one we know."""
    known = view.containers.get(container)
    if known is None or known.incarnation != incarnation:
        return None
    # One that was suspected for its silence only had a slow moment: its stream never broke. Its roles
    # were given away all the same; it will be told what is wanted of it now.
    # One whose replica failed is no use, however lively it is.
    is_back = known.presence is Presence.BROKEN or (
        known.presence is Presence.SUSPECT and not known.reason.startswith("replica-")
    )
    presence = Presence.LIVE if is_back else known.presence
    since = known.since_ms if presence is known.presence else at_ms
    return replace(known, heard_ms=at_ms, presence=presence, since_ms=since)


def _heartbeat(view: ClusterView, event: happened.HeartbeatReceived) -> ClusterView:
    known = _heard(view, event.container, event.incarnation, event.at_ms)
    return view if known is None else replace(view, containers=put(view.containers, known.id, known))


def _report(view: ClusterView, event: happened.ReportReceived) -> ClusterView:
    known = _heard(view, event.container, event.incarnation, event.at_ms)
    if known is None:
        return view
    before = known.statuses
    known = replace(
        known,
        obeyed=event.number,
        statuses={each.replica: each for each in event.replicas},
        is_warm=event.warm,
        rss_bytes=event.rss_bytes,
    )
    view = replace(view, containers=put(view.containers, known.id, known))
    view = reported_phases(view, known, before)
    view = followed_failover(view, known)
    if known.is_bound and known.slot is not None and known.slot in view.attempts:
        attempts = view.attempts[known.slot]
        if attempts.in_row and any(each.phase.value in ("active", "tailing") for each in event.replicas):
            view = replace(view, attempts=put(view.attempts, known.slot, replace(attempts, in_row=0)))
    return view


def _stream_broken(view: ClusterView, event: happened.StreamBroken) -> ClusterView:
    known = view.containers.get(event.container)
    if known is None or known.incarnation != event.incarnation or known.presence is not Presence.LIVE:
        return view
    broken = replace(known, presence=Presence.BROKEN, since_ms=event.at_ms, is_probing=False, probed_ms=0)
    return replace(view, containers=put(view.containers, known.id, broken))


def _port_probed(view: ClusterView, event: happened.PortProbed) -> ClusterView:
    known = view.containers.get(event.container)
    if known is None or known.incarnation != event.incarnation or known.presence is not Presence.BROKEN:
        return view
    if event.accepts:
        # Alive, or dying: a dead process's sockets are closed one by one, its stream may go before its
        # port does. It is asked again soon, until the reconnect grace is over.
        return replace(view, containers=put(view.containers, known.id, replace(known, is_probing=False)))
    # Nobody listens where the process listened: it is dead. YARN's word only comes later.
    view = lost(view, known, "port-refused", known.since_ms)
    return gone(view, known.id, event.at_ms)


def _tasks_fenced(view: ClusterView, event: happened.TasksFenced) -> ClusterView:
    job = view.jobs[event.job]
    view = replace(view, jobs=put(view.jobs, event.job, replace(job, is_fencing=False, is_fenced=True)))
    return with_news(view, News("tasks_fenced", job=event.job))


def _fencing_failed(view: ClusterView, event: happened.FencingFailed) -> ClusterView:
    job = replace(view.jobs[event.job], is_fencing=False)
    view = replace(view, jobs=put(view.jobs, event.job, job))
    return with_news(view, News("fencing_failed", job=event.job, reason=event.reason))


def _started(view: ClusterView, event: happened.Started) -> ClusterView:
    return start(view, event.action, event.at_ms)


_RULES: Final[Mapping[type, Callable[[ClusterView, Any], ClusterView]]] = {
    happened.Elected: _elected,
    happened.Ticked: _ticked,
    happened.JobLoaded: _job_loaded,
    happened.RecordsLoaded: _records_loaded,
    happened.RecordsWritten: _records_written,
    happened.RecordsRefused: _records_refused,
    happened.HostsKnown: _hosts_known,
    happened.ContainerExpected: _container_expected,
    happened.RequestPlaced: _request_placed,
    happened.RequestRefused: _request_refused,
    happened.ContainerGranted: _container_granted,
    happened.ContainerCompleted: _container_completed,
    happened.ContainerRegistered: _container_registered,
    happened.HeartbeatReceived: _heartbeat,
    happened.ReportReceived: _report,
    happened.StreamBroken: _stream_broken,
    happened.PortProbed: _port_probed,
    happened.TasksFenced: _tasks_fenced,
    happened.FencingFailed: _fencing_failed,
    happened.Started: _started,
}
