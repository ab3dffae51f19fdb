"""The report has what it must have, and a run that broke a promise is not passed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from demo.compare import Comparison, StateComparison
from demo.events import Event, decode
from demo.gaps import Disturbance
from demo.report import CLOCKS_MS, Failover, faults, moved_away, phase_summary, phases, step_times, summary
from demo.run import assemble, outcome
from demo.verification import Verification

BEGUN = 1_000_000
STEPS = {
    "detected": 20,
    "recorded": 30,
    "ordered": 35,
    "fenced": 60,
    "drained": 90,
    "active": 100,
    "first_commit": 300,
}


def finished(partition: int, begun: int = BEGUN) -> Event:
    times = {f"{name}_ms": begun + value for name, value in STEPS.items()}
    return Event(at_ms=begun + 400, kind="failover_finished", data={"tasks": {str(partition): times}})


def failover(kind: str = "process", tasks: tuple[int, ...] = (0, 1), *, is_restored: bool = True) -> Failover:
    disturbance = Disturbance(tasks, BEGUN - 15_000, BEGUN, BEGUN + 2, BEGUN + 15_000, BEGUN + 25_000)
    events = [finished(partition) for partition in tasks]
    return Failover(kind, "c2", disturbance, step_times(events, BEGUN), is_restored)


def verification(**changes: int) -> Verification:
    exact = Comparison(expected=6, seen=6, lost=0, duplicated=0, mismatched=0, misordered=0)
    times = {
        0: [BEGUN - 400, BEGUN - 100, BEGUN + 350, BEGUN + 500],
        1: [BEGUN - 100, BEGUN - 40, BEGUN + 900, BEGUN + 950],
    }
    return Verification(
        records_in=8,
        outputs=replace(exact, **changes),  # type: ignore[arg-type]
        state=StateComparison(keys=3, mismatched=0),
        input_times=times,
        output_times=times,
    )


def report(found: Verification | None = None, **changes: Any) -> dict[str, Any]:
    assembled, _ = assemble([failover()], found or verification(), [])
    return {"records_sent": 8, "same_host_violations": 0, **assembled, "faults": [], **changes}


def test_the_times_of_a_failover_are_relative_to_the_loss_and_of_the_task_that_waited_longest() -> None:
    (described,) = report()["failovers"]
    assert described["tasks"] == [0, 1]
    assert described["longest_waiting_task"] == 1
    assert described["gap_ms"] == 940
    assert described["first_output_ms"] == 900
    assert {name: described[f"{name}_ms"] for name in STEPS} == STEPS
    assert described["longest_gap_before_ms"] == 60
    assert described["calm_before_ms"] == 15_000
    assert described["per_task"]["0"]["gap_ms"] == 450
    assert described["per_task"]["0"]["longest_gap_before_ms"] == 300
    assert described["restored_ms"] == 15_000
    assert described["warm_ms"] == 25_000


def test_a_run_as_promised_has_no_faults() -> None:
    assert faults(report()) == ()
    assert faults(report(returned_ms=1_500, failovers_after_return=0)) == ()


def test_a_broken_promise_is_a_fault() -> None:
    for name in ("lost", "duplicated", "mismatched", "misordered"):
        (fault,) = faults(report(verification(**{name: 3})))
        assert fault.startswith("3 outputs"), name
    broken: dict[str, dict[str, Any]] = {
        "state keys wrong": {"state_mismatched": 1},
        "shared a host": {"same_host_violations": 2},
        "not restored": {"replicas_restored": False},
        "9 records sent, 8 in the input topic": {"records_sent": 9},
        "no output at all": {"outputs_seen": 0},
        "came back did not end": {"returned_ms": None, "failovers_after_return": 0},
        "2 failovers after": {"returned_ms": 1_500, "failovers_after_return": 2},
    }
    for words, changes in broken.items():
        (fault,) = faults(report(**changes))
        assert words in fault


def test_a_replica_that_never_came_back_shows() -> None:
    assembled, _ = assemble([failover(is_restored=False)], verification(), [])
    assert assembled["replicas_restored"] is False
    assert assembled["failovers"][0]["restored_ms"] is None


def test_a_task_without_output_after_the_loss_is_a_fault_even_when_others_went_on() -> None:
    found = verification()
    silent = {**found.output_times, 1: [BEGUN - 100]}
    changed = Verification(found.records_in, found.outputs, found.state, found.input_times, silent)
    (fault,) = faults(report(changed))
    assert "no output from task 1" in fault


def test_a_run_without_a_failure_promises_nothing() -> None:
    assembled, _ = assemble([], verification(), [])
    assert assembled["replicas_restored"] is False


def test_steps_are_those_of_this_failover_not_of_an_earlier_one_nor_of_a_hand_over() -> None:
    planned = Event(at_ms=BEGUN, kind="handover_finished", data={"tasks": {"2": {"detected_ms": BEGUN}}})
    events = [finished(0, BEGUN - 60_000), Event(at_ms=BEGUN, kind="failover_started"), planned, finished(1)]
    assert set(step_times(events, BEGUN)) == {1}
    is_early = finished(2, BEGUN - STEPS["detected"] - CLOCKS_MS // 2)
    assert set(step_times([*events, is_early], BEGUN)) == {1, 2}, "the leader's clock differs a little"
    assert step_times(events, BEGUN, "handover_finished") == {2: {"detected": BEGUN}}


def test_what_was_handed_over_just_before_a_loss_was_not_lost() -> None:
    def moved(partition: int, at_ms: int, to: str) -> Event:
        data = {"tasks": {str(partition): {"detected_ms": at_ms - 600}}}
        return Event(at_ms=at_ms, kind="handover_finished", container=to, data=data)

    events = [
        moved(0, BEGUN - 60_000, "c1"),
        moved(1, BEGUN - 100, "c1"),
        moved(2, BEGUN + 100, "c1"),
        moved(3, BEGUN - 100, "lost"),
        finished(3),
    ]
    assert moved_away(events, BEGUN, ("lost",)) == {1, 2}


def test_phases_lie_between_the_steps_that_were_timed() -> None:
    times = {
        "detected_ms": 50,
        "recorded_ms": 60,
        "ordered_ms": None,
        "fenced_ms": 90,
        "first_output_ms": 700,
    }
    assert phases(times) == {"detected": 50, "recorded": 10, "fenced": 30, "first_output": 610}
    spread = phase_summary([{"phases_ms": phases(times)}, {"phases_ms": {"detected": 70}}])
    assert spread["detected"] == {"count": 2, "median": 60, "minimum": 50, "maximum": 70}
    assert spread["first_output"]["count"] == 1
    assert "ordered" not in spread


def test_steps_that_were_not_reached_are_left_out() -> None:
    reached = {"detected_ms": 5, "first_commit_ms": None}
    event = Event(at_ms=1, kind="failover_finished", data={"tasks": {"0": reached}})
    assert step_times([event], 0) == {0: {"detected": 5}}


def test_an_event_is_decoded_and_what_is_none_is_not() -> None:
    event = decode(
        b'{"at_ms": 7, "kind": "container_lost", "container": "c1", "host": "h1", "reason": "silent"}'
    )
    assert event is not None
    assert event.text == "container lost · c1 on h1 · silent"
    assert decode(b"{") is None
    assert decode(None) is None


def test_the_summary_spreads_what_is_there() -> None:
    spread = summary([{"gap_ms": 100}, {"gap_ms": 300}, {"gap_ms": None}, {"gap_ms": 200}])
    assert spread["gap_ms"] == {"count": 3, "median": 200, "minimum": 100, "maximum": 300}
    assert spread["fenced_ms"]["median"] is None


def test_the_outcome_names_the_faults() -> None:
    lines = outcome(report(faults=["1 outputs lost"]))
    assert any(
        "no output of task 1 for 940 ms (its longest pause in the 15 s before: 60 ms)" in line
        for line in lines
    )
    assert lines[-1] == "NOT as promised: 1 outputs lost"
