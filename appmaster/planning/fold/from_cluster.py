"""What YARN, the containers and their connections report, folded into the view; used by `apply`. Pure.

Messages may come late, twice, and in any order between connections. A message of an older incarnation, or of an
unknown container, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from appmaster.planning.fold.cells import is_of_silent_cell
from appmaster.planning.fold.changes import (
    avoid,
    failed_attempt,
    gone,
    lost,
    slot_of,
    unsettle,
    unsettle_around,
    with_inventory,
    with_known_hosts,
    without_request,
)
from appmaster.planning.fold.failovers import followed
from appmaster.planning.state import events as happened
from appmaster.planning.state.mappings import put, without
from appmaster.planning.state.model import SpareSlotId, vacant_spares
from appmaster.planning.state.progress import standing_of
from appmaster.planning.state.reasons import Setback, SetbackKind
from appmaster.planning.state.troubles import troubles_of
from appmaster.planning.state.view import (
    PROBED,
    ClusterView,
    Container,
    Presence,
    RequestState,
)
from standby.shared.model import Fault, Phase, ReplicaId, ReplicaStatus


def container_expected(view: ClusterView, event: happened.ContainerExpected) -> ClusterView:
    """Return the view with a container that held tasks under the former leader and has not connected to this one."""
    known = view.containers.get(event.container)
    if known is not None:
        if known.offer is not None or event.offer is None:
            return view
        # A new leader knew it by its registration, before the pool could be read.
        return replace(view, containers=put(view.containers, known.id, replace(known, offer=event.offer)))
    container = Container(
        event.container,
        event.skein_id,
        Presence.EXPECTED,
        event.at_ms,
        event.cell,
        event.attempt,
        host=event.host,
        incarnation=event.incarnation,
        heard_ms=event.at_ms,
        offer=event.offer,
    )
    view = replace(view, containers=put(view.containers, event.container, container))
    view = with_known_hosts(view, (event.container,))
    return unsettle(view, view.processors_in(event.container))


def container_unregistered(view: ClusterView, event: happened.ContainerUnregistered) -> ClusterView:
    """Return the view after a container's session with ZooKeeper ended.

    A vanished registration counts only if there is no live stream (rule `who-is-lost`). Of a container that is still
    expected, it is the first news that this leader gets. As a rule its whole host was silent, for as long as the
    session time-out.

    In a pool it is also the only news of the end of a container that was given back, or that never connected. The
    latter does not count as a failure: the process ran before it was claimed, and no code of the job has run in it.
    """
    if request := view.request_of(event.skein_id):
        view = without_request(view, request, event.at_ms)
        return failed_attempt(view, request.slot, event.at_ms, event.setback, counts=False)
    known = view.containers.get(event.container)
    if known is None or known.presence in (Presence.LIVE, Presence.BROKEN):
        return view  # its stream, or its port, shows whether it is alive
    if not event.skein_id:
        return lost(view, known, event.loss, event.at_ms) if known.presence is Presence.EXPECTED else view
    return gone(lost(view, known, event.loss, event.at_ms), known.id, event.at_ms)


def request_placed(view: ClusterView, event: happened.RequestPlaced) -> ClusterView:
    """Return the view in which YARN has accepted a request and given it an id."""
    request = view.requests.get(event.number)
    if request is None:
        return view
    placed = replace(request, skein_id=event.skein_id, state=RequestState.WAITING)
    return replace(view, requests=put(view.requests, event.number, placed))


def request_refused(view: ClusterView, event: happened.RequestRefused) -> ClusterView:
    """Return the view in which a request could not be made: the slot is tried again after a back-off."""
    request = view.requests.get(event.number)
    if request is None:
        return view
    view = without_request(view, request, event.at_ms)
    last = Setback(SetbackKind.REFUSED, request.host, detail=event.reason)
    return failed_attempt(view, request.slot, event.at_ms, last, counts=False)


def container_granted(view: ClusterView, event: happened.ContainerGranted) -> ClusterView:
    """Return the view in which YARN has granted a request; its container has yet to register."""
    request = view.request_of(event.skein_id)
    if request is None and event.offer is not None and (known := view.container_of(event.skein_id)):
        # A claim of unknown outcome: its process was quicker than the leader's second look.
        known = replace(known, offer=event.offer)
        return replace(view, containers=put(view.containers, known.id, known))
    if request is None or request.state is RequestState.GRANTED:
        return view
    granted = replace(request, state=RequestState.GRANTED, since_ms=event.at_ms, offer=event.offer)
    return replace(view, requests=put(view.requests, request.number, granted))


def container_completed(view: ClusterView, event: happened.ContainerCompleted) -> ClusterView:
    """Return the view after YARN's word that a container has ended, or will never start."""
    if request := view.request_of(event.skein_id):
        # It ended before it registered: a failed launch, unless it was ended from outside. The next request waits in
        # either case: something that ends every container at once would otherwise cause a tight loop.
        view = without_request(view, request, event.at_ms)
        last = Setback(SetbackKind.AT_LAUNCH, request.host, detail=event.message)
        view = failed_attempt(view, request.slot, event.at_ms, last, counts=not event.is_from_outside)
        if request.host is not None:
            view = avoid(view, request.host, event.at_ms, request.slot, "a container ended there at launch")
        return view
    if container := view.container_of(event.skein_id):
        view = lost(view, container, event.loss, event.at_ms)
        return gone(view, container.id, event.at_ms)
    return view


