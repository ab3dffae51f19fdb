"""Rolling upgrade: containers of an older revision are replaced one by one, standbys first. Pure.

A process loads a job's code once, so new code needs a new container. Containers are replaced one processor at a time
(in a mixed job, one container at a time), and only while the rest of the job is whole: the processor's standbys are
started in new containers, one of them takes over in a planned hand-over, and the former active follows. In a job
without standbys the copy is first filled in a new container (`appmaster.planning.rules.moving`). A rollback is an
upgrade to the former definition. Ids, offsets and fences stay.
"""

from __future__ import annotations

from collections import Counter

from appmaster.planning.placement.pool_fit import capacity
from appmaster.planning.placement.turn import Cohort, Turn, is_current
from appmaster.planning.state.job import Job
from appmaster.planning.state.view import Container, Presence
from standby.shared.model import SlotId


def is_restarting(turn: Turn, cohort: Cohort, holder: Container) -> bool:
    """Return whether a standby's container is the one that is replaced now."""
    return len(cohort.copies) > 1 and holder.id == next_container(turn, cohort.job)


def outdated(turn: Turn, job: Job) -> list[Container]:
    """Return the containers of a job that serve it with an older revision."""
    return [
        each
        for each in turn.of_job(job)
        if each.presence is Presence.LIVE and not is_current(job, each) and turn.view.assigned.get(each.id)
    ]


def next_container(turn: Turn, job: Job) -> str | None:
    """Return the outdated container that is replaced next; None if none may be at present.

    Within a processor, standbys' containers come before the active's. None is replaced while a copy anywhere in the
    job is missing or not in sync, other than the copies of that container itself. Nor is one while a new active has
    yet to commit, because if it cannot, a copy of the former revision takes over again; nor any more once the new
    revision was refused where it was active.
    """
    if job.is_refused:
        return None
    if job.name not in turn.restarting:
        found = sorted(
            outdated(turn, job), key=lambda each: (_first(turn, job, each), _actives(turn, each) > 0, each.id)
        )
        is_open = not any(each.job == job.name for each in turn.view.failovers) and all(
            turn.cohorts(job, each) is not None for owner, each in turn.unsettled() if owner is job
        )
        chosen = next((each for each in found if is_open and _rest_is_whole(turn, job, each)), None)
        if found and not is_open:
            turn.undecided.add(job.name)
        elif chosen is None:
            chosen = removable_container(turn, job)
        turn.restarting[job.name] = chosen.id if chosen is not None else None
    return turn.restarting[job.name]


def may_take(turn: Turn, job: Job, container: Container) -> bool:
    """Return whether a container will stay, so that copies may be placed in it.

    One of an older revision stays until it is replaced. But while a decision is being written it is unknown which
    container is replaced next, and a copy placed in that one would have to leave again. So would a copy that one of two
    containers of a mixed job on the same host gave up and the other took: only its host tells whose it was.
    """
    extra = surplus_container(turn, job)
    restarting = next_container(turn, job)
    if container.id == restarting or (extra is not None and container.id == extra.id):
        return False
    if is_current(job, container):
        return True
    return job.name not in turn.undecided and not (job.model.is_mixed and restarting is not None)


def removable_container(turn: Turn, job: Job) -> Container | None:
    """Return the surplus container of a mixed job, once all other containers are complete; None if there is none."""
    chosen = surplus_container(turn, job)
    return chosen if chosen is not None and _rest_is_whole(turn, job, chosen) else None


def surplus_container(turn: Turn, job: Job) -> Container | None:
    """Return the container that a mixed job should give up; None if it has no more than it should.

    Either the job is to have fewer containers, or two share a host on which the copies of a task could not be kept
    apart, and another was requested in addition. Nothing is placed in it any more; it is emptied when the rest is
    whole. None is given up if the other ones, as processes of a pool, do not take all copies.
    """
    if not job.model.is_mixed:
        return None
    if job.name not in turn.surplus:
        turn.surplus[job.name] = _surplus(turn, job)
    return turn.surplus[job.name]


