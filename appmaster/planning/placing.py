"""Which container gets which copies: empty places filled, copies moved, copies given up. Pure.

Nothing here takes an active away from where it is: a copy that is to move is filled elsewhere first, and
the old one serves until the new one is in sync (Kafka's reassignment). Hard: two copies of a task never share
a host (SEP-23, Invariant 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from appmaster.planning.actions import Kind, WriteRecords
from appmaster.planning.failover import is_in_sync, poison
from appmaster.planning.model import BerthId
from appmaster.planning.turn import Cohort, Turn, activated, is_current
from appmaster.planning.upgrade import crowding, is_restarting, may_take, next_container, outdated, too_many
from appmaster.planning.view import Container, Job, Presence
from standby.model import SlotId, TaskRecord
from standby.replica.lifecycle import ENDED

#: A mixed job is begun with fewer containers after so many requests in vain.
_IN_VAIN = 2


# ---- copies that are not wanted (where they are) ----


def drop(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the end of a standby that the model has no place for, or whose process is started anew as planned."""
    for copy, container in sorted(cohort.record.placed.items()):
        if copy in (cohort.record.active, cohort.record.displaced):
            continue
        if copy not in cohort.copies:
            if cohort.record.active not in cohort.copies:
                continue  # it may have to take the active's role first
            return _dropping(turn, cohort, copy, "the job has fewer standbys now")
        holder = turn.view.holder(container)
        if holder is None:
            continue
        if is_restarting(turn, cohort, holder):
            reason = f"its container is started anew with revision {cohort.job.revision}"
            if is_current(cohort.job, holder):
                reason = f"its container makes way: {holder.host} holds another one of the job"
            return _dropping(turn, cohort, copy, reason)
        is_stuck = holder.host in turn.view.excluded and copy not in cohort.record.moving
        if is_stuck and not can_move(turn, cohort, copy, holder.host):
            return _dropping(turn, cohort, copy, f"{holder.host} is to be empty, and no other host will do")
    return None


def _dropping(turn: Turn, cohort: Cohort, copy: int, reason: str) -> WriteRecords | None:
    return turn.decide(
        cohort, Kind.DROP, reason, lambda record: turn.dropped(cohort, record, copy), copy=copy
    )


def _stopping(turn: Turn, cohort: Cohort, copy: int, host: str) -> WriteRecords | None:
    """Return the stop of an only copy that is started again on its own host: no other may be had."""

    def edit(record: TaskRecord) -> TaskRecord:
        # It stays the active, and a member of its in-sync set: nobody else has its state.
        return replace(turn.dropped(cohort, record, copy), in_sync=record.in_sync)

    return turn.decide(
        cohort, Kind.DROP, f"its only copy is started again on {host} with another revision", edit, copy=copy
    )


def is_clear(turn: Turn, cohort: Cohort, container: Container) -> bool:
    """Return whether no other process on a container's host has a copy of the tasks open, as far as it is known.

    What was told to close there has to close first: the two would need one directory.
    """
    for other in turn.on_host(container.host):
        if other.id == container.id or other.presence is not Presence.LIVE:
            continue
        for each in other.statuses.values():
            if each.replica.task in cohort.tasks and each.phase not in ENDED:
                return False
    return True


def can_move(turn: Turn, cohort: Cohort, copy: int, host: str) -> bool:
    """Return whether some known host could take a copy that has to leave its own."""
    slot = SlotId(cohort.processor, copy)
    taken = {host, *(each.host.name for each in turn.siblings((cohort,), slot))}
    return any(each not in taken and each not in turn.view.excluded for each in turn.view.hosts)


# ---- empty places ----


def start(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort) -> WriteRecords | None:
    """Return the placing of a copy that becomes active with it, if a container is there for one."""
    return _bind(turn, cohorts, cohort, activates=True)


