"""What operators' commands begin, and what they are answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from appmaster.planning.jobs.commands import answers
from appmaster.planning.jobs.models import writes
from appmaster.planning.rules.planned import carry_on, prepare
from appmaster.planning.state.actions import Action, Answer, ForgetHandover, PrepareHandover, WriteModel
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import OnExhausted, PlannerPolicy
from appmaster.planning.state.reasons import FailureReason, HandoverMotive, Reason
from appmaster.planning.state.view import ClusterView, Command, Handover, Operation
from standby.shared.model import ProcessorId, SlotId
from tests.unit.appmaster.planning.views import (
    ON,
    PROCESSORS,
    TASKS,
    Change,
    changed,
    of_job,
    of_model,
    of_records,
    of_view,
    turned,
    without_host,
)

GONE: Final = ProcessorId("job", "main", 9)
OTHER: Final = ProcessorId("other", "main", 0)


def told(view: ClusterView, operation: Operation, *changes: Change, **more: Any) -> list[Action]:
    """Return what a command begins after the changes, and its answer."""
    command = Command(7, operation, **more)
    return [*answers(turned(view, *changes, of_view(commands=(command,))))]


# ---- hand-overs ----


def begun(number: int) -> PrepareHandover:
    """Return the hand-over of a processor to its standby."""
    host = f"h{number + 4}"
    return PrepareHandover(PROCESSORS[number], 1, ON[host], Reason(HandoverMotive.ASKED, "by command"))


def under_way(number: int, motive: HandoverMotive) -> Change:
    return of_view(handovers={PROCESSORS[number]: Handover(1, ON["h4"], 0, Reason(motive))})


P0: Final = "job/main:0"
BEGUN: Final = Answer(7, f"handing over {P0} to copy 1 in {ON['h4']}")
BEING_PREPARED: Final = f"{P0}: a hand-over is being prepared already"
NONE_IN_SYNC: Final = "is in sync, so nothing can take over as planned"


@pytest.mark.parametrize("copy", [None, 1])
def test_a_processor_is_handed_over(three: ClusterView, copy: int | None) -> None:
    found = told(three, Operation.HAND_OVER, processor=PROCESSORS[0], copy=copy)
    assert found == [begun(0), BEGUN]


def test_one_that_spreads_actives_gives_way(three: ClusterView) -> None:
    spreads = under_way(0, HandoverMotive.REBALANCE)
    found = told(three, Operation.HAND_OVER, spreads, processor=PROCESSORS[0])
    forgotten = ForgetHandover(PROCESSORS[0], "a command asks for another one")
    assert found == [forgotten, begun(0), BEGUN]


def test_two_commands_of_one_turn_begin_one_hand_over(three: ClusterView) -> None:
    commands = tuple(
        Command(each, Operation.HAND_OVER, processor=PROCESSORS[0], job="job") for each in (7, 8)
    )
    turn = turned(three, of_view(commands=commands))
    assert list(answers(turn)) == [begun(0), BEGUN, Answer(8, BEING_PREPARED, is_refused=True)]
    cohorts = turn.cohorts(three.jobs["job"], PROCESSORS[0])
    assert cohorts is not None
    assert (carry_on(turn, cohorts), prepare(turn, cohorts)) == (None, None)


@pytest.mark.parametrize("asked", [{"processor": PROCESSORS[0]}, {"container": ON["h1"]}])
def test_nothing_is_answered_while_a_record_is_being_written(
    three: ClusterView, asked: dict[str, Any]
) -> None:
    writing = of_view(writing={TASKS[0][1]: "1-9"})
    assert told(three, Operation.HAND_OVER, writing, **asked) == []


def crowded(view: ClusterView) -> ClusterView:
    """Have the actives of processors 0 and 1, and the standby of processor 2, be in the container on h1."""
    view = of_records(*TASKS[1], placed={0: ON["h1"], 1: ON["h5"]})(view)
    return of_records(*TASKS[2], placed={0: ON["h3"], 1: ON["h1"]})(view)


IN_H1: Mapping[str, tuple[list[int], str, bool, tuple[Change, ...]]] = {
    "all of its actives": (
        [0, 1],
        f"handing over {P0} to copy 1 in {ON['h4']}, job/main:1 to copy 1 in {ON['h5']}",
        False,
        (),
    ),
    "those that can be": (
        [1],
        f"handing over job/main:1 to copy 1 in {ON['h5']}; {P0}: no standby {NONE_IN_SYNC}",
        True,
        (without_host("h4"),),
    ),
    "none of them can be": (
        [],
        f"{P0}: no standby {NONE_IN_SYNC}; job/main:1: no standby {NONE_IN_SYNC}",
        True,
        (without_host("h4"), without_host("h5")),
    ),
    "none is there": ([], "nothing to hand over", False, (of_records(*TASKS[0], *TASKS[1], active=1),)),
    "none is active yet": (
        [],
        "nothing to hand over",
        False,
        (of_records(*TASKS[0], *TASKS[1], active=None),),
    ),
}


def test_what_is_handed_over_from_a_container(three: ClusterView) -> None:
    for case, (numbers, said, is_refused, changes) in IN_H1.items():
        found = told(three, Operation.HAND_OVER, crowded, *changes, container=ON["h1"])
        assert found == [*(begun(each) for each in numbers), Answer(7, said, is_refused=is_refused)], case


def test_a_standby_in_a_container_hides_no_active(three: ClusterView) -> None:
    beside = of_records(*TASKS[0], placed={0: ON["h1"], 1: ON["h2"]})
    assert told(three, Operation.HAND_OVER, beside, container=ON["h2"])[:-1] == [begun(1)]


def test_where_tasks_are_placed_apart_those_that_come_first_are_looked_at(three: ClusterView) -> None:
    """The others follow when they have come together."""
    apart = of_records(TASKS[0][1], placed={}, active=None)
    assert told(three, Operation.HAND_OVER, apart, processor=PROCESSORS[0])[:-1] == [begun(0)]


# ---- an even spread ----

EVENLY: Final = "actives are spread evenly: h1 1, h2 1, h3 1, h4 0, h5 0, h6 0"
SPREADING: Final = "spreading actives, one hand-over after the other: h1 1, h2 1, h3 1, h4 0, h5 0, h6 0"
NOT_IN_SYNC: Final = (of_records(*TASKS[0], in_sync=(0,)), of_view(unsettled=frozenset(PROCESSORS[:1])))


CHOSEN: Final = of_records(*(task for each in TASKS for task in each), is_chosen=True)


def uneven(view: ClusterView) -> ClusterView:
    """Have two actives be on h1."""
    return of_records(*TASKS[1], placed={0: ON["h1"], 1: ON["h5"]})(view)


def test_what_an_even_spread_is_answered(three: ClusterView) -> None:
    cases: Mapping[str, tuple[str, str, tuple[Change, ...]]] = {
        "it is even": (EVENLY, "", ()),
        "it is not even": (SPREADING.replace("h1 1, h2 1", "h1 2"), "job", (uneven,)),
        "although an operator chose them": (SPREADING.replace("h1 1, h2 1", "h1 2"), "job", (uneven, CHOSEN)),
        "one is under way": (SPREADING, "job", (under_way(0, HandoverMotive.ASKED),)),
        "a copy is not in sync": (SPREADING, "job", NOT_IN_SYNC),
    }
    for case, (said, begins, changes) in cases.items():
        assert told(three, Operation.REBALANCE, *changes, job="job") == [
            Answer(7, said, rebalances=begins)
        ], case


# ---- parked processors ----


def parked(view: ClusterView) -> ClusterView:
    model = view.jobs["job"].model
    return of_model(processors=model.parking(PROCESSORS[0], Reason(FailureReason.POISON)).processors)(view)


def test_a_parked_processor_runs_again_and_its_failures_are_forgotten(three: ClusterView) -> None:
    view = changed(three, parked)
    written, said = told(view, Operation.UNPARK, processor=PROCESSORS[0])
    model = view.jobs["job"].model.parking(PROCESSORS[0], None)
    assert written == WriteModel("job", model, "unparked by command")
    slots = tuple(SlotId(PROCESSORS[0], each) for each in (0, 1))
    assert said == Answer(7, f"{P0} runs again", clears=slots)


def test_a_parked_processor_is_answered_once_the_model_is_written(three: ClusterView) -> None:
    modelling = of_job(is_modelling=True)
    assert told(three, Operation.UNPARK, parked, modelling, processor=PROCESSORS[0]) == []


def test_the_second_of_two_parked_processors_waits_a_turn(three: ClusterView) -> None:
    """Both models would be the next after the present one, and one of them would be refused."""
    model = three.jobs["job"].model
    for each in PROCESSORS[:2]:
        model = model.parking(each, Reason(FailureReason.POISON))
    commands = tuple(Command(7 + each, Operation.UNPARK, processor=PROCESSORS[each]) for each in (0, 1))
    turn = turned(three, of_model(processors=model.processors), of_view(commands=commands))
    assert [type(each) for each in answers(turn)] == [WriteModel, Answer]


def test_a_parked_processor_waits_while_the_turn_parks_another(three: ClusterView) -> None:
    turn = turned(
        three,
        parked,
        of_job(policy=PlannerPolicy(on_exhausted=OnExhausted.PARK, retry_count=0)),
        of_view(attempts={SlotId(PROCESSORS[1], 0): Attempts((1,))}),
        of_view(commands=(Command(7, Operation.UNPARK, processor=PROCESSORS[0]),)),
    )
    assert [type(each) for each in writes(turn)] == [WriteModel]
    assert list(answers(turn)) == []


# ---- what is refused ----

HANDS_OVER, UNPARKS, REBALANCES = Operation.HAND_OVER, Operation.UNPARK, Operation.REBALANCE
ZERO: Final = {"processor": PROCESSORS[0]}

REFUSED: Mapping[str, tuple[str, Operation, Mapping[str, Any], tuple[Change, ...]]] = {
    "there is no such processor": ("there is no job/main:9", HANDS_OVER, {"processor": GONE}, ()),
    "there is no such job": ("there is no other/main:0", HANDS_OVER, {"processor": OTHER}, ()),
    "there is no such container": ("no container c99 is known", HANDS_OVER, {"container": "c99"}, ()),
    "one is being prepared": (BEING_PREPARED, HANDS_OVER, ZERO, (under_way(0, HandoverMotive.UPGRADE),)),
    "it was never active": (
        f"{P0}: it has no active now",
        HANDS_OVER,
        ZERO,
        (of_records(*TASKS[0], active=None),),
    ),
    "its active is lost": (f"{P0}: it has no active now", HANDS_OVER, ZERO, (without_host("h1"),)),
    "that copy is active": (f"{P0}: copy 0 is active already", HANDS_OVER, {**ZERO, "copy": 0}, ()),
    "no standby is in sync": (f"{P0}: no standby {NONE_IN_SYNC}", HANDS_OVER, ZERO, (without_host("h4"),)),
    "that copy is no standby": (
        f"{P0}: copy 2 is no standby that {NONE_IN_SYNC}",
        HANDS_OVER,
        {**ZERO, "copy": 2},
        (),
    ),
    "there is no such job to spread": ("there is no job other", REBALANCES, {"job": "other"}, ()),
    "the job to spread has ended": (
        "job is not running",
        REBALANCES,
        {"job": "job"},
        (of_job(is_wanted=False),),
    ),
    "it is not parked": (f"{PROCESSORS[1]} is not parked", UNPARKS, {"processor": PROCESSORS[1]}, (parked,)),
    "there is no such processor to unpark": (
        "there is no job/main:9",
        UNPARKS,
        {"processor": GONE},
        (parked,),
    ),
    "there is no such job to unpark": ("there is no other/main:0", UNPARKS, {"processor": OTHER}, (parked,)),
    "no processor is named": ("there is no None", UNPARKS, {}, (parked,)),
}


def test_when_a_command_is_refused(three: ClusterView) -> None:
    for case, (said, operation, asked, changes) in REFUSED.items():
        assert told(three, operation, *changes, **asked) == [Answer(7, said, is_refused=True)], case


def test_each_command_is_answered(three: ClusterView) -> None:
    commands = (
        Command(1, Operation.UNPARK, processor=PROCESSORS[1]),
        Command(2, Operation.REBALANCE, job="job"),
        Command(3, Operation.HAND_OVER, processor=GONE),
    )
    found = [*answers(turned(three, of_view(commands=commands)))]
    assert [each.number for each in found if isinstance(each, Answer)] == [1, 2, 3]
