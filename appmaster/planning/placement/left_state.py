"""Where the state of a copy's tasks lies: what their records remember, and what containers saw on disks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from appmaster.planning.placement.turn import Cohort, Turn
from locality.history import Found, Freshness, History, freshness, merge
from standby.shared.model import Held, TaskId, TaskRecord


def histories(turn: Turn, cohorts: Iterable[Cohort], copy: int) -> dict[TaskId, History]:
    """Return each task of ``cohorts`` → which hosts held it, as far as ``copy`` of it is concerned.

    Nothing where the job asks for no affinity.
    """
    found: dict[TaskId, History] = {}
    for cohort in cohorts:
        if not cohort.job.policy.host_affinity:
            continue
        is_placed = turn.holder(cohort, copy) is not None
        for each in cohort.recorded:
            record = each.record
            found[record.task] = record.history if is_placed else _with_last_host(turn, record, copy)
    return found


def leftovers(turn: Turn) -> Mapping[TaskId, tuple[Found, ...]]:
    """Return task → the state of its present run that was seen on disks, the latest sight of each host."""
    if turn.leftovers is None:
        turn.leftovers = _look_through(turn)
    return turn.leftovers


def freshness_of(turn: Turn, cohorts: Iterable[Cohort], copy: int) -> dict[str, Freshness]:
    """Return each host with some state of the tasks of ``cohorts`` → how much, for one copy."""
    return freshness(histories(turn, cohorts, copy), leftovers(turn))


def _look_through(turn: Turn) -> dict[TaskId, tuple[Found, ...]]:
    view = turn.view
    now_ms = view.wall(view.now_ms)
    seen: dict[TaskId, dict[str, Found]] = {}
    for container in view.containers.values():
        for each in container.leftovers:
            job = view.jobs.get(each.task.job)
            if job is None or job.run != each.run:
                continue  # of a run that was deleted: nobody may use it
            if each.found_ms and now_ms - each.found_ms >= job.policy.locality_expiry_ms:
                continue  # a container that has run for long: the disk may have been cleared since
            hosts = seen.setdefault(each.task, {})
            found = Found(container.host, each.position, each.found_ms)
            # A later look knows better; of two at the same moment, the one that found more.
            hosts[found.host] = max(
                found, hosts.get(found.host, found), key=lambda known: (known.at_ms, known.position)
            )
    return {task: tuple(hosts[host] for host in sorted(hosts)) for task, hosts in seen.items()}


def _with_last_host(turn: Turn, record: TaskRecord, copy: int) -> History:
    """Return the hosts that held a task, the last one of a lost copy among them.

    Nobody wrote down how far that one had come when it was lost; older state is not taken for fresher than it.
    """
    last = record.hosts.get(copy)
    if not last:
        return record.history
    seen = leftovers(turn).get(record.task, ())
    position = max((each.position or 0 for each in merge(record.history, seen)), default=None)
    others = (each for each in record.history if each.host != last)
    return (Held(last, turn.view.wall(turn.view.now_ms), position), *others)