def fill(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort) -> WriteRecords | None:
    """Return the placing of a standby, if a container is there for one."""
    return _bind(turn, cohorts, cohort, activates=False)


def _bind(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, *, activates: bool) -> WriteRecords | None:
    record = cohort.record
    alive = [copy for copy in record.placed if turn.holder(cohort, copy) is not None]
    kept = [copy for copy in record.placed if turn.is_kept(cohort, copy)]
    empty = [copy for copy in cohort.copies if copy not in alive and copy not in kept]
    for copy in empty:
        is_active = copy == record.active
        if activates != (record.active is None or is_active or not alive):
            continue
        if record.displaced is not None and (is_active or copy == record.displaced):
            continue  # the steps of policy restart decide
        if record.active is None and copy != cohort.copies[0] and cohort.copies[0] in empty:
            continue  # the first copy is the first active: every active before any standby (SEP-23)
        if is_active and alive and not cohort.job.policy.restarts:
            continue  # a live copy is about to be promoted; this place is a standby's then
        if is_active and poison(cohort, turn):
            continue
        container = _container_for(turn, cohorts, cohort, copy, activates=activates)
        if container is not None and is_clear(turn, cohort, container):
            return _binding(turn, cohort, copy, container, activates=activates)
    return None


def _binding(
    turn: Turn, cohort: Cohort, copy: int, container: Container, *, activates: bool
) -> WriteRecords | None:
    lost = cohort.record.active
    in_place = lost == copy and cohort.job.policy.restarts and container.host == cohort.record.hosts.get(copy)
    if in_place:
        reason = f"copy {copy} is started again on its own host"
    elif activates and lost is not None and any(turn.holder(cohort, each) for each in cohort.record.placed):
        reason = "standby-stayed: its host could not be reserved, so the active starts elsewhere"
    elif activates and lost is not None:
        reason = "no other copy lives: it becomes the active"
    elif activates:
        reason = "the first of its tasks' copies: it becomes the active"
    else:
        reason = "an empty place"
    turn.add_load(container.id, len(cohort.recorded) if activates else 0, len(cohort.recorded))
    return turn.decide(
        cohort,
        Kind.BIND,
        reason,
        lambda record: turn.placed(cohort, record, copy, container, activates=activates),
        container=container,
        copy=copy,
        host=container.host,
        in_place=in_place,
        policy="restart" if cohort.job.policy.restarts else "promote",
        **({"from_copy": lost} if lost is not None else {}),
    )


def _container_for(
    turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, copy: int, *, activates: bool
) -> Container | None:
    """Return the container that an empty copy goes to: its slot's home, else a free one that fits."""
    if cohort.job.model.is_mixed:
        return _mixed(turn, cohort, copy, activates=activates)
    slot = SlotId(cohort.processor, copy)
    home = turn.home(cohorts, slot)
    if home is not None:
        # Of whatever revision, unless it is about to be started anew: the rest of its slot's tasks are there.
        is_staying = home.presence is Presence.LIVE and may_take(turn, cohort.job, home)
        is_open = not home.binding and home.id not in turn.taken
        return home if is_staying and is_open and is_apart(turn, cohort, copy, home) else None
    return free_for(turn, cohorts, slot)


def free_for(turn: Turn, cohorts: tuple[Cohort, ...], slot: SlotId) -> Container | None:
    """Return a free container for a slot that passes the same-host check, the one asked for it first."""
    job = cohorts[0].job
    siblings = {each.host.name for each in turn.siblings(cohorts, slot)}

    def fits(each: Container) -> bool:
        return each.host not in siblings and each.host not in turn.view.excluded and is_current(job, each)

    own = [each for each in turn.free_at(job, slot) if fits(each)]
    # One that was asked for another slot which still waits for it stays free for that one.
    idle = (each for each in turn.idle(job, partial(_is_idle, turn)) if fits(each))
    return min(own or idle, key=lambda each: each.id, default=None)