def container_registered(view: ClusterView, event: happened.ContainerRegistered) -> ClusterView:
    """Return the view with a container that opened its stream, with all its replicas."""
    known = view.containers.get(event.container)
    if known is not None and event.incarnation < known.incarnation:
        return view
    slot = known.slot if known is not None else None
    offer = known.offer if known is not None else None
    # A container that this leader has declared lost is given back, whether or not its cell's AM has noticed the loss.
    is_known = known is not None or (
        is_of_silent_cell(view, event) and event.container not in view.logged_lost
    )
    presence = Presence.LIVE if is_known else Presence.ORPHAN
    requests = view.requests
    if request := view.request_of(event.skein_id):
        slot, offer = request.slot, request.offer
        presence = Presence.LIVE
        requests = without(view.requests, request.number)
    if known is not None and known.presence in (Presence.LEAVING, Presence.ORPHAN):
        # It was given back and connects only because it is not dead yet: it gets no roles.
        presence = known.presence
    binding = known.binding if known is not None else ""
    if slot is None and presence is Presence.LIVE and not binding:
        slot = _spare_slot(view, event)
    container = Container(
        event.container,
        event.skein_id,
        presence,
        event.at_ms,
        event.cell,
        event.attempt,
        host=event.host,
        incarnation=event.incarnation,
        pid=event.pid,
        http_port=event.http_port,
        heard_ms=event.at_ms,
        slot=slot,
        binding=binding,
        revisions=event.revisions,
        statuses={each.replica: each for each in event.replicas},
        standing=standing_of({}, {}, event.replicas, event.at_ms),
        troubles=troubles_of(event.replicas, known.troubles if known is not None else ()),
        has_ended=_has_ended(event.replicas),
        leftovers=event.leftovers,
        is_warm=known.is_warm if known is not None else False,
        # A process that is asked to end stays so; the introduction does not say it, the report after it does.
        is_leaving=known.is_leaving if known is not None else False,
        offer=offer,
    )
    view = replace(view, requests=requests, containers=put(view.containers, event.container, container))
    view = with_inventory(view, event.replicas)
    if presence is Presence.LIVE:
        view = _not_missed(view, event.container)
    job = view.job_of(container)
    if known is None and job is not None:
        view = replace(view, arrived_ms=put(view.arrived_ms, job.name, event.at_ms))
    return unsettle_around(view, container)


def _spare_slot(view: ClusterView, event: happened.ContainerRegistered) -> SpareSlotId | None:
    """Return the slot of a container of a former leader that is empty and runs a job with spare ones; else None.

    If it was requested for another slot, that one takes it.
    """
    if event.replicas or view.assigned.get(event.container):
        return None
    used = {each.slot for each in view.containers.values()} | {each.slot for each in view.requests.values()}
    for name in event.revisions:
        job, slot = view.jobs.get(name), next(vacant_spares(name, used))
        if job is not None and slot.number < job.policy.spare_count:
            return slot
    return None


def _has_ended(replicas: Iterable[ReplicaStatus]) -> bool:
    return any(each.phase in (Phase.FAILED, Phase.FENCED) for each in replicas)


