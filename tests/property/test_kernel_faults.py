"""Whatever goes wrong, and in whatever order: two containers, one job, and exactly-once at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standby.kernel import probes
from tests.examples import examples
from tests.kernel_faults import (
    COMMITS,
    ENDS,
    ERRORS,
    FAULTS,
    FEED_ERRORS,
    FEED_POINTS,
    IN_A_BATCH,
    IN_A_COMMIT,
    IN_THE_REPLAY,
    ON_THE_WAY,
    PAUSES,
    QUESTIONS,
    WRITES,
    Crash,
    Damage,
    Fault,
    LeftOut,
    Lost,
    Mine,
    Outcomes,
    Unanswered,
    World,
)
from tests.kernel_play import Play, playing
from tests.memory_lab import JOB

#: Every point of the kernel.
POINTS: Final = tuple(point for name, point in vars(probes).items() if name.isupper())

worlds: Final = st.builds(
    World,
    inputs=st.sampled_from(["in", "in,also"]),
    tasks=st.sampled_from([2, 3]),
    outputs=st.sampled_from([0, 2]),
    on_error=st.sampled_from(["fail", "skip"]),
)

lost: Final = st.builds(Lost, st.sampled_from(WRITES), st.integers(1, 4))

faults: Final[st.SearchStrategy[Fault]] = st.one_of(
    st.sampled_from(FAULTS),
    st.sampled_from(PAUSES),
    lost,
    st.builds(Unanswered, st.sampled_from(QUESTIONS), st.integers(1, 3)),
    st.builds(Crash, st.booleans(), st.integers(0, 4)),
    st.builds(
        Damage, st.sampled_from(["changelog", "in"]), st.integers(0, 2), st.integers(0, 9), st.integers(1, 3)
    ),
)

mines: Final[st.SearchStrategy[Fault]] = st.one_of(
    st.builds(Mine, st.sampled_from(POINTS), st.sampled_from(ERRORS)),
    st.builds(Mine, st.sampled_from(FEED_POINTS), st.sampled_from(FEED_ERRORS)),
)

left_out: Final[st.SearchStrategy[Fault]] = st.builds(
    LeftOut,
    st.integers(0, 2),
    st.frozensets(st.sampled_from(["changelog", "offsets", "out-0", "out-1"]), min_size=1),
    st.none() | lost,
    st.booleans(),
)


#: Faults that chance seldom brings together: each kind once, and what has to come of it beside exactness.
PLAYS: Final[dict[str, tuple[World, list[Fault], Callable[[Play], object]]]] = {
    "one of a container's tasks goes": (
        World(tasks=3, outputs=2),
        ["get on", "hand over one task", "get on"],
        lambda play: len({*play.copies.values()}) == 2,
    ),
    "a former active gets no order": (
        World(),
        ["get on", "hand over unannounced", "step down"],
        lambda play: play.stepped_down == {0},
    ),
    "a shared output lacks a marker": (
        World(outputs=2, may_lose=True),
        ["get on", LeftOut(0, frozenset({"out-1"}), Lost("before_commit")), "get on", "a moment", "get on"],
        lambda play: play.has_lost,
    ),
    "an abort lacks a marker in a shared output": (
        World(outputs=2, may_lose=True),
        ["get on", LeftOut(0, frozenset({"out-1"}), Lost("before_commit"), is_behind=False), "get on"],
        lambda play: play.lab.kafka.sweeps and not play.has_lost,
    ),
    "where the changelog ends is not answered": (
        World(),
        ["get on", Unanswered("changelog_ends", 1), "a moment", "hand over"],
        lambda play: play.lab.kafka.timed_out["changelog_ends"] == 1,
    ),
    "the second container ends before it is known of the first": (
        World(),
        ["get on", Crash(is_active=False, lost=3), Crash(is_active=True, lost=0)],
        lambda play: len(play.feeds) == 4,
    ),
    "a batch of the changelog is damaged": (
        World(),
        ["get on", Damage("changelog", 0, 0, 3), "get on"],
        lambda play: ("changelog", 0) in play.lab.kafka.damage_met,
    ),
    "a batch of the input is damaged": (
        World(on_error="fail"),
        ["get on", Damage("in", 0, 0, 2), "get on"],
        lambda play: ("in", 0) in play.lab.kafka.damage_met and not play.left_out,
    ),
    "a batch of the input is damaged and left out": (
        World(on_error="skip"),
        ["get on", Damage("in", 0, 0, 2), "get on"],
        lambda play: len(play.left_out) == 2,
    ),
}


@pytest.mark.parametrize("name", PLAYS)
def test_exact_after_faults_that_seldom_meet(name: str) -> None:
    world, faults, has_come = PLAYS[name]
    assert has_come(play_through(faults, world))


@given(st.lists(faults, min_size=2, max_size=9), worlds)
@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_lost_or_counted_twice_after_any_faults(faults: list[Fault], world: World) -> None:
    explore(faults, world)


#: A point, how the names of the threads begin that meet the error there, and what comes of each error but an end.
PLACES: Final[tuple[tuple[str, str, Outcomes], ...]] = (
    *((each, "replica-", ON_THE_WAY) for each in POINTS if each.startswith("takeover")),
    *((each, "commit-", IN_A_COMMIT) for each in (*COMMITS, *POINTS) if "commit" in each.partition(":")[0]),
    *((each, "", IN_A_BATCH) for each in POINTS if each.startswith("batch")),
    # It is committed, so there is no going on without the store.
    (probes.STORE_BATCH, "commit-", {}),
    (probes.STORE_BATCH, f"{JOB}-", IN_THE_REPLAY),
    (probes.REPLAYED, f"{JOB}-", IN_THE_REPLAY),
)


@pytest.mark.parametrize(
    ("point", "thread", "comes"), PLACES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_exact_after_an_error_of_any_kind_at_any_point(point: str, thread: str, comes: Outcomes) -> None:
    """First without a decision, which would hide what comes of it; then beside a hand-over."""
    hand_overs = itertools.cycle(("hand over", "hand over unannounced"))
    with playing(World()) as play:
        for error, hand_over in zip(ERRORS, hand_overs, strict=False):
            play.await_whole()
            opened, mine = len(play.lab.disk.profiles), Mine(point, error, thread)
            play.suffer(mine)
            if point.startswith("takeover"):
                play.suffer("hand over")
            play.await_outcome(mine, comes.get(error, ENDS), opened)
            play.decide()
            play.await_whole()
            play.suffer(Mine(point, error))
            play.suffer(hand_over)
            play.active.eventually(lambda: not play.mines or play.is_committed())
            if play.mines:
                # The next active was at the end already, and a former one without an order replays nothing.
                play.suffer("claim again")
                play.active.eventually(lambda: not play.mines)
            play.decide()


def test_every_point_is_a_place() -> None:
    assert {each for each, _, _ in PLACES} == {*POINTS, *COMMITS}


@given(st.lists(st.one_of(faults, mines), min_size=2, max_size=9), worlds)
@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow])
def test_exact_after_errors_anywhere_among_other_faults(faults: list[Fault], world: World) -> None:
    explore(faults, world)


@given(st.lists(st.one_of(left_out, left_out, faults, mines), min_size=2, max_size=9), worlds)
@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow])
def test_what_is_lost_of_markers_that_are_left_out_is_reported(faults: list[Fault], world: World) -> None:
    explore(faults, replace(world, may_lose=True))


def explore(faults: list[Fault], world: World) -> None:
    play = play_through(faults, world)
    if play.has_lost:
        hypothesis.event("something was lost, and reported")


def play_through(faults: list[Fault], world: World) -> Play:
    with playing(world) as play:
        # In the end what the standbys have shows in what they make of more input.
        for fault in (*faults, "get on", "rest", "hand over"):
            play.suffer(fault)
    return play
