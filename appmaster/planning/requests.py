"""Asking YARN for containers, and giving back those that do not fit. Pure.

Per slot: preferred host (its state lies there) → the other allowed hosts, least loaded first → any
host. Every request expires; a host that let one expire is avoided for a while; repeated failures wait
longer each time, and more than the job allows within its window fail it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from appmaster.planning.actions import Action, CancelRequest, ReleaseContainer, RequestContainer
from appmaster.planning.detect import policy_of
from appmaster.planning.view import (
    Attempts,
    ClusterView,
    Container,
    Job,
    Presence,
    Request,
    RequestState,
)
from locality.ranking import rank_hosts
from locality.samehost import siblings_on
from standby.model import ProcessorId, SlotId

#: So many requests in vain go to named hosts before any host is asked for, then both in turn.
NAMED_FIRST: Final = 2


def releases(view: ClusterView) -> Iterator[Action]:
    """Yield the end of every request and container that serves nothing (any more)."""
    filled = {each.slot for each in view.containers.values() if each.is_bound}
    for request in view.requests.values():
        job = view.jobs[request.slot.processor.job]
        reason, avoid = _request_is_over(view, request, job, request.slot in filled)
        if reason and request.state is not RequestState.ASKING:
            yield CancelRequest(request.number, request.skein_id, reason, avoid)
    placements = view.placements()
    bound = view.bound()
    for container in view.containers.values():
        waited = view.now_ms - container.since_ms
        policy = policy_of(view, container)
        is_useless = container.reason.startswith("replica-")
        if container.presence is Presence.SUSPECT and (is_useless or waited >= policy.suspect_grace_ms):
            yield ReleaseContainer(container.id, container.skein_id, container.reason)
        elif container.presence is Presence.LEAVING and waited >= policy.exit_timeout_ms:
            yield ReleaseContainer(
                container.id, container.skein_id, f"did not leave by itself: {container.reason}"
            )
        elif (
            container.presence is Presence.LIVE
            and not container.is_bound
            and not _is_undeploying(view, container)
        ):
            reason = _does_not_fit(view, container, placements, set(bound))
            if reason:
                yield ReleaseContainer(container.id, container.skein_id, reason)


def _request_is_over(view: ClusterView, request: Request, job: Job, is_filled: bool) -> tuple[str, str]:
    """Return why a request is to be taken back and which host to avoid then; empty texts when it stands."""
    waited = view.now_ms - request.since_ms
    if not job.is_wanted or job.failure:
        return "the job is being undeployed", ""
    if request.slot not in job.model.slots():
        return "the job model has no such place any more", ""
    if is_filled:
        return "the place is taken", ""
    if (
        request.state is RequestState.WAITING
        and request.host is not None
        and waited > job.policy.request_timeout_ms
    ):
        return f"host {request.host} gave no container in {waited} ms", request.host
    if request.state is RequestState.GRANTED and waited > job.policy.launch_timeout_ms:
        return f"its container did not register in {waited} ms", request.host or ""
    return "", ""


def _does_not_fit(
    view: ClusterView, container: Container, placements: dict[SlotId, str], bound: set[SlotId]
) -> str:
    """Return why a registered container can serve no empty slot; empty when it can, or may soon."""
    if any(task in view.writing for _, processor in view.processors() for task in view.job_tasks(processor)):
        return ""  # a binding is under way: judge when it is done
    wanted_jobs = [job for job in view.jobs.values() if job.is_wanted and not job.failure]
    empty = [slot for job in wanted_jobs for slot in job.model.slots() if slot not in bound]
    if not empty:
        return "surplus: every place is taken"
    sharing = [siblings_on(slot, container.host, placements) for slot in empty]
    if all(sharing):
        return f"same-host: {container.host} holds {sharing[0][0]}, a copy of the same tasks"
    return ""


def _is_undeploying(view: ClusterView, container: Container) -> bool:
    """Return whether the container's job is on its way out: it leaves by the order that follows the fence."""
    if container.slot is None or container.slot.processor.job not in view.jobs:
        return False
    job = view.jobs[container.slot.processor.job]
    return not job.is_wanted or bool(job.failure)


def requests(view: ClusterView) -> Iterator[Action]:
    """Yield a request for every slot that has neither a container nor a request, actives first."""
    busy = {each.slot for each in view.requests.values()}
    # Kept for a suspect, being bound, or asked for: all of them have someone.
    busy |= {each.slot for each in view.containers.values() if each.slot is not None}
    placements = view.placements()
    number = view.decisions
    for job in view.jobs.values():
        if not job.is_wanted or job.failure:
            continue
        for slot in sorted(job.model.slots(), key=lambda each: _is_standby(view, each)):
            if slot in busy:
                continue
            attempts = view.attempts.get(slot, Attempts())
            if view.now_ms < attempts.not_before_ms or exhausted(view, job, attempts):
                continue
            # The place of a lost active is about to be a standby's, when another copy can take over.
            can_wait = _is_standby(view, slot) or _has_copy(view, slot.processor)
            if can_wait and _is_failing_over(view, job):
                continue
            host, reason = _where(view, job, slot, placements)
            number += 1
            if host is not None:
                placements[slot] = host
            yield RequestContainer(number, slot, host, reason)


def _is_standby(view: ClusterView, slot: SlotId) -> bool:
    active = view.active_slot(slot.processor)
    return slot != active if active is not None else slot.copy != 0


def _is_failing_over(view: ClusterView, job: Job) -> bool:
    """Return whether a failover of ``job`` is under way that lost copies should leave the machines to."""
    return any(
        processor.job == job.name and view.now_ms - failover.detected_ms < job.policy.restore_delay_ms
        for processor, failover in view.failovers.items()
    ) or any(processor.job == job.name and _has_copy(view, processor) for processor in view.lost_actives)


def _has_copy(view: ClusterView, processor: ProcessorId) -> bool:
    """Return whether a live copy is there to take over, so that a failover is about to begin."""
    return any(slot.processor == processor for slot in view.bound())


def exhausted(view: ClusterView, job: Job, attempts: Attempts) -> bool:
    """Return whether a slot failed more often within the window than the job allows."""
    if job.policy.retry_count < 0:
        return False
    recent = [each for each in attempts.failures_ms if each > view.now_ms - job.policy.retry_window_ms]
    return len(recent) > job.policy.retry_count


def _where(
    view: ClusterView, job: Job, slot: SlotId, placements: dict[SlotId, str]
) -> tuple[str | None, str]:
    """Return the host to ask for, or None for any, and why."""
    recorded = view.records.get(view.job_tasks(slot.processor)[0])
    last = recorded.record.hosts.get(slot.copy) if recorded is not None else None
    avoided = {host: why for host, (until, why) in view.avoided.items() if until > view.now_ms}
    ranking = rank_hosts(
        slot,
        view.hosts,
        placements,
        preferred=last if job.policy.host_affinity else None,
        avoided=avoided,
    )
    in_row = view.attempts.get(slot, Attempts()).in_row
    if in_row >= NAMED_FIRST and in_row % 2 == 0:
        # In turn with named ones: hosts that came after submit have no name to ask for.
        return None, f"any host, after {in_row} requests in vain"
    best = next((each for each in ranking if each.is_allowed), None)
    if best is not None:
        return best.host, best.reason
    if not view.hosts:
        return None, "no host is known by name"
    refused = "; ".join(f"{each.host}: {each.reason}" for each in ranking)
    return None, f"any host: no named one will do ({refused})"