def _heard(view: ClusterView, container: str, incarnation: int, at_ms: int) -> Container | None:
    """Return the container with its silence ended, or None if the message is not from a known incarnation."""
    known = view.containers.get(container)
    if known is None or known.incarnation != incarnation:
        return None
    # A container that was suspected only for its silence was slow for a moment: its stream never broke. Its roles have
    # been given away nevertheless; the next assignment says what it is to hold now.
    # A container whose replica failed is of no use even if its process is alive.
    is_back = known.presence is Presence.BROKEN or (
        known.presence is Presence.SUSPECT and not (known.loss is not None and known.loss.kind.is_final)
    )
    presence = Presence.LIVE if is_back else known.presence
    since = known.since_ms if presence is known.presence else at_ms
    heard = replace(known, heard_ms=at_ms, presence=presence, since_ms=since)
    return replace(heard, looks=0, unanswered=0, still_since_ms=0, still_ms=0, at_disk_ms=0)


def heartbeat_received(view: ClusterView, event: happened.HeartbeatReceived) -> ClusterView:
    """Return the view after a heartbeat of a container."""
    if event.container not in view.containers:
        return _stranger(view, event)
    known = _heard(view, event.container, event.incarnation, event.at_ms)
    return view if known is None else _spoken(view, known)


def _stranger(view: ClusterView, event: happened.HeartbeatReceived) -> ClusterView:
    """Return the view with an orphan: it speaks although YARN has ended it or it was given back. It is told to exit.

    Usually the NodeManager that should have ended its process was lost. While its stream is open the container
    believes that it has a leader, and its open stores keep every later copy of its tasks off that host (rule
    `orphan-exit`).
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
    """Return the view with a container as it is after its message."""
    came_back = view.containers[container.id].presence is not container.presence
    view = replace(view, containers=put(view.containers, container.id, container))
    if not came_back:
        return view
    return unsettle_around(_not_missed(view, container.id), container)


def _not_missed(view: ClusterView, container: str) -> ClusterView:
    """Return the view after a container came back: those of its actives that were not replaced are no longer missed."""
    missed = {processor: each for processor, each in view.lost_actives.items() if each.container != container}
    return replace(view, lost_actives=missed)


def report_received(view: ClusterView, event: happened.ReportReceived) -> ClusterView:
    """Return the view with what a container reports about itself and each replica."""
    known = _heard(view, event.container, event.incarnation, event.at_ms)
    if known is None:
        return view
    before = view.containers[event.container]
    known = replace(
        known,
        applied=event.number,
        statuses={each.replica: each for each in event.replicas},
        standing=standing_of(before.standing, before.statuses, event.replicas, event.at_ms),
        troubles=troubles_of(event.replicas, before.troubles),
        has_ended=_has_ended(event.replicas),
        revisions=event.revisions,
        is_warm=event.warm,
        is_leaving=event.is_leaving,
        rss_bytes=event.rss_bytes,
    )
    view = _spoken(view, known)
    is_stuck = any(not each.can_take_over for each in known.standing.values())
    if is_stuck or _gist(view, before) != _gist(view, known):
        view = unsettle(view, view.processors_in(known.id))
    view = _with_tracebacks(view, known, before.statuses)
    view = _with_refusals(view, known, before.statuses)
    view = followed(view, known)
    slot = slot_of(view, known)
    attempts = view.attempts.get(slot) if slot is not None else None
    serves = any(each.phase in (Phase.ACTIVE, Phase.TAILING) for each in event.replicas)
    serves |= known.is_spare and event.warm
    if slot is not None and attempts is not None and attempts.in_row and serves:
        view = replace(view, attempts=put(view.attempts, slot, replace(attempts, in_row=0)))
    return view


def _with_refusals(
    view: ClusterView, container: Container, before: Mapping[ReplicaId, ReplicaStatus]
) -> ClusterView:
    """Return the view with the number of containers that could not use a job's present code and configuration.

    A commit by an active of the same revision proves that they can be used, so the count begins again.
    """
    refused = _refusals(container.statuses.values())
    known = _refusals(before.values()) if refused else {}
    for name, refusal in refused.items():
        job = view.jobs.get(name)
        if job is not None and name not in known and container.revisions.get(name) == job.revision:
            job = replace(job, refused=job.refused + 1, refusal=refusal)
            view = replace(view, jobs=put(view.jobs, name, job))
    for each in container.statuses.values():
        job = view.jobs.get(each.replica.task.job)
        if job is None or not job.refused or container.revisions.get(job.name) != job.revision:
            continue
        if each.phase is Phase.ACTIVE and each.first_commit_ms is not None:
            view = replace(view, jobs=put(view.jobs, job.name, replace(job, refused=0, refusal="")))
    return view


def _refusals(statuses: Iterable[ReplicaStatus]) -> dict[str, str]:
    """Return job → what a replica of it reports that could not use the job's code or configuration."""
    return {
        each.replica.task.job: each.detail
        for each in statuses
        if each.phase is Phase.FAILED and each.fault is Fault.REFUSED
    }


