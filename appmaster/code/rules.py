"""Which code a candidate lacks, where it gets it, whether it may lead, what may go. Pure.

From Storm's highly available Nimbus: the list of active jobs in ZooKeeper is the authority for the code that a
leader must hold; who lacks any of it declines, fetches it and stands again; a job becomes active only when enough
candidates hold its code. What Storm's design leaves open is decided here: nothing is deleted because it is absent
somewhere, and code that nobody can give stops one job, never the election (`set_aside`).

Time is the candidate's own monotonic clock in milliseconds. A view is changed by the functions that say what has
happened, and by nothing else; `plan` says what is to be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from standby.shared.peers import BundleSource

#: Who waits for the code of an active job waits so many sync times while no live candidate holds it,
GONE_SYNCS: Final = 2

#: and so many while somebody says that it holds it, but does not give it: cut off from each other, with half the
#: code each, candidates would decline for ever.
UNREACHABLE_SYNCS: Final = 10

#: So many of those that held a bundle are remembered: a candidate that is started again and again leaves one each time.
_DEPARTED: Final = 8

#: Instead of bundles, while ZooKeeper has not been read yet.
UNKNOWN: Final = "the list of active jobs, which has not been read yet"


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """What a job asks of the candidates, from its record."""

    job: str
    revision: int
    code: str
    """Bundle of the present revision; empty: it has none, YARN localises its modules."""
    activated: int = 0
    """Highest revision that was activated; 0: none yet."""
    former: Mapping[int, str] = field(default_factory=dict)
    """Earlier revision → its bundle: containers may run it, and the latest can be returned to."""
    minimum: int = 1
    """``code.min.replication.count``"""
    wait_ms: int | None = 60_000
    """``code.max.replication.wait.seconds``; None: for ever."""

    @property
    def active_code(self) -> str:
        """The bundle that containers started now load; empty when there is none."""
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
    """What ZooKeeper says: who is there, who holds what, which jobs there are, what was deleted."""

    candidates: frozenset[str] = frozenset()
    sources: Mapping[str, tuple[BundleSource, ...]] = field(default_factory=dict)
    """Bundle → who says that it holds it. The registration of a dead source may not have ended yet."""
    jobs: tuple[JobNeeds, ...] = ()
    deleted: Mapping[str, int] = field(default_factory=dict)
    """Bundle with a tombstone → version of the node that says so."""

    def live(self, bundle: str) -> tuple[BundleSource, ...]:
        """Return the live candidates that hold a bundle."""
        return tuple(each for each in self.sources.get(bundle, ()) if each.candidate in self.candidates)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is in the way of a job's code, and since when as this candidate has seen it."""

    why: str
    """Without figures that change by themselves."""
    since_ms: int


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed with a bundle, one time after the other."""

    count: int
    at_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class CodeView:
    """What one candidate knows about code."""

    me: str
    sync_ms: int
    """How often a bundle that is lacked is asked for anew; what cannot be had in a few of these is quarantined."""
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
    failures: Mapping[str, Failure] = field(default_factory=dict)
    departed: Mapping[str, tuple[BundleSource, ...]] = field(default_factory=dict)
    """Bundle → sources that ZooKeeper has no longer: the process may still be there and give it."""
    lacked_since: Mapping[str, int] = field(default_factory=dict)
    """Bundle that is lacked here → since when."""
    gone_since: Mapping[str, int] = field(default_factory=dict)
    """Bundle that no live candidate holds → since when."""
    deleted_since: Mapping[str, int] = field(default_factory=dict)
    """Bundle with a tombstone → when it was first seen here, so that no two hosts' clocks are compared."""
    unnamed_since: Mapping[str, int] = field(default_factory=dict)
    """Bundle that no job names, undeleted → since when, or when it was uploaded here again."""
    reviving: frozenset[str] = frozenset()
    """Deleted bundles that were uploaded here again: their tombstones are to go."""
    waiting_since: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Job and revision that is not active yet → since when."""


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
    return _timed(replace(view, directory=directory, departed=departed, reviving=reviving), now_ms)


def ticked(view: CodeView, now_ms: int) -> CodeView:
    """Return the view after time has passed."""
    return _timed(view, now_ms)


def led(view: CodeView, leads: bool) -> CodeView:
    """Return the view after this candidate became leader, or stopped being it: a new leader waits anew."""
    return _timed(replace(view, leads=leads, waiting_since={}), view.now_ms)


def got(view: CodeView, bundle: str, now_ms: int) -> CodeView:
    """Return the view after a bundle came to lie on the disk, fetched or uploaded."""
    failures = {each: failure for each, failure in view.failures.items() if each != bundle}
    fetching = view.fetching - {bundle}
    return _timed(replace(view, held=view.held | {bundle}, fetching=fetching, failures=failures), now_ms)


def uploaded(view: CodeView, bundle: str, now_ms: int) -> CodeView:
    """Return the view after somebody brought a bundle: it is wanted from now on, whatever was before."""
    is_deleted = view.directory is None or bundle in view.directory.deleted
    reviving = view.reviving | {bundle} if is_deleted else view.reviving
    unnamed = {each: since for each, since in view.unnamed_since.items() if each != bundle}
    return got(replace(view, reviving=reviving, unnamed_since=unnamed), bundle, now_ms)


def published(view: CodeView, bundle: str, now_ms: int) -> CodeView:
    """Return the view after the distributor took a bundle."""
    publishing = view.publishing - {bundle}
    failures = {each: failure for each, failure in view.failures.items() if each != bundle}
    return _timed(
        replace(view, published=view.published | {bundle}, publishing=publishing, failures=failures), now_ms
    )


def failed(view: CodeView, bundle: str, why: str, now_ms: int) -> CodeView:
    """Return the view after nobody gave a bundle, the distributor did not take it, or it could not be deleted."""
    known = view.failures.get(bundle)
    failure = Failure(known.count + 1 if known is not None else 1, now_ms, why)
    return _timed(
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


def _timed(view: CodeView, now_ms: int) -> CodeView:
    """Return the view at ``now_ms``, with the begin of each state that lasts."""
    directory = view.directory
    if directory is None:
        return replace(view, now_ms=now_ms)

    def since(known: Mapping[str, int], present: frozenset[str]) -> dict[str, int]:
        return {each: known.get(each, now_ms) for each in present}

    wanted = wanted_bundles(view)
    gone = frozenset(each for each in wanted if not directory.live(each))
    waiting = [(each.job, each.revision) for each in directory.jobs if each.is_waiting]
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
    """Return every bundle that some job names, in whichever revision."""
    return frozenset(code for each in directory.jobs for code in each.codes)


def wanted_bundles(view: CodeView) -> frozenset[str]:
    """Return every bundle that each candidate is to hold: what jobs name, and what is in the directory undeleted.

    The second part has a bundle spread before the job that it is for is recorded.
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