def _surplus(turn: Turn, job: Job) -> Container | None:
    serving = _serving(turn, job)
    if len(serving) <= job.model.containers:
        return None
    on_host = Counter(each.host for each in serving)
    chosen = min(
        serving,
        key=lambda each: (
            is_current(job, each),
            -on_host[each.host],
            len(turn.view.assigned.get(each.id, ())),
            each.id,
        ),
    )
    others = [each for each in serving if each is not chosen]
    tasks = len(job.model.processors)
    needed = min(len(job.model.slots), capacity(serving, tasks))
    return chosen if capacity(others, tasks) >= needed else None


def why_surplus(turn: Turn, job: Job, container: Container) -> str:
    """Return why a container of a mixed job is the surplus one (`surplus_container`)."""
    serving = _serving(turn, job)
    if any(each.host == container.host and each.id != container.id for each in serving):
        return f"{container.host} holds another container of the job"
    return f"the job has {len(serving)} containers and asks for {job.model.containers}"


def why_kept(turn: Turn, job: Job) -> str:
    """Return why a mixed job keeps more containers than it asks for; empty if it does not, or only for a while."""
    if not (turn.view.processes and job.model.is_mixed):
        return ""
    kept, asked, copies = len(_serving(turn, job)), job.model.containers, len(job.model.slots)
    if kept <= asked or surplus_container(turn, job) is not None:
        return ""
    return f"{kept} containers are kept: {asked} would not take its {copies} copies (--tasks, job.container.count)"


def crowded_containers(turn: Turn, job: Job) -> list[Container]:
    """Return the live containers of a mixed job that share a host while it has fewer hosts than copies."""
    if not job.model.is_mixed:
        return []
    serving = _serving(turn, job)
    by_host: dict[str, list[Container]] = {}
    for each in serving:
        by_host.setdefault(each.host, []).append(each)
    if len(by_host) >= job.model.copies:
        return []
    return [each for shared in by_host.values() if len(shared) > 1 for each in shared]


def extra_containers(turn: Turn, job: Job) -> int:
    """Return how many containers a mixed job needs for a while beyond what it asks for.

    If two share a host while the copies need separate hosts, another is started before one is given up. A job without
    standbys has its copies filled elsewhere before its container is replaced.
    """
    if crowded_containers(turn, job) and spare_hosts(turn, job):
        # One more than there are now, because none can be given up before; missing ones are requested anyway.
        return max(0, 1 + len(_serving(turn, job)) - job.model.containers)
    return int(job.model.copies == 1 and bool(outdated(turn, job)))


def spare_hosts(turn: Turn, job: Job) -> list[str]:
    """Return the known, usable hosts on which a job has no container."""
    held = {each.host for each in _serving(turn, job)}
    return [host for host in turn.view.hosts if host not in held and host not in turn.view.drained]


def _serving(turn: Turn, job: Job) -> list[Container]:
    """Return the live containers of a job that may stay: a lost container does not occupy its host."""
    return [
        each for each in turn.of_job(job) if each.presence is Presence.LIVE and not turn.view.must_leave(each)
    ]


def _first(turn: Turn, job: Job, container: Container) -> object:
    if job.model.is_mixed:
        # Containers that have given away their actives already come first.
        return _actives(turn, container)
    return min(turn.view.processors_in(container.id))


def _actives(turn: Turn, container: Container) -> int:
    held = turn.view.assigned.get(container.id, {})
    return sum(turn.view.records[task].record.active == copy for task, copy in held.items())


def _rest_is_whole(turn: Turn, job: Job, chosen: Container) -> bool:
    """Return whether every copy of the job is known to be in place and in sync, apart from those of ``chosen``."""
    for owner, processor in turn.unsettled():
        if owner.name != job.name or job.model.processors[processor].parked:
            continue
        cohorts = turn.cohorts(job, processor)
        if cohorts is None:
            return False
        for cohort in cohorts:
            if not all(_is_well(turn, cohorts, cohort, copy, chosen) for copy in cohort.copies):
                return False
    return True


def _is_well(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, copy: int, chosen: Container) -> bool:
    """Return whether a copy is in sync or belongs to ``chosen``: it is there, was given up by it, or waits for it."""
    holder = turn.holder(cohort, copy)
    if holder is None:
        if cohort.job.model.is_mixed:
            # The copies of the chosen container are given up one after the other.
            return chosen.host == cohort.record.hosts.get(copy)
        home = turn.home(cohorts, SlotId(cohort.processor, copy))
        return home is not None and home.id == chosen.id
    return holder.id == chosen.id or all(copy in each.record.in_sync for each in cohort.recorded)