def _with_tracebacks(
    view: ClusterView, container: Container, before: Mapping[ReplicaId, ReplicaStatus]
) -> ClusterView:
    """Return the view in which each job has the last traceback of its code, for its status; none once overcome."""
    for each in container.statuses.values():
        job = view.jobs.get(each.replica.task.job)
        if job is None:
            continue
        last, old = job.last_traceback, before.get(each.replica)
        if each.traceback:
            last = each.traceback
        elif (
            each.phase is Phase.ACTIVE and each.failures is None and old is not None and old.traceback == last
        ):
            last = ""
        if last != job.last_traceback:
            view = replace(view, jobs=put(view.jobs, job.name, replace(job, last_traceback=last)))
    return view


def _gist(view: ClusterView, container: Container) -> object:
    """Return the parts of a report that may call for a decision; offsets and figures do not."""
    job = view.job_of(container)
    bound = job.policy.lag_time_ms if job is not None else 0
    return (
        container.applied >= container.sent,
        container.is_leaving,
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


def stream_broken(view: ClusterView, event: happened.ContainerStreamBroken) -> ClusterView:
    """Return the view in which a container's connection is gone; a probe of its port shows whether it is alive."""
    known = view.containers.get(event.container)
    if known is None or known.incarnation != event.incarnation:
        return view
    if not known.skein_id:
        return gone(view, known.id, event.at_ms)  # unknown to this leader: no other event will report its end
    if known.presence is not Presence.LIVE:
        return view
    broken = replace(known, presence=Presence.BROKEN, since_ms=event.at_ms, is_probing=False, probed_ms=0)
    view = replace(view, containers=put(view.containers, known.id, broken))
    return unsettle(view, view.processors_in(known.id))


def port_probed(view: ClusterView, event: happened.PortProbed) -> ClusterView:
    """Return the view after an attempt to connect to a container's own port."""
    if event.container in view.ending and not event.accepts:
        view = replace(view, ending=without(view.ending, event.container))
        return unsettle(view, view.processors_in(event.container))
    known = view.containers.get(event.container)
    if known is None or known.incarnation != event.incarnation:
        return view
    if known.presence not in PROBED and known.presence is not Presence.LIVE:
        return view
    known = _looked_at(known, event)
    if event.accepts:
        # Alive, or dying: a dead process's sockets are closed one by one, so its stream may close before its port does.
        # The port is probed again soon, until the reconnect grace is over.
        return replace(view, containers=put(view.containers, known.id, replace(known, is_probing=False)))
    # It is dead: no process listens at its port, or its witness says so. YARN's report comes only later.
    view = lost(view, replace(known, end=event.end), event.loss, known.silent_since_ms)
    return gone(view, known.id, event.at_ms)


def _looked_at(known: Container, event: happened.PortProbed) -> Container:
    """Return the container after a probe of its port; a probe that began before its last message shows nothing new."""
    if event.is_answered:
        responded_ms = event.at_ms if event.is_running else known.responded_ms
        answered_ms = max(known.answered_ms, event.at_ms - event.waited_ms)
        known = replace(known, answered_ms=answered_ms, responded_ms=responded_ms)
    if known.probed_ms < known.heard_ms:
        return known
    still_since_ms = (known.still_since_ms or event.at_ms) if event.is_still else 0
    return replace(
        known,
        looks=known.looks + 1,
        unanswered=0 if event.is_answered else known.unanswered + 1,
        still_since_ms=still_since_ms,
        still_ms=max(0, known.probed_ms - still_since_ms) if still_since_ms else 0,
        at_disk_ms=event.at_ms if event.waits_for_disk else known.at_disk_ms,
    )