def set_aside(view: CodeView) -> Mapping[str, Trouble]:
    """Return the jobs that are quarantined by this candidate, and why.

    Each candidate decides for itself, by what it sees and its own clock: a quarantine that a leader had to
    declare would need a leader that nobody may become.
    """
    found: dict[str, Trouble] = {}
    for job, bundle in required(view).items():
        if bundle in view.held:
            continue
        gone_ms = view.gone_since.get(bundle, view.now_ms)
        lacked_ms = view.lacked_since.get(bundle, view.now_ms)
        if bundle in view.gone_since and view.now_ms - gone_ms >= GONE_SYNCS * view.sync_ms:
            found[job] = Trouble(f"no live candidate holds its code {bundle}", gone_ms)
        elif view.now_ms - lacked_ms >= UNREACHABLE_SYNCS * view.sync_ms:
            why = view.failures[bundle].why if bundle in view.failures else "no answer"
            found[job] = Trouble(f"its code {bundle} cannot be fetched: {why}", lacked_ms)
    return found


def held_up(view: CodeView) -> Mapping[str, Trouble]:
    """Return the jobs whose present revision is not active yet, and what it waits for."""
    if view.directory is None:
        return {}
    return {
        each.job: Trouble(readiness(view, each)[1], _waiting_since(view, each))
        for each in view.directory.jobs
        if each.is_waiting
    }


def missing(view: CodeView) -> tuple[str, ...]:
    """Return the bundles without which this candidate may not lead; empty: it may."""
    if view.directory is None:
        return (UNKNOWN,)
    aside = set_aside(view)
    lacked = {code for job, code in required(view).items() if code not in view.held and job not in aside}
    return tuple(sorted(lacked))


def sources(view: CodeView, bundle: str) -> tuple[BundleSource, ...]:
    """Return who may give a bundle, best first: live sources, those no longer registered, those that departed.

    The order turns with each failure, so that one bad source does not always come first.
    """
    if view.directory is None:
        return ()
    known = [each for each in view.directory.sources.get(bundle, ()) if each.candidate != view.me]
    live = sorted(each for each in known if each.candidate in view.directory.candidates)
    others = sorted(each for each in known if each.candidate not in view.directory.candidates)
    turn = view.failures[bundle].count % len(live) if live and bundle in view.failures else 0
    return (*live[turn:], *live[:turn], *others, *view.departed.get(bundle, ()))


def readiness(view: CodeView, needs: JobNeeds) -> tuple[bool, str]:
    """Return whether a job's present revision may be activated, and how many hold its code, for people.

    Without any source it is not, however long it waited: containers would find nothing to load.
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
    return view.waiting_since.get((needs.job, needs.revision), view.now_ms)
