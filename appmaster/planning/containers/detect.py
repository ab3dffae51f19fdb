"""Which containers are lost (rule `who-is-lost`). Pure.

Besides YARN's report there are three signs: the container's port refuses (handled in `apply`, because that is an
observation, not a judgement); its stream broke and it did not reconnect in time; it is silent. If the host's kernel
still answers at the port of a silent process, the host is alive and the process may only be short of processor time, so
it gets more time; unless its witness, a process of its own, has seen that it stands still. While it waits for its disk,
as its witness reports, it gets more time still. A wrong verdict costs a failover, never correctness: a container that
was wrongly suspected is fenced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from appmaster.planning.state.actions import Action, DeclareLost, DoubtSelf, ProbePort
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.reasons import Loss, Reason
from appmaster.planning.state.view import HOLDING, PROBED, ClusterView, Container, Presence
from standby.shared.model import Phase

#: Shortest time between two doubts of the leader in itself: silence that lasts longer is the containers' own.
DOUBT_AGAIN_MS: Final = 60_000


#: Pause before a port that still accepts is probed again.
PROBE_AGAIN_MS: Final = 50

#: The same for containers that a new leader expects: there may be a thousand, and most are about to connect.
PROBE_EXPECTED_AGAIN_MS: Final = 250

#: The same for containers that have been silent for part of their time-out: more often than their heartbeat interval,
#: but seldom enough not to flood a host that is stalled for a moment.
PROBE_SILENT_AGAIN_MS: Final = 100

#: A container's port is probed after this fraction of the time-out after which its host counts as lost.
_SILENT_PART: Final = 4

#: Unanswered probes in a row before a host counts as silent: a single probe may lose its packet.
_UNANSWERED: Final = 2

#: A process must have been seen standing still for this percentage of the time after which a silent host counts as
#: lost. A witness looks 0.1 s after a probe has begun, so of a pause of 0.8 s at most 0.7 s are seen.
_STILL_PERCENT: Final = 75

#: A process that waits for its disk may be silent for so many times the time-out of one that its witness says nothing
#: about. With the defaults that is 4 s: less than ZooKeeper's session and than a transaction lasts.
_DISK_TIMES: Final = 2


def policy_of(view: ClusterView, container: Container) -> PlannerPolicy:
    """Return the policy that applies to a container: its job's, or the first job's if it has no job."""
    job = view.job_of(container)
    if job is not None:
        return job.policy
    return next((job.policy for job in view.jobs.values()), PlannerPolicy())


def losses(view: ClusterView) -> Iterator[Action]:
    """Yield the verdict on every container whose time is up, or the leader's doubt in itself."""
    holding = [each for each in view.containers.values() if each.presence in HOLDING]
    shortest = _shortest(view)
    silent = [
        each
        for each in holding
        if each.presence is Presence.LIVE
        and view.now_ms - each.heard_ms > shortest
        and _is_silent(view, each, policy_of(view, each))
    ]
    live = [each for each in holding if each.presence is Presence.LIVE]
    if silent and view.now_ms < max(view.self_doubt_until_ms, view.listening_until_ms):
        silent = []
    elif _are_too_many(silent, live) and (
        not view.self_doubt_until_ms or view.now_ms - view.self_doubt_until_ms > DOUBT_AGAIN_MS
    ):
        # More than half, on several hosts, within one time-out: more likely this process was cut off.
        yield DoubtSelf(len(silent), len(live))
        return
    for each in silent:
        heard = view.now_ms - each.heard_ms
        yield DeclareLost(each.id, _silent(each, f"no heartbeat for {heard} ms"), may_return=True)
    unheard = _unheard(view, holding)
    for each in holding:
        if each.presence is Presence.LIVE and not each.has_ended:
            continue
        waited = view.now_ms - each.since_ms
        policy = policy_of(view, each)
        if each.presence is Presence.BROKEN and waited > policy.reconnect_grace_ms:
            loss = Reason(Loss.NO_STREAM, "its port accepts, but it did not come back")
            yield DeclareLost(each.id, loss, may_return=True)
        elif each.presence is Presence.EXPECTED and each.id in unheard:
            yield DeclareLost(each.id, _silent(each, "since the new leader took over"), may_return=True)
        elif each.presence is Presence.EXPECTED and waited > _patience(view, each, policy):
            loss = Reason(Loss.NEVER_CAME, "it existed before, but did not connect to the new leader")
            yield DeclareLost(each.id, loss, may_return=True)
        elif each.presence is Presence.LIVE and each.has_ended:
            given_up = _given_up(view, each)
            if given_up is not None:
                yield DeclareLost(each.id, given_up, may_return=True)


def _unheard(view: ClusterView, holding: list[Container]) -> frozenset[str]:
    """Return the expected containers that did not answer the new leader at their ports within the time-out.

    If many do not answer, the new leader may be cut off itself; then they get the whole grace period.
    """
    expected = [each for each in holding if each.presence is Presence.EXPECTED and each.probed_ms]
    found = []
    for each in expected:
        policy = policy_of(view, each)
        is_silent = _is_overdue(view, each, policy, max(each.since_ms, each.responded_ms))
        if (each.looks and is_silent) or _is_gone(view, each, policy, each.since_ms):
            found.append(each)
    if view.now_ms < view.listening_until_ms or _are_too_many(found, holding):
        return frozenset()
    return frozenset(each.id for each in found)


