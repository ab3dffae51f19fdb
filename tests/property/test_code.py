"""The rules of code on any distribution of it: safety of leading, and that somebody may lead after bounded time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
from hypothesis import given, settings

from appmaster.code import rules
from appmaster.code.rules import CodeView, Directory, JobNeeds
from appmaster.code.steps import (
    Activate,
    Announce,
    Bury,
    CodeStep,
    Condemn,
    Fetch,
    Publish,
    Remove,
    Revive,
    began,
    plan,
)
from standby.shared.peers import BundleSource
from tests.examples import examples

PROPERTY = settings(max_examples=examples(150))

SYNC_MS = 30_000
DELAY_MS = 100_000
CANDIDATES = ("a", "b", "c")
BUNDLES = ("b1", "b2", "b3", "b4")
STEP_MS = 5_000


def source(name: str) -> BundleSource:
    return BundleSource(name, f"host-{name}", 1)


@dataclass
class World:
    """Candidates that obey their plans against one directory; `reaches` says which can fetch from which."""

    views: dict[str, CodeView]
    jobs: dict[str, JobNeeds]
    reaches: frozenset[tuple[str, str]]
    origin: frozenset[str] = frozenset()
    """Bundles in the cluster's file system."""
    deleted: dict[str, int] = field(default_factory=dict)
    announced: dict[str, set[str]] = field(default_factory=dict)
    now_ms: int = 0
    leader: str = ""

    def directory(self) -> Directory:
        return Directory(
            frozenset(self.views),
            {
                bundle: tuple(source(each) for each in sorted(names))
                for bundle, names in self.announced.items()
            },
            tuple(self.jobs.values()),
            dict(self.deleted),
        )

    def turn(self, pass_ms: int = STEP_MS) -> None:
        self.now_ms += pass_ms
        for name in sorted(self.views):
            self.views[name] = rules.learned(self.views[name], self.directory(), self.now_ms)
            for step in plan(self.views[name]):
                self.obey(name, step)

    def obey(self, name: str, step: CodeStep) -> None:
        view = self.views[name]
        match step:
            case Announce(bundle):
                self.announced.setdefault(bundle, set()).add(name)
            case Fetch(bundle, sources):
                view = began(view, step)
                given = any(
                    each.candidate in self.views
                    and bundle in self.views[each.candidate].held
                    and (name, each.candidate) in self.reaches
                    for each in sources
                )
                if given or bundle in self.origin:
                    view = rules.got(view, bundle, self.now_ms)
                else:
                    view = rules.failed(view, bundle, "no candidate gives it", self.now_ms)
            case Publish(bundle):
                view = rules.published(began(view, step), bundle, self.now_ms)
            case Revive(bundle):
                self.deleted.pop(bundle, None)
            case Condemn(bundle):
                assert name == self.leader, "a candidate that does not lead condemns nothing"
                if all(bundle not in each.codes for each in self.jobs.values()):
                    self.deleted[bundle] = 1
            case Remove(bundle):
                assert bundle in self.deleted, "removed without a tombstone"
                assert all(bundle not in each.codes for each in self.jobs.values()), "a job names it"
                self.announced[bundle].discard(name)
                view = rules.dropped(view, bundle)
            case Bury(bundle, _):
                assert not self.announced.get(bundle)
                self.announced.pop(bundle, None)
                self.deleted.pop(bundle, None)
            case Activate(job, _, revision, _):
                assert self.announced.get(self.jobs[job].code), "no candidate holds what is activated"
                self.jobs[job] = replace(self.jobs[job], activated=revision)
        self.views[name] = view


HELD = st.fixed_dictionaries({each: st.frozensets(st.sampled_from(BUNDLES)) for each in CANDIDATES})
PAIRS = [(one, other) for one in CANDIDATES for other in CANDIDATES if one != other]
ALL = frozenset(PAIRS)
REACHES = st.frozensets(st.sampled_from(PAIRS))
ORIGIN = st.frozensets(st.sampled_from(BUNDLES), max_size=2)
JOBS = st.dictionaries(
    st.sampled_from(("j1", "j2", "j3")), st.tuples(st.sampled_from(BUNDLES), st.booleans()), max_size=3
)


def world(
    held: Mapping[str, frozenset[str]],
    jobs: Mapping[str, tuple[str, bool]],
    reaches: frozenset[tuple[str, str]] = ALL,
    origin: frozenset[str] = frozenset(),
) -> World:
    return World(
        {name: CodeView(name, SYNC_MS, DELAY_MS, held=bundles) for name, bundles in held.items()},
        {
            name: JobNeeds(name, "run1", 1, code, activated=int(active))
            for name, (code, active) in jobs.items()
        },
        reaches,
        origin,
    )


def may_lead(each: World) -> set[str]:
    return {name for name, view in each.views.items() if not rules.missing(view)}


