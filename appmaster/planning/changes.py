"""Changes of the view that more than one event makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from appmaster.planning.view import HOLDING, Attempts, ClusterView, Container, News, Presence
from standby.model import SlotId

K = TypeVar("K")
V = TypeVar("V")


def put(mapping: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    """Return a copy of ``mapping`` with ``key`` set."""
    return {**mapping, key: value}


def without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    """Return a copy of ``mapping`` that lacks ``key``."""
    return {each: value for each, value in mapping.items() if each != key}


def with_news(view: ClusterView, *news: News) -> ClusterView:
    """Return the view with more to tell, stamped with the leader's clock where no time is given."""
    stamped = tuple(each if each.at_ms is not None else replace(each, at_ms=view.now_ms) for each in news)
    return replace(view, news=view.news + stamped)


def lost(view: ClusterView, container: Container, reason: str, at_ms: int) -> ClusterView:
    """Return the view in which ``container`` has lost its roles, and since when each active is missed.

    A container that was told to leave is no failure, and one that is lost already is not lost again.
    """
    if container.presence not in HOLDING:
        return view
    word = reason.split(":", 1)[0]
    view = replace(
        view,
        containers=put(
            view.containers,
            container.id,
            replace(container, presence=Presence.SUSPECT, since_ms=at_ms, reason=reason),
        ),
    )
    slot = container.slot if container.is_bound else None
    role = None
    if slot is not None and slot.processor.job in view.jobs:
        role = "active" if view.active_slot(slot.processor) == slot else "standby"
        if role == "active":
            view = replace(
                view,
                lost_actives=put(view.lost_actives, slot.processor, (container.id, word, at_ms)),
            )
    return with_news(
        view,
        News(
            "container_lost",
            job=slot.processor.job if slot is not None else None,
            copy=slot.copy if slot is not None else None,
            container=container.id,
            host=container.host,
            reason=reason,
            at_ms=at_ms,
            data={"role": role},
        ),
    )


def failed_attempt(
    view: ClusterView, slot: SlotId, at_ms: int, reason: str, *, counts: bool = True
) -> ClusterView:
    """Return the view after a failure of ``slot``: the next request waits, longer each time.

    ``counts`` says whether it spends retry budget; a refused or expired request does not.
    """
    policy = view.jobs[slot.processor.job].policy
    old = view.attempts.get(slot, Attempts())
    wait = min(policy.retry_backoff_ms * 2 ** min(old.in_row, 16), policy.retry_backoff_max_ms)
    recent = tuple(each for each in old.failures_ms if each > at_ms - policy.retry_window_ms)
    attempts = Attempts(
        failures_ms=(*recent, at_ms) if counts else recent,
        not_before_ms=at_ms + wait,
        in_row=old.in_row + 1,
        last=reason,
    )
    return replace(view, attempts=put(view.attempts, slot, attempts))


def avoid(view: ClusterView, host: str, at_ms: int, slot: SlotId, why: str) -> ClusterView:
    """Return the view in which ``host`` is not asked for a while."""
    until = at_ms + view.jobs[slot.processor.job].policy.avoid_host_ms
    return replace(view, avoided=put(view.avoided, host, (until, why)))


def gone(view: ClusterView, container: str, at_ms: int) -> ClusterView:
    """Return the view without a container that has ended, its slot free for a new request."""
    known = view.containers[container]
    view = replace(view, containers=without(view.containers, container))
    slot = known.slot
    if (
        slot is not None
        and known.is_bound
        and slot.processor.job in view.jobs
        and known.presence is not Presence.LEAVING
    ):
        # A loss after good service is asked for again at once; repeated ones wait longer each time.
        counted = failed_attempt(view, slot, at_ms, known.reason or "lost")
        old = view.attempts.get(slot, Attempts())
        attempts = counted.attempts[slot]
        if old.in_row == 0:
            attempts = replace(attempts, not_before_ms=at_ms)
        view = replace(view, attempts=put(view.attempts, slot, attempts))
    return with_news(view, News("container_gone", container=container, host=known.host, reason=known.reason))