def _are_too_many(silent: list[Container], of: list[Container]) -> bool:
    """Return whether so many containers on several hosts fell silent that this process was more likely cut off."""
    return len(silent) >= 3 and 2 * len(silent) > len(of) and len({each.host for each in silent}) > 1


def _silent(container: Container, detail: str) -> Reason[Loss]:
    if container.still_ms:
        return Reason(Loss.SILENT, f"{detail}, its process stands still")
    if container.at_disk_ms and container.at_disk_ms == container.answered_ms and not container.unanswered:
        return Reason(Loss.SILENT, f"{detail}, its process waits for its disk")
    is_there = container.answered_ms > max(container.heard_ms, container.since_ms)
    host = "its host answers" if is_there else "its host does not answer"
    return Reason(Loss.SILENT, f"{detail}, {host}")


def _shortest(view: ClusterView) -> int:
    """Return the shortest time-out of any job, milliseconds; shorter silences need no closer look."""
    jobs = view.jobs.values()
    return min(
        (min(job.policy.heartbeat_timeout_ms, job.policy.host_timeout_ms) for job in jobs), default=1_000
    )


def _is_silent(view: ClusterView, container: Container, policy: PlannerPolicy) -> bool:
    """Return whether a container, or its whole host, has been silent for too long.

    Completed probes of its port show that this process had time to receive its heartbeats. A leader that is starved
    of processor time receives none and must not judge others by that.
    """
    if not container.looks:
        return False
    if _is_overdue(view, container, policy, container.heard_ms):
        return True
    return _is_gone(view, container, policy, container.heard_ms)


def _is_overdue(view: ClusterView, container: Container, policy: PlannerPolicy, since_ms: int) -> bool:
    """Return whether a container on a host that answers, last heard at ``since_ms``, has been silent for too long.

    One that waited for its disk a moment ago may just have been given the answer, and is about to be heard.
    """
    silent_ms = view.now_ms - since_ms
    was_at_disk = container.at_disk_ms and view.now_ms - container.at_disk_ms <= policy.host_timeout_ms
    return silent_ms > policy.heartbeat_timeout_ms * (_DISK_TIMES if was_at_disk else 1)


def _is_gone(view: ClusterView, container: Container, policy: PlannerPolicy, since_ms: int) -> bool:
    """Return whether a container's host has answered no probe, or its process has been standing still, for too long.

    ``since_ms`` is when it was last heard.
    """
    if 100 * container.still_ms >= _STILL_PERCENT * policy.host_timeout_ms:
        return view.now_ms - since_ms > policy.host_timeout_ms
    quiet = view.now_ms - max(since_ms, container.answered_ms)
    return container.unanswered >= _UNANSWERED and quiet > policy.host_timeout_ms


def _patience(view: ClusterView, container: Container, policy: PlannerPolicy) -> int:
    """Return how long a new leader waits for a container that it expects, milliseconds.

    One that never registered and that no record names is usually being launched: YARN lists it from its grant on.
    """
    grace = max(policy.takeover_grace_ms, policy.heartbeat_timeout_ms)
    is_starting = not container.incarnation and container.id not in view.assigned
    return max(grace, policy.launch_timeout_ms) if is_starting else grace


def _given_up(view: ClusterView, container: Container) -> Reason[Loss] | None:
    """Return why a live container cannot keep its slot; None if it can.

    Being fenced at the current epoch is a loss like any other (rule `fence-no-proof`), and so is a FAILED replica.
    Being fenced at an older epoch is how a former active should end: it is about to receive its new role. A replica
    that failed on a poison record would fail in any container: see `appmaster.planning.jobs.models`.
    """
    held = view.assigned.get(container.id, {})
    for each in container.statuses.values():
        if held.get(each.replica.task) != each.replica.copy:
            continue
        if each.phase is Phase.FAILED and not each.fault.is_poison:
            return Reason(Loss.REPLICA_FAILED, f"{each.replica}: {each.detail}")
        recorded = view.records.get(each.replica.task)
        if each.phase is Phase.FENCED and recorded is not None and each.epoch >= recorded.record.epoch:
            return Reason(Loss.REPLICA_FENCED, f"{each.replica}: {each.detail}")
    return None


def probes(view: ClusterView) -> Iterator[Action]:
    """Yield a probe of the port of every container that has no stream or is silent, until its state is clear.

    Containers that a new leader expects are probed as soon as it knows their registration, so that it does not wait
    for one whose process died together with the former leader.
    """
    quiet = _shortest(view) // _SILENT_PART
    for each in view.containers.values():
        if each.id in view.ending:
            continue  # it was given back, and has come again: its probes are those of its end
        if each.presence is Presence.LIVE:
            if view.now_ms - each.heard_ms <= quiet:
                continue
            pause = PROBE_SILENT_AGAIN_MS
        elif each.presence in PROBED:
            pause = PROBE_AGAIN_MS if each.presence is Presence.BROKEN else PROBE_EXPECTED_AGAIN_MS
        else:
            continue
        if not each.incarnation or each.is_probing:
            continue
        if not each.probed_ms or view.now_ms - each.probed_ms >= pause:
            yield ProbePort(each.id, each.incarnation)
    for container, ending in view.ending.items():
        if view.now_ms < ending.until_ms and view.now_ms - ending.probed_ms >= PROBE_AGAIN_MS:
            yield ProbePort(container, ending.incarnation)
