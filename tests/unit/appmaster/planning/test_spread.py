"""Where processors are active and could be, and which hand-over comes next towards an even spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from appmaster.planning.placement.spread import Stand, active_processors, next_steps, stands_of
from appmaster.planning.state.reasons import HandoverMotive, Reason
from appmaster.planning.state.view import ClusterView, Handover, Presence
from standby.shared.model import ProcessorId
from tests.unit.appmaster.planning.views import (
    FIRST,
    HELD,
    PARKED,
    PROCESSOR,
    SECOND,
    UNSETTLED,
    Change,
    changed,
    drained,
    free,
    of_holder,
    of_model,
    of_processor,
    of_records,
    of_view,
    placed,
    without_container,
)

# ---- stands ----

Stands = list[tuple[str, Mapping[str, int]]]

#: On h1, and nowhere else.
STILL: Final[Stands] = [("h1", {})]
FREE: Final[Stands] = [("h1", {"h2": 1, "h3": 2})]
TO_H2: Final[Stands] = [("h1", {"h2": 1})]

STANDS: Mapping[str, tuple[Stands, tuple[Change, ...]]] = {
    "where its standbys are": (FREE, ()),
    "none while it is parked": ([], (PARKED,)),
    "none without an active": ([], (of_records(FIRST, SECOND, active=None),)),
    "none while the active is lost": ([], (without_container(0),)),
    "in a mixed job the containers": (
        [("c4", {"c5": 1, "c6": 2})],
        (of_model(is_mixed=True),),
    ),
    "all of its tasks": (FREE, (UNSETTLED,)),
    "its tasks differ": ([("h1", {}), ("h2", {})], (UNSETTLED, of_records(SECOND, active=1))),
    "a hand-over is prepared": (
        STILL,
        (of_view(handovers={PROCESSOR: Handover(1, HELD[1], 0, Reason(HandoverMotive.ASKED))}),),
    ),
    "a record is being written": (STILL, (UNSETTLED, of_view(writing={SECOND: "1-9"}))),
    "a copy moves": (STILL, (UNSETTLED, of_records(SECOND, moving={1: "c9"}))),
    "a copy is displaced": (STILL, (UNSETTLED, of_records(SECOND, displaced=2))),
    "an operator chose the active": (STILL, (UNSETTLED, of_records(SECOND, is_chosen=True))),
    "no copy that the model has no slot for": (TO_H2, (of_processor(copies=(0, 1)),)),
    "no copy that is lost": (TO_H2, (without_container(2),)),
    "no copy that may be lost": (TO_H2, (of_holder(2, presence=Presence.BROKEN),)),
    "no copy that has to leave": (TO_H2, (drained("h3"),)),
    "no copy that is not in sync": (TO_H2, (UNSETTLED, of_records(SECOND, in_sync=(0, 1)))),
    "no copy that is elsewhere for another task": (
        TO_H2,
        (UNSETTLED, free("c9", "h3"), placed({2: "c9"}, of=(SECOND,))),
    ),
}


@pytest.mark.parametrize(("stands", "changes"), STANDS.values(), ids=STANDS)
def test_where_a_processor_is_active_and_could_be(
    whole: ClusterView, stands: Stands, changes: tuple[Change, ...]
) -> None:
    assert found(whole, *changes) == stands


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        pytest.param((of_records(FIRST, SECOND, is_chosen=True),), FREE, id="an operator chose the active"),
        pytest.param((of_records(FIRST, SECOND, displaced=2),), STILL, id="a copy is displaced"),
    ],
)
def test_a_command_moves_actives_that_an_operator_chose_as_well(
    whole: ClusterView, changes: tuple[Change, ...], stands: Stands
) -> None:
    assert found(whole, *changes, is_asked=True) == stands


def found(view: ClusterView, *changes: Change, **asked: bool) -> Stands:
    view = changed(view, *changes)
    return [(each.place, each.options) for each in stands_of(view, view.jobs["job"], **asked)]


ACTIVE: Mapping[str, tuple[Mapping[str, int], tuple[Change, ...]]] = {
    "all tasks together": ({"h1": 1, "h2": 0, "h3": 0}, (UNSETTLED,)),
    "tasks that differ": ({"h1": 1, "h2": 1, "h3": 0}, (UNSETTLED, of_records(SECOND, active=1))),
    "not where a container is lost": ({"h1": 1, "h3": 0}, (without_container(1),)),
    "not where the host is not known": ({"h1": 1, "h3": 0}, (of_holder(1, host=""),)),
    "a job without records": ({}, (of_view(records={}),)),
}


@pytest.mark.parametrize(("actives", "changes"), ACTIVE.values(), ids=ACTIVE)
def test_how_many_processors_are_active_on_each_host_with_copies(
    whole: ClusterView, actives: Mapping[str, int], changes: tuple[Change, ...]
) -> None:
    view = changed(whole, *changes)
    assert dict(active_processors(view, view.jobs["job"])) == actives


# ---- the next hand-over ----

Graph = Mapping[str, tuple[int, Sequence[str]]]


def stands_in(graph: Graph) -> list[Stand]:
    """Return stands for a graph: place → how many actives, and the places where one each of them could be."""
    places = [
        (place, targets[each : each + 1])
        for place, (count, targets) in graph.items()
        for each in range(max(count, len(targets)))
    ]
    return [
        Stand(ProcessorId("job", "main", number), place, dict.fromkeys(targets, 1))
        for number, (place, targets) in enumerate(places)
    ]


STEPS: Mapping[str, tuple[list[str], Graph]] = {
    "to a place with two less": (["ab"], {"a": (2, "b")}),
    "not to one with one less": ([], {"a": (1, "b")}),
    "the largest difference first": (["yz", "cd"], {"c": (2, "d"), "y": (5, "z"), "z": (2, "")}),
    "the last step of a path": (["bc"], {"a": (2, "b"), "b": (1, "c")}),
    "of a longer path": (["cd"], {"a": (2, "b"), "b": (1, "c"), "c": (1, "d")}),
    "not of a path that only goes down one": ([], {"a": (2, ""), "b": (1, "c")}),
    "not of a path that goes round": ([], {"a": (2, "b"), "b": (1, "c"), "c": (1, "b")}),
    "of equally short paths": (
        ["bc", "ef"],
        {"a": (2, "b"), "b": (1, "c"), "d": (3, "e"), "e": (2, "f"), "f": (1, "")},
    ),
    "of the shortest path, of fewer actives": (
        ["bc"],
        {"a": (2, "b"), "b": (1, "c"), "d": (3, "e"), "e": (2, "g"), "g": (2, "f"), "f": (1, "")},
    ),
    "of the shortest path, of more actives": (
        ["ef"],
        {"a": (2, "b"), "b": (1, "g"), "g": (1, "c"), "d": (3, "e"), "e": (2, "f"), "f": (1, "")},
    ),
}


@pytest.mark.parametrize(("steps", "graph"), STEPS.values(), ids=STEPS)
def test_which_steps_come_next(steps: list[str], graph: Graph) -> None:
    assert [each.source + each.target for each in next_steps(stands_in(graph))] == steps


CROWDS: Mapping[str, tuple[list[str], Mapping[str, int]]] = {
    "from the place with the most": (["cd", "ab"], {"c": 3}),
    "to the place with the fewest": (["cd", "ab"], {"b": 3}),
    "the difference counts": (["ab", "cd"], {"a": 1, "c": 3, "d": 3}),
    "none are the same as unknown ones": (["ab", "cd"], {"a": 0, "b": 0}),
    "unknown ones are the same as none": (["ab", "cd"], {"c": 0, "d": 0}),
}


@pytest.mark.parametrize(("steps", "crowd"), CROWDS.values(), ids=CROWDS)
def test_actives_of_other_jobs_decide_between_equal_steps(steps: list[str], crowd: Mapping[str, int]) -> None:
    stands = stands_in({"a": (2, "b"), "c": (2, "d")})
    assert [each.source + each.target for each in next_steps(stands, crowd)] == steps


def test_processors_that_could_make_the_same_step_come_in_order() -> None:
    stands = stands_in({"a": (2, "bb")})
    assert [each.processor.number for each in next_steps(stands[::-1])] == [0, 1]
