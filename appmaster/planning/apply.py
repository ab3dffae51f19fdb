"""``apply(view, event)``: the only place where the leader's view changes. Pure.

No decision is taken here. Where an event is of an older incarnation or of something unknown, it
changes nothing: late news is normal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from appmaster.planning import events as happened
from appmaster.planning.changes import (
    avoid,
    failed_attempt,
    gone,
    lost,
    place_of,
    put,
    unsettle,
    unsettle_job,
    with_known_hosts,
    with_news,
    with_records,
    without,
)
from appmaster.planning.events import Event
from appmaster.planning.model import JobModel, is_right, job_of
from appmaster.planning.started import start
from appmaster.planning.tell import followed_failovers, reported_phases, stopped_standby
from appmaster.planning.view import (
    ClusterView,
    Container,
    Job,
    News,
    Presence,
    RequestState,
)
from standby.model import Phase, ReplicaStatus, SlotId


def apply(view: ClusterView, event: Event) -> ClusterView:
    """Return the view after ``event``."""
    return _RULES[type(event)](view, event)


def _elected(view: ClusterView, event: happened.Elected) -> ClusterView:
    return replace(view, epoch=event.epoch, now_ms=event.now_ms, wall_offset_ms=event.wall_offset_ms)


def _ticked(view: ClusterView, event: happened.Ticked) -> ClusterView:
    over = [each for each, ending in view.ending.items() if event.now_ms >= ending.until_ms]
    for each in over:
        view = unsettle(view, view.processors_in(each))
        view = replace(view, ending=without(view.ending, each))
    if event.stalled_ms <= 0:
        return replace(view, now_ms=event.now_ms)
    # Nobody could be heard while the leader stood still: every silence is shortened by that time.
    containers = {
        each.id: replace(
            each, heard_ms=each.heard_ms + event.stalled_ms, since_ms=each.since_ms + event.stalled_ms
        )
        for each in view.containers.values()
    }
    doubt = view.self_doubt_until_ms + (event.stalled_ms if view.self_doubt_until_ms else 0)
    return replace(view, now_ms=event.now_ms, containers=containers, self_doubt_until_ms=doubt)


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
            notes=event.notes,
            was_deployed=event.was_deployed,
            failure=event.failure,
        )
    else:
        is_newer = recorded.znode >= known.model.znode
        job = replace(
            known,
            run=event.run,
            spec=event.spec,
            # Read before the last write and delivered after it: the older one changes nothing.
            model=recorded if is_newer else known.model,
            is_modelling=known.is_modelling and not is_newer,
            policy=event.policy,
            revision=event.revision,
            is_wanted=event.is_wanted,
            purge=event.purge,
            notes=event.notes,
        )
    return _reindexed(replace(view, jobs=put(view.jobs, event.name, job)), event.name)


def _model_written(view: ClusterView, event: happened.ModelWritten) -> ClusterView:
    job = replace(view.jobs[event.job], model=event.model, is_modelling=False)
    return _reindexed(replace(view, jobs=put(view.jobs, event.job, job)), event.job)


def _reindexed(view: ClusterView, job: str) -> ClusterView:
    """Return the view after a change of a job's model: all of it is looked at again, what is no more is not."""
    present = view.jobs[job]
    right = replace(present, is_model_right=is_right(present.model, present.spec))
    view = replace(view, jobs=put(view.jobs, job, right))
    known = frozenset(each for other in view.jobs.values() for each in other.model.processors)
    return unsettle_job(replace(view, unsettled=view.unsettled & known), job)


def _model_refused(view: ClusterView, event: happened.ModelRefused) -> ClusterView:
    # Closed to new models until the present one has been read again.
    return with_news(view, News("model_refused", job=event.job, reason=event.reason))


def _records_loaded(view: ClusterView, event: happened.RecordsLoaded) -> ClusterView:
    loaded = {each.record.task for each in event.records}
    writing = {task: decision for task, decision in view.writing.items() if task not in loaded}
    over = frozenset(view.bindings).difference(writing.values())
    return _unbound(with_records(replace(view, writing=writing), event.records), over)


def _unbound(view: ClusterView, decisions: Iterable[str]) -> ClusterView:
    """Return the view in which no container waits for these decisions any more."""
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
            told = replace(failover, recorded_ms=event.at_ms)
            view = replace(view, failovers=put(view.failovers, processor, told))
    return view


def _records_refused(view: ClusterView, event: happened.RecordsRefused) -> ClusterView:
    # The tasks stay closed to new decisions until their records have been read again.
    return with_news(view, News("decision_refused", decision=event.decision, reason=event.reason))


