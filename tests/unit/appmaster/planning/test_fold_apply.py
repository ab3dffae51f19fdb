"""How time, jobs, written records, hosts, commands and effects change the view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.fold.apply import apply
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import EffectKind, Job, JobState, PlannerPolicy
from appmaster.planning.state.model import JobModel, JobSpec, Processor, SharedSlotId, SpareSlotId
from appmaster.planning.state.reasons import FailureReason, HandoverMotive, Loss, Reason
from appmaster.planning.state.view import (
    ClusterView,
    Command,
    EndingContainer,
    Failover,
    Handover,
    LostActive,
    Operation,
    Rebalancing,
    Recorded,
    ReplicaProgress,
    RequestState,
)
from locality.hosts import HostInfo
from standby.shared.model import InputFailures, ProcessorId, ReplicaId, SlotId, TaskId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    PROCESSOR,
    SECOND,
    SLOT,
    THIRD,
    Change,
    changed,
    free,
    of_container,
    of_job,
    of_view,
    requested,
    with_another,
    without_container,
)

AT_MS = 12_000
OTHER = ANOTHER.processor
UNKNOWN = ProcessorId("job", "main", 9)
#: Of the job "theirs".
THEIRS, THEIR_TASK = ProcessorId("theirs", "main", 0), TaskId("theirs", "main", 0)


def with_theirs(view: ClusterView) -> ClusterView:
    """Have a second job, with one processor of one task, which has a record."""
    job = view.jobs["job"]
    model = JobModel("theirs", {THEIRS: Processor((THEIR_TASK,), (0,))})
    record = replace(view.records[FIRST], record=replace(view.records[FIRST].record, task=THEIR_TASK))
    return replace(
        view,
        jobs={"job": job, "theirs": replace(job, name="theirs", model=model)},
        records={**view.records, THEIR_TASK: record},
    )


# ---- time ----


def test_a_candidate_that_is_elected_leads(whole: ClusterView) -> None:
    assert apply(whole, happened.Elected(7, AT_MS)) == replace(whole, epoch=7, now_ms=AT_MS)


def test_time_passes(whole: ClusterView) -> None:
    view = of_view(wall_offset_ms=700)(whole)
    for told, known in ((None, 700), (800, 800), (0, 0)):
        ticked = apply(view, happened.Ticked(AT_MS, wall_offset_ms=told))
        assert ticked == replace(view, now_ms=AT_MS, wall_offset_ms=known), told


def test_a_container_that_was_given_back_is_dead_after_a_while(whole: ClusterView) -> None:
    later = EndingContainer(6, 500, AT_MS + 700)
    for until_ms, is_dead in ((AT_MS, True), (AT_MS + 1, False)):
        ending = EndingContainer(5, 500, until_ms)
        view = changed(whole, without_container(1), of_view(ending={"c5": ending, "c6": later}))
        ticked = apply(view, happened.Ticked(AT_MS))
        assert ticked.ending == {**({} if is_dead else {"c5": ending}), "c6": later}, until_ms
        assert ticked.unsettled == ({PROCESSOR} if is_dead else set()), until_ms


#: When a wait began, and when it is taken to have begun after a stall of 300 ms.
WAITS = [(700, 1_000), (AT_MS - 300, AT_MS), (AT_MS - 299, AT_MS), (AT_MS, AT_MS)]


@pytest.mark.parametrize(("began_ms", "begins_ms"), WAITS)
def test_a_stall_of_the_leader_shortens_every_wait(whole: ClusterView, began_ms: int, begins_ms: int) -> None:
    replica = ReplicaId(FIRST, 1)
    handover = Handover(1, "c5", 0, Reason(HandoverMotive.ASKED))

    def waiting(since_ms: int, **more: Any) -> Change:
        return lambda view: changed(
            view,
            *(
                of_container(
                    each,
                    heard_ms=since_ms,
                    answered_ms=since_ms,
                    responded_ms=since_ms,
                    at_disk_ms=since_ms,
                    since_ms=since_ms,
                    standing={replica: ReplicaProgress(True, 0, (), since_ms)},
                    **more,
                )
                for each in view.containers
            ),
            requested(SLOT, "h1", RequestState.WAITING),
            lambda view: replace(view, requests={1: replace(view.requests[1], since_ms=since_ms)}),
            of_view(
                handovers={PROCESSOR: replace(handover, since_ms=since_ms)},
                rebalancing={"job": Rebalancing(since_ms, moves=1), "theirs": Rebalancing(moves=1)},
            ),
        )

    view = changed(
        whole,
        waiting(began_ms, still_since_ms=700, still_ms=800),
        of_view(ending={"c9": EndingContainer(9, 500, 20_000)}, self_doubt_until_ms=20_000),
    )
    excused = changed(
        view,
        waiting(begins_ms, still_since_ms=0, still_ms=0),
        of_view(
            ending={"c9": EndingContainer(9, 500, 20_300)},
            self_doubt_until_ms=20_300,
            listening_until_ms=AT_MS + 500,
            now_ms=AT_MS,
        ),
    )
    assert apply(view, happened.Ticked(AT_MS, stalled_ms=300)) == excused


def test_a_container_that_has_not_waited_for_its_disk_has_not_after_a_stall_either(
    whole: ClusterView,
) -> None:
    ticked = apply(whole, happened.Ticked(AT_MS, stalled_ms=300))
    assert {each.at_disk_ms for each in ticked.containers.values()} == {0}


def test_a_leader_that_stalled_does_not_begin_to_doubt_itself(whole: ClusterView) -> None:
    ticked = apply(whole, happened.Ticked(AT_MS, stalled_ms=1))
    assert ticked.listening_until_ms == AT_MS + 500
    assert ticked.self_doubt_until_ms == 0


# ---- jobs ----

SPEC = JobSpec("main", tasks=2, containers=1, standbys=2)


def loaded(view: ClusterView, **changes: Any) -> happened.JobLoaded:
    """Return the news of the job as it is known, with these changes."""
    job = view.jobs["job"]
    event = happened.JobLoaded(
        job.name, job.run, job.spec, job.model, job.policy, job.revision, job.is_wanted
    )
    return replace(event, **changes)


#: What a job is asked for, and what is known of it from outside.
ASKED: Mapping[str, Any] = {
    "run": "run2",
    "policy": PlannerPolicy(restarts=True),
    "is_wanted": False,
    "purge": True,
    "is_fence_waived": True,
    "notes": ("an input grew",),
    "quarantined": "its code is gone",
    "obstacle": "a topic was made again",
    "changelog_risk": "it is about to lose records",
    "is_changelog_known": True,
}

FAILED = Reason(FailureReason.POISON, "poison")


def test_a_job_that_is_new_to_the_leader_is_as_it_is_recorded(whole: ClusterView) -> None:
    model = whole.jobs["job"].model
    event = happened.JobLoaded(
        "job",
        spec=SPEC,
        model=model,
        revision=3,
        was_deployed=True,
        failure=FAILED,
        traceback="Traceback",
        **ASKED,
    )
    job = Job(
        "job",
        spec=SPEC,
        model=model,
        revision=3,
        was_deployed=True,
        failure=FAILED,
        last_traceback="Traceback",
        is_model_right=True,
        is_risk_logged=True,
        **ASKED,
    )
    after = apply(of_view(jobs={})(whole), event)
    assert after.jobs == {"job": job}
    assert after.unsettled == {PROCESSOR}


def test_a_job_without_a_recorded_model_has_an_empty_one() -> None:
    after = apply(ClusterView(), happened.JobLoaded("job", "run1", SPEC, None, PlannerPolicy()))
    assert after.jobs["job"].model == JobModel("job", {}, version=0)
    assert not after.jobs["job"].is_model_right


def test_a_known_job_is_as_it_is_asked_for_now(whole: ClusterView) -> None:
    spec = replace(SPEC, standbys=1)
    view = of_job(refused=1, refusal="no module x", state=JobState.DEPLOYED)(whole)
    after = apply(view, loaded(view, spec=spec, **ASKED))
    job = replace(view.jobs["job"], spec=spec, is_model_right=False, is_risk_logged=True, **ASKED)
    assert after.jobs == {"job": job}
    assert after.unsettled == {PROCESSOR}


def test_another_revision_of_a_job_was_not_refused_yet(whole: ClusterView) -> None:
    view = of_job(refused=1, refusal="no module x")(whole)
    after = apply(view, loaded(view, revision=2))
    assert after.jobs == {"job": replace(view.jobs["job"], revision=2, refused=0, refusal="")}


def test_a_model_that_was_read_replaces_no_newer_one(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[int, bool, bool, bool]] = {
        "read before the last write": (6, True, False, True),
        "the last write": (7, True, True, False),
        "a further write": (8, True, True, False),
        "an old one, and none is written": (6, False, False, False),
    }
    for case, (znode, is_modelling, is_taken, still) in cases.items():
        known = replace(whole.jobs["job"].model, znode=7)
        view = of_job(model=known, is_modelling=is_modelling)(whole)
        read = replace(with_another(view).jobs["job"].model, znode=znode)
        job = apply(view, loaded(view, model=read)).jobs["job"]
        assert job.model == (read if is_taken else known), case
        assert job.is_modelling is still, case


NEW = Job("job", "run1", SPEC, JobModel("job", {}), PlannerPolicy())

#: What is left of a job's last deployment.
LEFT: Mapping[str, Any] = {
    "state": JobState.FAILED,
    "reasons": ("it failed",),
    "was_deployed": True,
    "fence": 3,
    "is_fenced": True,
    "fencing_failures": 2,
    "fencing_error": "no broker",
    "fence_again_ms": 700,
    "faults": {EffectKind.WRITE_STATUS: "x"},
    "refused": 2,
    "refusal": "no module x",
    "last_traceback": "Traceback",
}
#: As of a new job.
FRESH: Mapping[str, Any] = {each: getattr(NEW, each) for each in ("failure", *LEFT)}

#: Whether it begins anew, the job as it was, and the news of it.
ANEW: Mapping[str, tuple[bool, Mapping[str, Any], Mapping[str, Any]]] = {
    "it runs": (False, {}, {"run": "run2"}),
    "it is to end": (False, {"failure": FAILED}, {"is_wanted": False, "run": "run2"}),
    "it has ended": (False, {"is_wanted": False}, {"run": "run2"}),
    "it had ended, and is deployed again": (True, {"is_wanted": False}, {"is_wanted": True}),
    "it has failed": (False, {"failure": FAILED}, {}),
    "it had failed, and is submitted again": (True, {"failure": FAILED}, {"run": "run2"}),
    "it had failed, and is updated": (True, {"failure": FAILED}, {"revision": 2}),
}


def test_when_a_job_begins_anew(whole: ClusterView) -> None:
    for case, (is_so, known, news) in ANEW.items():
        theirs = {SharedSlotId("theirs", 0): Attempts(in_row=2)}
        view = changed(
            whole, of_job(**{**LEFT, **known}), of_view(attempts={SLOT: Attempts(in_row=2), **theirs})
        )
        after = apply(view, loaded(view, **news))
        assert after.jobs == {"job": replace(view.jobs["job"], **(FRESH if is_so else {}), **news)}, case
        assert after.attempts == (theirs if is_so else view.attempts), case


def test_a_job_that_is_deleted_is_forgotten_and_no_other(whole: ClusterView) -> None:
    """Its containers remain until they have ended."""
    failures = InputFailures(10, 1)
    missed = LostActive("gone", Loss.SILENT, 500)
    handover = Handover(1, "c5", 500, Reason(HandoverMotive.ASKED))

    def about(*jobs: str) -> Change:
        """Return a change by which the view has something of each kind about these jobs."""
        processors = [each for each in (PROCESSOR, THEIRS) if each.job in jobs]
        tasks = [each for each in (FIRST, THEIR_TASK) if each.job in jobs]
        return lambda view: replace(
            view,
            writing=dict.fromkeys(tasks, "1-9"),
            assigned={"c6": dict.fromkeys(tasks, 1), **({"c4": {FIRST: 0}} if "job" in jobs else {})},
            attempts={SLOT: Attempts()} if "job" in jobs else {},
            crashes=dict.fromkeys(tasks, failures),
            unsettled=frozenset(processors),
            in_sync_ms=dict.fromkeys(processors, 700),
            no_displacing=dict.fromkeys(processors, 700),
            lost_actives=dict.fromkeys(processors, missed),
            failovers={each: Failover(each, "c4", Loss.SILENT, 1, "c5", 500) for each in processors},
            handovers=dict.fromkeys(processors, handover),
            rebalancing=dict.fromkeys(jobs, Rebalancing()),
        )

    view = changed(whole, with_theirs, about("job", "theirs"))
    only_theirs = changed(
        view,
        about("theirs"),
        of_view(jobs={"theirs": view.jobs["theirs"]}, records={THEIR_TASK: view.records[THEIR_TASK]}),
    )
    assert apply(view, happened.JobForgotten("job")) == only_theirs


def test_failures_of_slots_that_a_job_has_not_any_more_are_forgotten(whole: ClusterView) -> None:
    theirs, used = SharedSlotId("theirs", 9), SharedSlotId("job", 7)
    kept = (SLOT, SharedSlotId("job", 1), SpareSlotId("job", 0), used, theirs)
    dropped = (
        SlotId(PROCESSOR, 3),
        SlotId(ProcessorId("job", "main", 9), 0),
        SharedSlotId("job", 2),
        SpareSlotId("job", 1),
    )
    view = changed(
        whole,
        free("c9", "h4", used),
        of_view(attempts={each: Attempts((900,), in_row=1) for each in (*kept, *dropped)}),
    )
    job = view.jobs["job"]
    news = loaded(view, model=replace(job.model, containers=2), policy=replace(job.policy, spare_count=1))
    assert apply(view, news).attempts.keys() == set(kept)


def test_a_model_that_was_written_unsettles_its_job_and_drops_what_it_has_not(whole: ClusterView) -> None:
    handover = Handover(1, "c5", 500, Reason(HandoverMotive.ASKED))
    view = changed(
        whole,
        with_theirs,
        of_job(is_modelling=True),
        of_view(
            unsettled=frozenset({UNKNOWN}),
            handovers={UNKNOWN: handover, PROCESSOR: handover, THEIRS: handover},
        ),
    )
    model = replace(with_another(view).jobs["job"].model, version=8)
    after = apply(view, happened.ModelWritten("job", model))
    assert after.jobs["job"] == replace(
        view.jobs["job"], model=model, is_modelling=False, is_model_right=False
    )
    assert after.unsettled == {PROCESSOR, OTHER}
    assert after.handovers.keys() == {PROCESSOR, THEIRS}


# ---- records ----


def of_new(view: ClusterView, *tasks: TaskId) -> tuple[Recorded, ...]:
    """Return the next versions of the records of these tasks."""
    return tuple(replace(view.records[each], version=view.records[each].version + 1) for each in tasks)


WRITING = {FIRST: "1-9", SECOND: "1-9", THIRD: "1-8"}
BINDINGS = {"1-9": "c5", "1-8": "c6"}


def written_to(*bound: str) -> Change:
    """Have the decision 1-9 about both tasks, which gives some to c5, and 1-8 about another be written."""
    return lambda view: changed(
        view,
        of_view(writing=WRITING, bindings=BINDINGS),
        *(of_container(each, binding="1-9" if each == "c5" else "1-8") for each in bound),
    )


def bound(view: ClusterView) -> dict[str, str]:
    return {each.id: each.binding for each in view.containers.values() if each.binding}


def test_a_container_is_bound_until_the_records_are_written(whole: ClusterView) -> None:
    """Those of an earlier decision leave a later one under way, and the container may be gone."""
    records = of_new(whole, FIRST, SECOND)
    cases: Mapping[str, tuple[str, ClusterView, Mapping[TaskId, str], Mapping[str, str]]] = {
        "they are": ("1-9", written_to("c5", "c6")(whole), {THIRD: "1-8"}, {"1-8": "c6"}),
        "earlier ones are": ("1-7", written_to("c5", "c6")(whole), WRITING, BINDINGS),
        "they are, and it is gone": (
            "1-9",
            changed(whole, written_to("c6"), without_container(1)),
            {THIRD: "1-8"},
            {"1-8": "c6"},
        ),
    }
    for case, (number, view, writing, bindings) in cases.items():
        after = apply(view, happened.RecordsWritten(number, records, AT_MS))
        assert after.records == {each.record.task: each for each in records}, case
        assert (after.writing, after.bindings) == (writing, bindings), case
        assert bound(after) == {container: each for each, container in bindings.items()}, case
        assert after.containers.keys() == view.containers.keys(), case


def test_a_decision_that_was_refused_is_over_once_its_records_are_read(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[tuple[TaskId, ...], Mapping[TaskId, str], Mapping[str, str]]] = {
        "all that it was to write": ((FIRST, SECOND), {THIRD: "1-8"}, {"1-8": "c6"}),
        "a part of that": ((FIRST,), {SECOND: "1-9", THIRD: "1-8"}, {"1-9": "c5", "1-8": "c6"}),
    }
    for case, (tasks, writing, bindings) in cases.items():
        view = written_to("c5", "c6")(whole)
        records = of_new(whole, *tasks)
        after = apply(view, happened.RecordsLoaded(records))
        assert after.records == {**whole.records, **{each.record.task: each for each in records}}, case
        assert after.writing == writing, case
        assert after.bindings == bindings, case
        assert bound(after) == {container: decision for decision, container in bindings.items()}, case


def test_when_a_failover_is_recorded(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[tuple[TaskId, ...], int, int]] = {
        "all its records": ((FIRST, SECOND), 0, AT_MS),
        "one of its records": ((FIRST,), 0, 0),
        "they were recorded before": ((FIRST, SECOND), 700, 700),
    }
    for case, (tasks, before_ms, recorded_ms) in cases.items():
        failover = Failover(
            PROCESSOR, "gone", Loss.SILENT, 1, "c5", 500, (FIRST, SECOND), recorded_ms=before_ms
        )
        view = of_view(failovers={PROCESSOR: failover})(whole)
        after = apply(view, happened.RecordsWritten("1-9", of_new(whole, *tasks), AT_MS))
        assert after.failovers == {PROCESSOR: replace(failover, recorded_ms=recorded_ms)}, case


# ---- hosts ----


def test_hosts_that_are_described_anew_are_offered_and_unsettle_all(whole: ClusterView) -> None:
    described = (HostInfo("h1", rack="/a"), HostInfo("h9"))
    after = apply(whole, happened.HostsKnown(described))
    assert after.described == {each.name: each for each in described}
    assert after.offers == described
    assert after.unsettled == {PROCESSOR}
    assert apply(after, happened.HostsKnown(described)) is after


def test_hosts_that_are_drained_unsettle_all(whole: ClusterView) -> None:
    event = happened.HostsDrained({"h1": "a new disk"}, is_taken_over=False)
    after = apply(whole, event)
    assert after.drained == {"h1": "a new disk"}
    assert after.unsettled == {PROCESSOR}
    assert apply(after, event) is after


# ---- commands, fences, effects ----


def test_commands_wait_until_they_are_withdrawn(whole: ClusterView) -> None:
    first, second = (Command(number, Operation.UNPARK, PROCESSOR) for number in (1, 2))
    view = apply(apply(whole, happened.Commanded(first)), happened.Commanded(second))
    assert view.commands == (first, second)
    assert apply(view, happened.CommandWithdrawn(1)).commands == (second,)


FENCING: Mapping[str, Any] = {"fence": 3, "fencing_failures": 2, "fencing_error": "no broker"}

#: Effects that fail, and why.
WRITES, GIVES = {EffectKind.WRITE_STATUS: "x"}, {EffectKind.GIVE_BACK: "y"}
WRITE_FAILS = happened.EffectFailed("job", EffectKind.WRITE_STATUS, "x")

#: The job before and after the news.
ENDS: Mapping[str, tuple[happened.Event, Mapping[str, Any], Mapping[str, Any]]] = {
    "its tasks are fenced": (
        happened.TasksFenced(3, "job"),
        FENCING,
        {"fence": 0, "is_fenced": True, "fencing_failures": 0, "fencing_error": ""},
    ),
    "they cannot be fenced": (
        happened.FencingFailed(3, "job", "no controller"),
        FENCING,
        {
            "fence": 0,
            "fencing_failures": 3,
            "fencing_error": "no controller",
            "fence_again_ms": AT_MS + 2_000,
        },
    ),
    "an earlier fence of them ends": (happened.TasksFenced(2, "job"), FENCING, {}),
    "an earlier fence of them fails": (happened.FencingFailed(2, "job", "no controller"), FENCING, {}),
    "a first effect fails": (WRITE_FAILS, {"faults": GIVES}, {"faults": {**GIVES, **WRITES}}),
    "an effect fails in another way": (WRITE_FAILS, {"faults": {EffectKind.WRITE_STATUS: "y"}}, {}),
    "an effect succeeds": (
        happened.EffectDone("job", EffectKind.WRITE_STATUS),
        {"faults": {**WRITES, **GIVES}},
        {"faults": GIVES},
    ),
}


def test_what_becomes_known_of_what_is_done_for_a_job(whole: ClusterView) -> None:
    for case, (event, before, after) in ENDS.items():
        view = changed(whole, of_job(**before), of_view(now_ms=AT_MS))
        assert apply(view, event) == of_job(**after)(view), case


def test_what_calls_for_nothing_or_comes_too_late_changes_nothing(whole: ClusterView) -> None:
    for event in (
        happened.TopicNoted("job", "input", "input", "it is new", "", "id"),
        happened.ModelRefused("job", "a version did not match"),
        happened.RecordsRefused("1-9", "a version did not match"),
        happened.TasksFenced(1, "job"),
        happened.FencingFailed(1, "job", "no controller"),
        happened.JobForgotten("gone"),
        happened.ModelWritten("gone", JobModel("gone", {})),
        happened.TasksFenced(1, "gone"),
        happened.FencingFailed(1, "gone", "no controller"),
        happened.EffectFailed("gone", EffectKind.WRITE_STATUS, "x"),
        happened.EffectDone("gone", EffectKind.WRITE_STATUS),
    ):
        assert apply(whole, event) is whole, event


def test_an_action_that_was_started_is_under_way(whole: ClusterView) -> None:
    after = apply(whole, happened.Started(todo.ProbePort("c5", 5), AT_MS))
    assert after.containers["c5"].probed_ms == AT_MS
