"""What a candidate has to do about code, according to `appmaster.code.rules`. Pure.

Every step is repeated until ZooKeeper or the disk shows that it is done: repetition does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from appmaster.code.rules import CodeView, named_bundles, readiness, sources, wanted_bundles
from standby.shared.peers import BundleSource

#: First pause before something that failed with a bundle is tried again, doubled each time up to the sync time.
RETRY_MS: Final = 250


@dataclass(frozen=True, slots=True)
class Announce:
    """Register this candidate in ZooKeeper as holder of a bundle."""

    bundle: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Have the distributor fetch a bundle."""

    bundle: str
    sources: tuple[BundleSource, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Have the distributor make a bundle available to others."""

    bundle: str


@dataclass(frozen=True, slots=True)
class Revive:
    """Remove a bundle's tombstone."""

    bundle: str


@dataclass(frozen=True, slots=True)
class Condemn:
    """Put a tombstone on a bundle that no job has named for a long time, unless one names it by then."""

    bundle: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Withdraw a deleted bundle from ZooKeeper, then from the disk."""

    bundle: str


@dataclass(frozen=True, slots=True)
class Bury:
    """Remove the last traces of a deleted bundle, unless its node has another version by then."""

    bundle: str
    version: int


@dataclass(frozen=True, slots=True)
class Activate:
    """Record that a revision is active."""

    job: str
    run: str
    revision: int
    said: str
    """How many candidates hold its code."""


CodeStep = Announce | Fetch | Publish | Revive | Condemn | Remove | Bury | Activate


def began(view: CodeView, step: Fetch | Publish) -> CodeView:
    """Return the view after a fetch or a publication was started."""
    if isinstance(step, Fetch):
        return replace(view, fetching=view.fetching | {step.bundle})
    return replace(view, publishing=view.publishing | {step.bundle})


def plan(view: CodeView) -> tuple[CodeStep, ...]:
    """Return what this candidate has to do now; the same again until it is done, which does no harm."""
    if view.directory is None:
        return ()
    # Deletion comes last: it may take long (`hadoop fs`), and nothing depends on it.
    return (*_announced(view), *_fetched(view), *_published(view), *_activated(view), *_deleted(view))


def _announced(view: CodeView) -> Iterator[CodeStep]:
    assert view.directory is not None
    for bundle in sorted(view.reviving):
        yield Revive(bundle)
    for bundle in sorted(view.held - _expired(view)):
        mine = (each.candidate == view.me for each in view.directory.sources.get(bundle, ()))
        if not any(mine):
            yield Announce(bundle)


def _fetched(view: CodeView) -> Iterator[CodeStep]:
    for bundle in sorted(wanted_bundles(view) - view.held - view.fetching):
        if _is_due(view, bundle):
            yield Fetch(bundle, sources(view, bundle))


def _published(view: CodeView) -> Iterator[CodeStep]:
    for bundle in sorted((wanted_bundles(view) & view.held) - view.published - view.publishing):
        if _is_due(view, bundle):
            yield Publish(bundle)


def _is_due(view: CodeView, bundle: str) -> bool:
    failure = view.failures.get(bundle)
    if failure is None:
        return True
    pause_ms = min(view.sync_ms, RETRY_MS << min(failure.count - 1, 20))
    return view.now_ms - failure.at_ms >= pause_ms


def _expired(view: CodeView) -> frozenset[str]:
    """Return the bundles that were deleted long enough ago and that no job names."""
    assert view.directory is not None
    kept = named_bundles(view.directory) | view.reviving
    return frozenset(
        bundle
        for bundle, since_ms in view.deleted_since.items()
        if bundle not in kept and view.now_ms - since_ms >= view.delete_delay_ms
    )


def _deleted(view: CodeView) -> Iterator[CodeStep]:
    assert view.directory is not None
    if view.leads:
        for bundle, since_ms in sorted(view.unnamed_since.items()):
            if view.now_ms - since_ms >= view.delete_delay_ms and _is_due(view, bundle):
                yield Condemn(bundle)
    for bundle in sorted(_expired(view)):
        if not _is_due(view, bundle):
            continue
        if bundle in view.held:
            yield Remove(bundle)
        elif view.leads and not view.directory.sources.get(bundle):
            yield Bury(bundle, view.directory.deleted[bundle])


def _activated(view: CodeView) -> Iterator[CodeStep]:
    if view.directory is None or not view.leads:
        return
    for each in view.directory.jobs:
        if each.is_waiting:
            ready, said = readiness(view, each)
            if ready:
                yield Activate(each.job, each.run, each.revision, said)
