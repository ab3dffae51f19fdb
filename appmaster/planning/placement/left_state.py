"""Where state of a copy's tasks lies: as their records remember it, and as containers found it on disks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from appmaster.planning.placement.turn import Cohort, Turn
from locality.history import Freshness, History, StateOnDisk, freshness, merge
from standby.shared.model import Held, TaskId, TaskRecord


def histories(turn: Turn, cohorts: Iterable[Cohort], copy: int) -> dict[TaskId, History]:
    """Return each task of ``cohorts`` → the hosts that held it, as far as they matter for ``copy`` of it.

    Empty if the job asks for no host affinity.
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


def leftovers(turn: Turn) -> Mapping[TaskId, tuple[StateOnDisk, ...]]:
    """Return task → state of its present run that was found on disks; per host, the latest find."""
    if turn.leftovers is None:
        turn.leftovers = _look_through(turn)
    return turn.leftovers


def freshness_of(turn: Turn, cohorts: Iterable[Cohort], copy: int) -> dict[str, Freshness]:
    """Return each host with state of the tasks of ``cohorts`` → how fresh it is, for one copy."""
    return freshness(histories(turn, cohorts, copy), leftovers(turn))


def _look_through(turn: Turn) -> dict[TaskId, tuple[StateOnDisk, ...]]:
    view = turn.view
    now_ms = view.wall(view.now_ms)
    seen: dict[TaskId, dict[str, StateOnDisk]] = {}
    for container in view.containers.values():
        for each in container.leftovers:
            job = view.jobs.get(each.task.job)
            if job is None or job.run != each.run:
                continue  # of a run that was deleted: it must not be used
            if each.found_ms and now_ms - each.found_ms >= job.policy.locality_expiry_ms:
                continue  # found by a container that started long ago: the disk may have been cleared since
            hosts = seen.setdefault(each.task, {})
            found = StateOnDisk(container.host, each.position, each.found_ms)
            # The later find is right; of two at the same moment, the one with the higher position.
            hosts[found.host] = max(
                found, hosts.get(found.host, found), key=lambda known: (known.at_ms, known.position)
            )
    return {task: tuple(hosts[host] for host in sorted(hosts)) for task, hosts in seen.items()}


def _with_last_host(turn: Turn, record: TaskRecord, copy: int) -> History:
    """Return the hosts that held a task, including the last host of a lost copy.

    The position of that copy when it was lost was not recorded. It is assumed to be no older than any other state.
    """
    last = record.hosts.get(copy)
    if not last:
        return record.history
    seen = leftovers(turn).get(record.task, ())
    position = max((each.position or 0 for each in merge(record.history, seen)), default=None)
    others = (each for each in record.history if each.host != last)
    return (Held(last, turn.view.wall(turn.view.now_ms), position), *others)
