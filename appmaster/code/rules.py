"""Which code a candidate lacks, where to get it, whether the candidate may lead, and what may be deleted. Pure.

From Storm's highly available Nimbus: the list of active jobs in ZooKeeper determines the code that a leader must hold.
A candidate that lacks any of it declines, fetches it and enters the election again. A job becomes active only when
enough candidates hold its code. Storm's design leaves the rest open. Here nothing is deleted because it is absent
somewhere, and code that no candidate can give stops one job, never the election (`quarantined_jobs`).

Time is the candidate's own monotonic clock in milliseconds. A view is changed only by the functions that fold in what
has happened; `plan` returns what is to be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from standby.shared.peers import BundleSource

#: A candidate waits for the code of an active job this many sync times while no live candidate holds it,
GONE_SYNCS: Final = 2

#: and this many while some candidate claims to hold it but does not give it: two candidates that are cut off from each
#: other, with half the code each, would otherwise decline for ever.
UNREACHABLE_SYNCS: Final = 10

#: Number of former holders of a bundle that are remembered: a candidate that restarts repeatedly adds one each time.
_DEPARTED: Final = 8

#: Used in place of bundles while ZooKeeper has not been read yet.
UNKNOWN: Final = "the list of active jobs, which has not been read yet"


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """What a job requires of the candidates, according to its record."""

    job: str
    run: str
    revision: int
    code: str
    """Bundle of the present revision; empty: a job of an earlier release, whose application ships its modules."""
    activated: int = 0
    """Highest revision that was activated; 0: none yet."""
    former: Mapping[int, str] = field(default_factory=dict)
    """Earlier revision → its bundle: containers may run it, and a rollback may return to the latest."""
    minimum: int = 1
    """``code.min.replication.count``"""
    wait_ms: int | None = 60_000
    """``code.max.replication.wait.seconds``; None: for ever."""

    @property
    def active_code(self) -> str:
        """The bundle that containers started now load; empty if there is none."""
        if not self.code or self.activated >= self.revision:
            return self.code
        former = [each for each, code in self.former.items() if not code or each <= self.activated]
        return self.former[max(former)] if former else ""

    @property
    def is_waiting(self) -> bool:
        """Whether the present revision is not active yet."""
        return bool(self.code) and self.activated < self.revision

    @property
    def codes(self) -> frozenset[str]:
        """Every bundle that the job names."""
        return frozenset(each for each in (self.code, *self.former.values()) if each)


@dataclass(frozen=True, slots=True)
class Directory:
    """What ZooKeeper contains: candidates, holders of bundles, jobs, and deleted bundles."""

    candidates: frozenset[str] = frozenset()
    sources: Mapping[str, tuple[BundleSource, ...]] = field(default_factory=dict)
    """Bundle → the candidates registered as its holders. A dead source may still be registered."""
    jobs: tuple[JobNeeds, ...] = ()
    deleted: Mapping[str, int] = field(default_factory=dict)
    """Bundle with a tombstone → version of its node."""

    def live(self, bundle: str) -> tuple[BundleSource, ...]:
        """Return the live candidates that hold a bundle."""
        return tuple(each for each in self.sources.get(bundle, ()) if each.candidate in self.candidates)


@dataclass(frozen=True, slots=True)
class CodeTrouble:
    """A problem with a job's code, and since when this candidate has seen it."""

    why: str
    """Without figures that change by themselves."""
    since_ms: int


@dataclass(frozen=True, slots=True)
class BundleFailures:
    """Repeated failures with a bundle."""

    count: int
    at_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class CodeView:
    """What one candidate knows about code."""

    me: str
    sync_ms: int
    """How often a missing bundle is requested again; a job whose code is missing for a few of these is quarantined."""
    delete_delay_ms: int
    now_ms: int = 0
    directory: Directory | None = None
    """None: not read yet."""
    leads: bool = False
    held: frozenset[str] = frozenset()
    """Bundles on this candidate's disk, complete and checked."""
    published: frozenset[str] = frozenset()
    fetching: frozenset[str] = frozenset()
    publishing: frozenset[str] = frozenset()
    failures: Mapping[str, BundleFailures] = field(default_factory=dict)
    departed: Mapping[str, tuple[BundleSource, ...]] = field(default_factory=dict)
    """Bundle → sources that are no longer in ZooKeeper; their processes may still exist and give it."""
    lacked_since: Mapping[str, int] = field(default_factory=dict)
    """Bundle that this candidate lacks → since when."""
    gone_since: Mapping[str, int] = field(default_factory=dict)
    """Bundle that no live candidate holds → since when."""
    deleted_since: Mapping[str, int] = field(default_factory=dict)
    """Bundle with a tombstone → when this candidate first saw it, so that clocks of two hosts are never compared."""
    unnamed_since: Mapping[str, int] = field(default_factory=dict)
    """Undeleted bundle that no job names → since when, or when it was uploaded here again."""
    reviving: frozenset[str] = frozenset()
    """Deleted bundles that were uploaded here again; their tombstones are to be removed."""
    waiting_since: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    """Job, run and revision that is not active yet → since when."""