def _is_idle(turn: Turn, container: Container) -> bool:
    """Return whether a free container waits for no slot of its own."""
    return not isinstance(container.place, SlotId) or _is_taken(turn, container.place)


def _is_taken(turn: Turn, slot: SlotId) -> bool:
    """Return whether a slot has a container already, or is not in the model any more."""
    job = turn.view.jobs.get(slot.processor.job)
    model = job.model.processors.get(slot.processor) if job is not None else None
    if job is None or model is None or slot.copy not in model.copies:
        return True
    cohorts = turn.cohorts(job, slot.processor)
    if cohorts is None:
        return False
    return all(
        turn.holder(each, slot.copy) is not None and slot.copy not in each.record.moving for each in cohorts
    )


def fits_host(turn: Turn, cohort: Cohort, copy: int, container: Container) -> bool:
    """Return whether a container may take a copy: it keeps the copies apart, and runs the present revision.

    In a mixed job one of an older revision may, until it is its turn to be started anew.
    """
    is_fresh = cohort.job.model.is_mixed or is_current(cohort.job, container)
    return is_fresh and is_apart(turn, cohort, copy, container)


def is_apart(turn: Turn, cohort: Cohort, copy: int, container: Container) -> bool:
    """Return whether no other copy is on a container's host, and the host is not to be empty."""
    return (
        container.host not in turn.hosts_of_copies(cohort, copy) and container.host not in turn.view.excluded
    )


# ---- mixed containers ----


def _mixed(turn: Turn, cohort: Cohort, copy: int, *, activates: bool) -> Container | None:
    """Return the container of a mixed job that an empty copy goes to: the least loaded that may take it.

    While containers are missing the others take no more than their share, for those to come; an active waits
    for nobody once the job has begun.
    """
    job = cohort.job
    live = mixed_containers(turn, job)
    missing = max(0, job.model.containers - len(live))
    if missing > 0 and not _may_begin(turn, job):
        return None
    share = max(1, len(live) if _in_vain(turn, job) else job.model.containers)
    tasks, copies = len(job.model.processors), len(job.model.slots)
    most = [math.ceil(tasks / share), math.ceil(copies / share)]
    loads = turn.loads()

    def load(each: Container) -> tuple[int, int]:
        actives, all_copies = loads.get(each.id, (0, 0))
        return actives, all_copies

    fitting = [each for each in live if fits_host(turn, cohort, copy, each)]
    if activates:
        roomy = [each for each in fitting if load(each)[0] < most[0]]
        if cohort.record.active is not None and not roomy:
            roomy = fitting
    else:
        roomy = [each for each in fitting if load(each)[1] < most[1]]
        # A job without standbys has nobody to hand over to: what must leave goes where it can.
        if not roomy and (not missing or len(cohort.copies) == 1):
            roomy = fitting
    held = {each.host for each in cohort.record.history}
    last = cohort.record.hosts.get(copy)

    def rank(each: Container) -> tuple[object, ...]:
        actives, all_copies = load(each)
        return (
            actives if activates else 0,
            all_copies,
            each.host != last,
            each.host not in held,
            each.id,
        )

    return min(roomy, key=rank, default=None)


def mixed_containers(turn: Turn, job: Job) -> list[Container]:
    """Return the live containers of a mixed job that may be given copies: not the next to be started anew."""
    crowded = {each.id for each in crowding(turn, job)}
    return [
        each
        for each in turn.view.containers.values()
        if each.presence is Presence.LIVE
        and (found := turn.view.job_of(each)) is not None
        and found.name == job.name
        and may_take(turn, job, each)
        and (turn.view.assigned.get(each.id) or (is_current(job, each) and each.id not in crowded))
        and each.host not in turn.view.excluded
    ]


