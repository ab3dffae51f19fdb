"""Which hosts held a task, until when, and up to which changelog offset. Pure.

The history is part of the task's record (`standby.shared.model.TaskRecord.history`), so that a new leader knows as much
as the old one. State that containers find on their hosts' disks adds to it. Both only rank hosts and never decide about
data: whether state found on a disk may be used is decided there, by the rule `old-state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from standby.shared.model import Held, TaskId

History = tuple[Held, ...]


def remember(
    history: History, host: str, now_ms: int, position: int | None, *, expiry_ms: int, most: int = 8
) -> History:
    """Return ``history`` with ``host`` as present holder of the task, latest first.

    Entries older than ``expiry_ms`` (``job.locality.expiry.ms``) are dropped, and the oldest beyond ``most``; with an
    expiry of 0 nothing is remembered. A ``position`` of None keeps the one reported before: a missing report does not
    mean that the state is gone. Times are Unix milliseconds.
    """
    earlier = next((each for each in history if each.host == host), None)
    if earlier is not None:
        # Leaders' clocks differ: a successor's clock may be behind what its predecessor wrote.
        until_ms = max(now_ms, earlier.until_ms)
        position = earlier.position if position is None else position
    else:
        until_ms = now_ms
    kept = (Held(host, until_ms, position), *(each for each in history if each.host != host))
    return expire(kept, now_ms, expiry_ms=expiry_ms)[:most]


def expire(history: History, now_ms: int, *, expiry_ms: int) -> History:
    """Return ``history`` without the entries that are ``expiry_ms`` old or older, latest first."""
    # The entry of a leader whose clock was ahead counts as new.
    kept = (each for each in history if max(0, now_ms - each.until_ms) < expiry_ms)
    return tuple(sorted(kept, key=lambda each: (-each.until_ms, each.host)))


def forget(history: History, host: str) -> History:
    """Return ``history`` without ``host``: its state is gone, or must not attract the task.

    The latter is SEP-23's step after an expired same-host request: the standby's locality is deleted.
    """
    return tuple(each for each in history if each.host != host)


class StateOnDisk(NamedTuple):
    """State of a task that a container found on a disk of its host, and that no process had open."""

    host: str
    position: int
    """Changelog offset up to which it was applied."""
    at_ms: int
    """When it was found; Unix ms."""


def merge(history: History, found: Iterable[StateOnDisk]) -> History:
    """Return ``history`` combined with what was ``found`` on disks, at most one entry per host; in no order.

    For a host in both, the later information counts. State found after the copy had left shows what really is there: a
    process that was killed left less than it had reported. State that a later copy reached is newer than the find.
    """
    hosts = {each.host: each for each in history}
    for each in found:
        held = hosts.get(each.host)
        if held is None:
            # Its last use is unknown: between equals, a host in the history comes first.
            hosts[each.host] = Held(each.host, 0, each.position)
        elif held.position is None or held.until_ms <= each.at_ms:
            hosts[each.host] = replace(held, position=each.position)
    return tuple(hosts.values())


class Freshness(NamedTuple):
    """How much of the state of some tasks is on a host; hosts sort by it, the best lowest."""

    nothing: bool
    behind: int
    """Changelog records to replay there, beyond the highest known position of each task."""
    missing: int
    """Number of tasks without state there."""
    age: int
    """Negative time until when a copy was there; Unix ms."""


#: The freshness of a host that holds nothing.
NOTHING: Final = Freshness(nothing=True, behind=0, missing=0, age=0)


def freshness(
    histories: Mapping[TaskId, History], leftovers: Mapping[TaskId, Iterable[StateOnDisk]]
) -> dict[str, Freshness]:
    """Return each host with some state of the tasks in ``histories`` → how much.

    ``leftovers`` is what was found on disks; it may contain further tasks.
    """
    totals: dict[str, list[int]] = {}
    all_of_it = 0
    for task, history in histories.items():
        held = merge(history, leftovers.get(task, ()))
        # What is missing, or was never reported, has to be replayed up to the highest known position.
        all_of_it += max((each.position or 0 for each in held), default=0)
        for each in held:
            total = totals.setdefault(each.host, [0, 0, 0])
            total[0] += each.position or 0
            total[1] += 1
            total[2] = max(total[2], each.until_ms)
    return {
        host: Freshness(
            nothing=False, behind=all_of_it - applied, missing=len(histories) - count, age=-until_ms
        )
        for host, (applied, count, until_ms) in totals.items()
    }