def _hosts_known(view: ClusterView, event: happened.HostsKnown) -> ClusterView:
    return replace(view, hosts={each.name: each for each in sorted(event.hosts, key=lambda host: host.name)})


def _hosts_excluded(view: ClusterView, event: happened.HostsExcluded) -> ClusterView:
    if dict(event.hosts) == dict(view.excluded):
        return view
    news = [News("host_excluded", host=host, reason=why) for host, why in event.hosts.items()]
    news = [each for each in news if each.host not in view.excluded]
    news += [News("host_admitted", host=host) for host in view.excluded if host not in event.hosts]
    view = with_news(replace(view, excluded=dict(event.hosts)), *news)
    return unsettle(view, (processor for _, processor in view.processors()))


def _commanded(view: ClusterView, event: happened.Commanded) -> ClusterView:
    return replace(view, commands=(*view.commands, event.command))


def _container_expected(view: ClusterView, event: happened.ContainerExpected) -> ClusterView:
    if event.container in view.containers:
        return view
    container = Container(
        event.container, event.skein_id, Presence.EXPECTED, event.at_ms, heard_ms=event.at_ms
    )
    view = replace(view, containers=put(view.containers, event.container, container))
    view = with_known_hosts(view, (event.container,))
    return unsettle(view, view.processors_in(event.container))


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
    view = failed_attempt(view, request.place, event.at_ms, event.reason, counts=False)
    return with_news(
        view,
        News(
            "request_refused",
            job=job_of(request.place),
            host=request.host,
            reason=event.reason,
            data={"kind": request.kind.value, "place": str(request.place)},
        ),
    )


def _container_granted(view: ClusterView, event: happened.ContainerGranted) -> ClusterView:
    for request in view.requests.values():
        if request.skein_id == event.skein_id and request.state is not RequestState.GRANTED:
            granted = replace(request, state=RequestState.GRANTED, since_ms=event.at_ms)
            view = replace(view, requests=put(view.requests, request.number, granted))
            data = {
                "kind": request.kind.value,
                "place": str(request.place),
                "waited_ms": event.at_ms - request.since_ms,
            }
            return with_news(
                view, News("request_granted", job=job_of(request.place), host=request.host, data=data)
            )
    return view


