"""Which hosts held a task, until when, and up to which changelog offset. Pure.

The history is part of the task's record (`standby.model.TaskRecord.history`), so that a new leader
knows as much as the old one. It ranks hosts and never decides about data: whether state found on a disk
may be used is judged there, by the rules of design 4.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from standby.model import Held, Leftover, TaskId

History = tuple[Held, ...]


def remember(
    history: History, host: str, now_ms: int, position: int | None, *, expiry_ms: int, most: int = 8
) -> History:
    """Return ``history`` with the fact that ``host`` holds the task now, latest first.

    Entries older than ``expiry_ms`` (``job.locality.expiry.ms``) are dropped, and the oldest beyond
    ``most``; with an expiry of 0 nothing is remembered. A ``position`` of None keeps the one reported
    before: that nobody has asked does not mean that the state is gone. Times are Unix milliseconds.
    """
    earlier = next((each for each in history if each.host == host), None)
    if earlier is not None:
        # Leaders' clocks differ: a successor's may stand behind what its predecessor wrote.
        until_ms = max(now_ms, earlier.until_ms)
        position = earlier.position if position is None else position
    else:
        until_ms = now_ms
    kept = (Held(host, until_ms, position), *(each for each in history if each.host != host))
    return expire(kept, now_ms, expiry_ms=expiry_ms)[:most]


def expire(history: History, now_ms: int, *, expiry_ms: int) -> History:
    """Return ``history`` without the entries that are ``expiry_ms`` old or older, latest first."""
    # An entry of a leader whose clock stood ahead is new, not newer than new.
    kept = (each for each in history if max(0, now_ms - each.until_ms) < expiry_ms)
    return tuple(sorted(kept, key=lambda each: (-each.until_ms, each.host)))


def forget(history: History, host: str) -> History:
    """Return ``history`` without ``host``: its state is gone, or must not draw the task there.

    The latter is SEP-23's step after an expired same-host request: the standby's locality is deleted.
    """
    return tuple(each for each in history if each.host != host)


def by_freshness(history: History) -> History:
    """Return the entries by how little of the changelog is left to replay there, the least first.

    A position that was never reported counts as nothing replayed; between equals the later one leads.
    """
    return tuple(
        sorted(
            history,
            key=lambda each: (each.position is None, -(each.position or 0), -each.until_ms, each.host),
        )
    )


def freshest(history: History) -> Held | None:
    """Return the entry with the freshest state (`by_freshness`); None when nothing is remembered."""
    return next(iter(by_freshness(history)), None)


def found(leftovers: Mapping[str, Iterable[Leftover]]) -> dict[TaskId, dict[str, int]]:
    """Return task → host → changelog offset that usable state on its disks was applied up to.

    ``leftovers`` maps hosts to what their containers reported; the freshest state of a task counts.
    """
    index: dict[TaskId, dict[str, int]] = {}
    for host, reported in leftovers.items():
        for each in reported:
            hosts = index.setdefault(each.task, {})
            hosts[host] = max(each.position, hosts.get(host, 0))
    return index