def _may_begin(turn: Turn, job: Job) -> bool:
    """Return whether a mixed job has begun, or may begin with the containers that are there.

    The first containers would get all actives otherwise (Spring XD's quiet period).
    """
    if job.was_deployed or any(
        (recorded := turn.view.records.get(task)) is not None and recorded.record.epoch > 0
        for task in job.model.tasks
    ):
        return True
    quiet = turn.view.now_ms - turn.view.arrived_ms.get(job.name, turn.view.now_ms)
    return quiet >= job.policy.quiet_ms


def _in_vain(turn: Turn, job: Job) -> bool:
    """Return whether the containers that a mixed job lacks cannot be had for now."""
    return any(
        isinstance(place, BerthId) and place.job == job.name and each.in_row >= _IN_VAIN
        for place, each in turn.view.attempts.items()
    )


# ---- moves ----


def end_move(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the end of moving a copy: given up, or done. Actives arrive by a planned hand-over."""
    record = cohort.record
    for copy, container in sorted(record.moving.items()):
        target = turn.view.holder(container)
        if target is None or not _is_worth(turn, cohort, copy, target):
            return turn.decide(
                cohort,
                Kind.STAY,
                f"{container} is of no use any more"
                if target is None
                else "there is no need to move any more",
                lambda record, copy=copy: replace(record, moving=_but(record.moving, copy)),  # type: ignore[misc]
                copy=copy,
            )
        if copy != record.active and turn.is_tailing(cohort, copy, target):
            return _moved(turn, cohort, copy, target)
    return None


def begin_move(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort) -> WriteRecords | None:
    """Return the first step of moving a copy that should be in another container than it is."""
    record = cohort.record
    if record.displaced is not None or record.moving or record.active is None:
        return None
    for copy in cohort.copies:
        holder = turn.holder(cohort, copy)
        if holder is None or holder.presence is not Presence.LIVE:
            continue
        target = _target(turn, cohorts, cohort, copy, holder)
        if target is None:
            continue
        if target.host in turn.hosts_of_copies(cohort, copy):
            return _make_way(turn, cohort, copy, target.host)
        if target.host == holder.host:
            if copy == record.active and _others(turn, cohort):
                continue  # both would need the one directory: a standby takes over first
            if copy == record.active:
                return _stopping(turn, cohort, copy, holder.host)
            # The two would need one directory: it is closed here before it is opened there.
            return _dropping(turn, cohort, copy, f"its tasks belong in {target.id} on the same host")
        reason = move_reason(turn, cohorts, cohort, copy, holder)
        turn.add_load(target.id, 0, len(cohort.recorded))
        return turn.decide(
            cohort,
            Kind.MOVE,
            f"copy {copy} is filled on {target.host}: {reason}",
            lambda record, copy=copy, target=target: replace(  # type: ignore[misc]
                record, moving={**record.moving, copy: target.id}
            ),
            container=target,
            copy=copy,
            host=target.host,
        )
    return None


def _but(mapping: Mapping[int, str], copy: int) -> dict[int, str]:
    return {each: container for each, container in mapping.items() if each != copy}


def _moved(turn: Turn, cohort: Cohort, copy: int, target: Container) -> WriteRecords | None:
    def edit(record: TaskRecord) -> TaskRecord:
        record = turn.placed(cohort, record, copy, target, activates=False)
        return replace(record, in_sync=tuple(sorted({*record.in_sync, copy})))

    return turn.decide(
        cohort, Kind.MOVED, f"copy {copy} is in sync on {target.host}", edit, copy=copy, host=target.host
    )


def _make_way(turn: Turn, cohort: Cohort, copy: int, host: str) -> WriteRecords | None:
    """Return the end of the standby that is in the way of its own task's move; it is placed anew after."""
    for other in cohort.record.placed:
        holder = turn.holder(cohort, other)
        if other not in (copy, cohort.record.active) and holder is not None and holder.host == host:
            return _dropping(turn, cohort, other, f"it makes way for copy {copy} on {host}")
    return None


def move_reason(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, copy: int, holder: Container) -> str:
    """Return why a copy should be in another container than it is; empty when it should not."""
    if cohort.job.model.is_mixed:
        if holder.host in turn.view.excluded and not (copy == cohort.record.active and _others(turn, cohort)):
            return f"{holder.host} is to be empty"
        is_alone = copy == cohort.record.active and not _others(turn, cohort)
        if is_alone and holder.id == next_container(turn, cohort.job):
            return f"revision {cohort.job.revision} is to run"
        if (copy != cohort.record.active or is_alone) and _is_overloaded(turn, cohort, copy, holder):
            return f"{holder.id} holds more than its share"
        return ""
    slot = SlotId(cohort.processor, copy)
    if turn.view.home(holder.id) != slot or (
        len(cohorts) > 1 and (home := turn.home(cohorts, slot)) is not None and home.id != holder.id
    ):
        return f"its tasks belong to {cohort.processor}"
    is_alone = copy == cohort.record.active and not _others(turn, cohort)
    if holder.host in turn.view.excluded and (copy != cohort.record.active or is_alone):
        return f"{holder.host} is to be empty"
    if is_alone and not is_current(cohort.job, holder):
        return f"revision {cohort.job.revision} is to run"
    return ""


def _is_overloaded(turn: Turn, cohort: Cohort, copy: int, holder: Container) -> bool:
    """Return whether another container of a mixed job that may take a copy holds two less, or fewer still."""
    loads = turn.loads()
    mine = loads.get(holder.id, [0, 0])[1]
    if outdated(turn, cohort.job) or too_many(turn, cohort.job) is not None:
        return False  # containers come and go anyhow: evened out when the upgrade is over
    return any(
        mine - loads.get(each.id, [0, 0])[1] >= 2 and fits_host(turn, cohort, copy, each)
        for each in mixed_containers(turn, cohort.job)
        if each.host != holder.host
    )


def _others(turn: Turn, cohort: Cohort) -> bool:
    """Return whether the job keeps standbys: one of them can take over."""
    return len(cohort.copies) > 1


def _is_worth(turn: Turn, cohort: Cohort, copy: int, target: Container) -> bool:
    """Return whether a move under way still leads somewhere."""
    return target.host not in turn.view.excluded and copy in cohort.copies


def _target(
    turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, copy: int, holder: Container
) -> Container | None:
    """Return where a copy is to go, if it is to go and there is such a container by now."""
    if not move_reason(turn, cohorts, cohort, copy, holder):
        return None
    if cohort.job.model.is_mixed:
        found = _mixed(turn, cohort, copy, activates=False)
        is_alone = copy == cohort.record.active and not _others(turn, cohort)
        return found if found is not None and (found.host != holder.host or is_alone) else None
    slot = SlotId(cohort.processor, copy)
    home = turn.home(cohorts, slot)
    if home is not None and home.id != holder.id:
        is_ready = home.presence is Presence.LIVE and home.host not in turn.view.excluded
        return home if is_ready and home.id not in turn.taken and not home.binding else None
    return free_for(turn, (cohort,), slot)


def hand_over(
    turn: Turn, cohort: Cohort, to_copy: int, container: Container, reason: str
) -> WriteRecords | None:
    """Return the decision that makes a prepared standby, or a filled copy, active as planned."""

    def edit(record: TaskRecord) -> TaskRecord:
        if record.placed.get(to_copy) == container.id:
            # The former active goes on as a standby, with everything that was committed.
            return replace(activated(record, to_copy), in_sync=tuple(sorted({*record.in_sync, to_copy})))
        return turn.placed(cohort, record, to_copy, container, activates=True)

    turn.add_load(container.id, len(cohort.recorded), 0)
    return turn.decide(
        cohort,
        Kind.HANDOVER,
        reason,
        edit,
        copy=to_copy,
        from_copy=cohort.record.active,
        to_copy=to_copy,
        in_sync=is_in_sync(cohort, to_copy),
    )