# ---- what has happened ----


def learned(view: CodeView, directory: Directory, now_ms: int) -> CodeView:
    """Return the view after ZooKeeper was read."""
    before = view.directory or Directory()
    departed: dict[str, tuple[BundleSource, ...]] = {}
    for bundle in {*view.departed, *before.sources}:
        present = directory.sources.get(bundle, ())
        was = (*before.sources.get(bundle, ()), *view.departed.get(bundle, ()))
        gone = tuple(dict.fromkeys(each for each in was if each not in present and each.candidate != view.me))
        if gone:
            departed[bundle] = gone[:_DEPARTED]
    reviving = view.reviving & directory.deleted.keys()
    return ticked(replace(view, directory=directory, departed=departed, reviving=reviving), now_ms)


def led(view: CodeView, leads: bool) -> CodeView:
    """Return the view after this candidate became leader or stopped leading; a new leader starts its waits again."""
    return ticked(replace(view, leads=leads, waiting_since={}), view.now_ms)


def got(view: CodeView, bundle: str, now_ms: int) -> CodeView:
    """Return the view after a bundle was stored on disk, fetched or uploaded."""
    failures = {each: failure for each, failure in view.failures.items() if each != bundle}
    fetching = view.fetching - {bundle}
    return ticked(replace(view, held=view.held | {bundle}, fetching=fetching, failures=failures), now_ms)


def uploaded(view: CodeView, bundle: str, now_ms: int) -> CodeView:
    """Return the view after a client uploaded a bundle: it is wanted from now on, whatever its former state."""
    is_deleted = view.directory is None or bundle in view.directory.deleted
    reviving = view.reviving | {bundle} if is_deleted else view.reviving
    unnamed = {each: since for each, since in view.unnamed_since.items() if each != bundle}
    return got(replace(view, reviving=reviving, unnamed_since=unnamed), bundle, now_ms)


def published(view: CodeView, bundle: str, now_ms: int) -> CodeView:
    """Return the view after the distributor accepted a bundle."""
    publishing = view.publishing - {bundle}
    failures = {each: failure for each, failure in view.failures.items() if each != bundle}
    return ticked(
        replace(view, published=view.published | {bundle}, publishing=publishing, failures=failures), now_ms
    )


def failed(view: CodeView, bundle: str, why: str, now_ms: int) -> CodeView:
    """Return the view after a bundle could not be fetched, published or deleted."""
    known = view.failures.get(bundle)
    failure = BundleFailures(known.count + 1 if known is not None else 1, now_ms, why)
    return ticked(
        replace(
            view,
            fetching=view.fetching - {bundle},
            publishing=view.publishing - {bundle},
            failures={**view.failures, bundle: failure},
        ),
        now_ms,
    )


def dropped(view: CodeView, bundle: str) -> CodeView:
    """Return the view after a bundle was removed from the disk."""
    return replace(view, held=view.held - {bundle}, published=view.published - {bundle})


def ticked(view: CodeView, now_ms: int) -> CodeView:
    """Return the view at ``now_ms``, with the beginning of each state that lasts."""
    directory = view.directory
    if directory is None:
        return replace(view, now_ms=now_ms)

    def since(known: Mapping[str, int], present: frozenset[str]) -> dict[str, int]:
        return {each: known.get(each, now_ms) for each in present}

    wanted = wanted_bundles(view)
    gone = frozenset(each for each in wanted if not directory.live(each))
    waiting = [(each.job, each.run, each.revision) for each in directory.jobs if each.is_waiting]
    unnamed = frozenset(directory.sources) - named_bundles(directory) - directory.deleted.keys()
    return replace(
        view,
        now_ms=now_ms,
        lacked_since=since(view.lacked_since, wanted - view.held),
        gone_since=since(view.gone_since, gone),
        deleted_since=since(view.deleted_since, frozenset(directory.deleted)),
        unnamed_since=since(view.unnamed_since, unnamed),
        waiting_since={each: view.waiting_since.get(each, now_ms) for each in waiting},
    )