@PROPERTY
@given(held=HELD, jobs=JOBS, origin=ORIGIN)
def test_two_sync_times_are_enough_for_everybody_when_all_reach_each_other(
    held: Mapping[str, frozenset[str]], jobs: Mapping[str, tuple[str, bool]], origin: frozenset[str]
) -> None:
    there = world(held, jobs, origin=origin)
    somewhere = frozenset().union(*held.values(), origin)
    while there.now_ms <= rules.GONE_SYNCS * SYNC_MS + STEP_MS:
        there.turn()
    assert may_lead(there) == set(CANDIDATES)
    active = {name: code for name, (code, is_active) in jobs.items() if is_active}
    for view in there.views.values():
        assert {code for code in active.values() if code in somewhere} <= view.held
        assert set(rules.quarantined_jobs(view)) == {
            job for job, code in active.items() if code not in somewhere
        }


@PROPERTY
@given(held=HELD, jobs=JOBS, reaches=REACHES)
def test_some_candidate_may_lead_in_the_end_whatever_is_cut_off(
    held: Mapping[str, frozenset[str]],
    jobs: Mapping[str, tuple[str, bool]],
    reaches: frozenset[tuple[str, str]],
) -> None:
    there = world(held, jobs, reaches)
    while there.now_ms <= rules.UNREACHABLE_SYNCS * SYNC_MS + STEP_MS:
        there.turn()
        for name, view in there.views.items():
            aside = rules.quarantined_jobs(view)
            if not rules.missing(view):
                lacked = {job for job, code in rules.required(view).items() if code not in view.held}
                assert lacked == set(aside), f"{name} would lead without code that it has not given up"
            for job, code in rules.required(view).items():
                if job in aside:
                    assert there.now_ms >= rules.GONE_SYNCS * SYNC_MS
                    assert code not in view.held
    assert may_lead(there) == set(CANDIDATES)


@PROPERTY
@given(held=HELD, jobs=JOBS, deleted=st.frozensets(st.sampled_from(BUNDLES)), absent=st.integers(0, 2))
def test_nothing_goes_but_what_no_job_names_and_only_long_after_it_was_marked(
    held: Mapping[str, frozenset[str]],
    jobs: Mapping[str, tuple[str, bool]],
    deleted: frozenset[str],
    absent: int,
) -> None:
    """`World.obey` asserts at each removal; here: what is named stays, the rest goes, in its time."""
    there = world(held, jobs)
    there.turn()
    # The jobs that ZooKeeper shows may lack any of them for a while: that is no reason to delete.
    shown, there.jobs = there.jobs, dict(list(there.jobs.items())[absent:])
    for _ in range(3):
        there.turn()
    there.jobs = shown
    named = {code for each in there.jobs.values() for code in each.codes}
    there.deleted = dict.fromkeys(deleted, 1)
    there.leader = "a"
    there.views["a"] = rules.led(there.views["a"], leads=True)
    begun = there.now_ms
    while there.now_ms <= begun + 3 * DELAY_MS:
        there.turn()
        for name, view in there.views.items():
            if there.now_ms - begun < DELAY_MS:
                assert held[name] <= view.held, "gone before the delay"
            if there.now_ms < 2 * DELAY_MS:
                assert held[name] - (deleted - named) <= view.held, "gone before it was marked for long"
            assert held[name] & named <= view.held
    for view in there.views.values():
        assert view.held <= named
    assert there.announced.keys() <= named


@PROPERTY
@given(
    sources=st.integers(0, 3),
    minimum=st.integers(1, 3),
    wait_ms=st.none() | st.integers(0, 60_000),
    waited_ms=st.integers(0, 120_000),
)
def test_a_job_is_activated_by_number_or_by_time_and_never_without_any_holder(
    sources: int, minimum: int, wait_ms: int | None, waited_ms: int
) -> None:
    needs = JobNeeds("j", "run1", 1, "b1", minimum=minimum, wait_ms=wait_ms)
    names = CANDIDATES[:sources]
    directory = Directory(frozenset(CANDIDATES), {"b1": tuple(map(source, (*names, "gone")))}, (needs,))
    view = rules.led(CodeView("a", SYNC_MS, DELAY_MS, held=frozenset({"b1"})), leads=True)
    view = rules.ticked(rules.learned(view, directory, 7), 7 + waited_ms)
    steps = [each for each in plan(view) if isinstance(each, Activate)]
    is_over = wait_ms is not None and waited_ms >= wait_ms
    assert bool(steps) == (sources >= minimum or (is_over and sources > 0))
    if steps:
        assert steps[0].said.startswith(f"{sources} of {minimum} ")
    follower = replace(view, leads=False)
    assert not any(isinstance(each, Activate) for each in plan(follower))