def _container_completed(view: ClusterView, event: happened.ContainerCompleted) -> ClusterView:
    for request in view.requests.values():
        if request.skein_id == event.skein_id:
            # It ended before it ever spoke to us: a launch that failed.
            view = replace(view, requests=without(view.requests, request.number))
            view = failed_attempt(view, request.place, event.at_ms, f"ended at launch: {event.message}")
            if request.host is not None:
                view = avoid(
                    view, request.host, event.at_ms, request.place, "a container ended there at launch"
                )
            return with_news(
                view,
                News(
                    "launch_failed",
                    job=job_of(request.place),
                    copy=request.place.copy if isinstance(request.place, SlotId) else None,
                    host=request.host,
                    reason=event.message,
                    data={"kind": request.kind.value, "place": str(request.place)},
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
    place = known.place if known is not None else None
    presence = Presence.ORPHAN if known is None else Presence.LIVE
    requests = view.requests
    for request in view.requests.values():
        if request.skein_id == event.skein_id:
            place = request.place
            presence = Presence.LIVE
            requests = without(view.requests, request.number)
            break
    if known is not None and known.presence in (Presence.LEAVING, Presence.ORPHAN):
        # Given back, and only heard again because it is not dead yet: it gets no roles.
        presence = known.presence
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
        place=place,
        binding=known.binding if known is not None else "",
        revisions=event.revisions,
        statuses={each.replica: each for each in event.replicas},
        has_ended=_has_ended(event.replicas),
        leftovers=event.leftovers,
        is_warm=known.is_warm if known is not None else False,
    )
    view = replace(view, requests=requests, containers=put(view.containers, event.container, container))
    if presence is Presence.LIVE:
        view = _not_missed(view, event.container)
    view = unsettle(view, view.processors_in(event.container))
    job = view.job_of(container)
    if known is None and job is not None:
        view = replace(view, arrived_ms=put(view.arrived_ms, job.name, event.at_ms))
        if job.model.is_mixed:
            # Its share lies in the others: they have settled without it when it comes late.
            view = unsettle_job(view, job.name)
    return with_news(
        view,
        News(
            "container_registered",
            job=job.name if job is not None else None,
            container=event.container,
            host=event.host,
            reason="returned" if known is not None else "new",
            data={
                "skein_id": event.skein_id,
                "pid": event.pid,
                "holds": len(event.replicas),
                "place": str(place) if place is not None else None,
            },
        ),
    )


def _has_ended(replicas: Iterable[ReplicaStatus]) -> bool:
    return any(each.phase in (Phase.FAILED, Phase.FENCED) for each in replicas)


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
    if event.container not in view.containers:
        return _stranger(view, event)
    known = _heard(view, event.container, event.incarnation, event.at_ms)
    return view if known is None else _spoken(view, known)


def _stranger(view: ClusterView, event: happened.HeartbeatReceived) -> ClusterView:
    """Return the view with one who speaks although YARN has ended it, or it was given back: it is told to exit.

    The NodeManager that should have ended its process was lost, as a rule. As long as its stream stands it takes
    itself for led, and its open stores keep every later copy of its tasks from that host (design 4.10).
    """
    orphan = Container(
        event.container,
        "",
        Presence.ORPHAN,
        event.at_ms,
        incarnation=event.incarnation,
        heard_ms=event.at_ms,
    )
    return replace(view, containers=put(view.containers, orphan.id, orphan))


def _spoken(view: ClusterView, container: Container) -> ClusterView:
    """Return the view with a container as it is after it spoke."""
    came_back = view.containers[container.id].presence is not container.presence
    view = replace(view, containers=put(view.containers, container.id, container))
    if not came_back:
        return view
    return unsettle(_not_missed(view, container.id), view.processors_in(container.id))


def _not_missed(view: ClusterView, container: str) -> ClusterView:
    """Return the view after a container came back: actives that nobody took from it are not missed any more."""
    if all(each.container != container for each in view.lost_actives.values()):
        return view
    missed = {processor: each for processor, each in view.lost_actives.items() if each.container != container}
    return replace(view, lost_actives=missed)


def _report(view: ClusterView, event: happened.ReportReceived) -> ClusterView:
    known = _heard(view, event.container, event.incarnation, event.at_ms)
    if known is None:
        return view
    before = view.containers[event.container]
    known = replace(
        known,
        obeyed=event.number,
        statuses={each.replica: each for each in event.replicas},
        has_ended=_has_ended(event.replicas),
        revisions=event.revisions,
        is_warm=event.warm,
        rss_bytes=event.rss_bytes,
    )
    view = _spoken(view, known)
    if _gist(view, before) != _gist(view, known):
        view = unsettle(view, view.processors_in(known.id))
    view = reported_phases(view, known, before.statuses)
    view = stopped_standby(view, before, known)
    view = followed_failovers(view, known)
    place = place_of(view, known)
    attempts = view.attempts.get(place) if place is not None else None
    serves = any(each.phase in (Phase.ACTIVE, Phase.TAILING) for each in event.replicas)
    if place is not None and attempts is not None and attempts.in_row and serves:
        view = replace(view, attempts=put(view.attempts, place, replace(attempts, in_row=0)))
    return view


def _gist(view: ClusterView, container: Container) -> object:
    """Return what of a report may call for a decision; offsets and figures do not."""
    job = view.job_of(container)
    bound = job.policy.lag_time_ms if job is not None else 0
    return (
        container.obeyed >= container.sent,
        container.revisions,
        [
            (
                each.replica,
                each.phase,
                each.role,
                each.epoch,
                each.lag_ms is None,
                each.lag_ms is not None and each.lag_ms <= bound,
                each.failures,
                each.is_prepared,
            )
            for each in container.statuses.values()
        ],
    )


def _stream_broken(view: ClusterView, event: happened.StreamBroken) -> ClusterView:
    known = view.containers.get(event.container)
    if known is None or known.incarnation != event.incarnation:
        return view
    if not known.skein_id:
        return gone(view, known.id, event.at_ms)  # a stranger: nobody else will tell of its end
    if known.presence is not Presence.LIVE:
        return view
    broken = replace(known, presence=Presence.BROKEN, since_ms=event.at_ms, is_probing=False, probed_ms=0)
    view = replace(view, containers=put(view.containers, known.id, broken))
    return unsettle(view, view.processors_in(known.id))


def _port_probed(view: ClusterView, event: happened.PortProbed) -> ClusterView:
    if event.container in view.ending and not event.accepts:
        view = replace(view, ending=without(view.ending, event.container))
        return unsettle(view, view.processors_in(event.container))
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
    happened.ModelWritten: _model_written,
    happened.ModelRefused: _model_refused,
    happened.RecordsLoaded: _records_loaded,
    happened.RecordsWritten: _records_written,
    happened.RecordsRefused: _records_refused,
    happened.HostsKnown: _hosts_known,
    happened.HostsExcluded: _hosts_excluded,
    happened.Commanded: _commanded,
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