# ---- what follows from it ----


def named_bundles(directory: Directory) -> frozenset[str]:
    """Return every bundle that some job names, in any revision."""
    return frozenset(code for each in directory.jobs for code in each.codes)


def wanted_bundles(view: CodeView) -> frozenset[str]:
    """Return every bundle that each candidate should hold: those that jobs name, and undeleted ones in the directory.

    Because of the latter, a bundle is distributed before its job is recorded.
    """
    if view.directory is None:
        return frozenset()
    named = named_bundles(view.directory)
    return frozenset({*named, *view.directory.sources} - (view.directory.deleted.keys() - named))


def required(view: CodeView) -> Mapping[str, str]:
    """Return the bundle of every active job that has one: job → bundle."""
    if view.directory is None:
        return {}
    return {each.job: each.active_code for each in view.directory.jobs if each.active_code}


def quarantined_jobs(view: CodeView) -> Mapping[str, CodeTrouble]:
    """Return the jobs that this candidate has quarantined, and why.

    Each candidate decides this by itself, by what it sees and its own clock: a quarantine that a leader had to declare
    would need a leader, which no candidate may become.
    """
    found: dict[str, CodeTrouble] = {}
    for job, bundle in required(view).items():
        if bundle in view.held:
            continue
        gone_ms = view.gone_since.get(bundle, view.now_ms)
        lacked_ms = view.lacked_since.get(bundle, view.now_ms)
        if bundle in view.gone_since and view.now_ms - gone_ms >= GONE_SYNCS * view.sync_ms:
            found[job] = CodeTrouble(f"no live candidate holds its code {bundle}", gone_ms)
        elif view.now_ms - lacked_ms >= UNREACHABLE_SYNCS * view.sync_ms:
            why = view.failures[bundle].why if bundle in view.failures else "no answer"
            found[job] = CodeTrouble(f"its code {bundle} cannot be fetched: {why}", lacked_ms)
    return found


def code_troubles(view: CodeView) -> Mapping[str, CodeTrouble]:
    """Return the jobs whose present revision is not active yet, and what it waits for."""
    if view.directory is None:
        return {}
    return {
        each.job: CodeTrouble(readiness(view, each)[1], _waiting_since(view, each))
        for each in view.directory.jobs
        if each.is_waiting
    }


def missing(view: CodeView) -> tuple[str, ...]:
    """Return the bundles without which this candidate may not lead; empty: it may."""
    if view.directory is None:
        return (UNKNOWN,)
    aside = quarantined_jobs(view)
    lacked = {code for job, code in required(view).items() if code not in view.held and job not in aside}
    return tuple(sorted(lacked))


def sources(view: CodeView, bundle: str) -> tuple[BundleSource, ...]:
    """Return the possible sources of a bundle, best first: live ones, those no longer candidates, departed ones.

    The order rotates with each failure, so that one bad source does not always come first.
    """
    if view.directory is None:
        return ()
    known = [each for each in view.directory.sources.get(bundle, ()) if each.candidate != view.me]
    live = sorted(each for each in known if each.candidate in view.directory.candidates)
    others = sorted(each for each in known if each.candidate not in view.directory.candidates)
    turn = view.failures[bundle].count % len(live) if live and bundle in view.failures else 0
    return (*live[turn:], *live[:turn], *others, *view.departed.get(bundle, ()))


def readiness(view: CodeView, needs: JobNeeds) -> tuple[bool, str]:
    """Return whether a job's present revision may be activated, and how many candidates hold its code, for people.

    Without any source it may not, however long it has waited: containers would find nothing to load.
    """
    assert view.directory is not None
    count = len(view.directory.live(needs.code))
    waited_ms = view.now_ms - _waiting_since(view, needs)
    said = f"{count} of {needs.minimum} candidates hold its code"
    if count >= needs.minimum:
        return True, said
    if needs.wait_ms is None:
        return False, f"waiting until {needs.minimum} candidates hold its code; {count} do"
    if count and waited_ms >= needs.wait_ms:
        return True, f"{said} after {needs.wait_ms // 1000} s"
    return False, f"waiting until {needs.minimum} candidates hold its code; {count} do"


def _waiting_since(view: CodeView, needs: JobNeeds) -> int:
    return view.waiting_since.get((needs.job, needs.run, needs.revision), view.now_ms)
