"""What fails while one job's action is carried out is that job's trouble: it is set aside, the others are led.

An error is planted into each thing that the real `LeaderEffects` do outside for one job of two; a cluster in virtual
time is that outside. The writer, threads and timers run within the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from confluent_kafka import KafkaError, KafkaException
from kazoo.exceptions import NoNodeError

from appmaster.blame import Blame, blame
from appmaster.effects import ASSIGNING, REQUESTED, WRITING, WRITTEN, LeaderEffects, Replies
from appmaster.eventlog.entries import EntryKind
from appmaster.planning.plan import INWARD
from appmaster.planning.state import actions as todo
from appmaster.planning.state.actions import RecordWrite
from appmaster.planning.state.job import EffectKind, JobState
from appmaster.planning.state.model import JobModel, job_of
from appmaster.planning.state.view import Recorded
from appmaster.records import StatusRecord
from locality.fit import Demand
from standby.errors import BadConfiguration, BrokenInvariant, Fenced, Transient
from standby.shared.wire import JobDefinition
from tests.unit.appmaster.planning.test_jobs import Jobs

#: What the leader does outside for a job, with what is reported when it fails.
OUTSIDE: dict[type, EffectKind | None] = {
    todo.WriteRecords: EffectKind.WRITE_RECORDS,
    todo.WriteModel: EffectKind.WRITE_MODEL,
    todo.WriteStatus: EffectKind.WRITE_STATUS,
    todo.SendAssignment: EffectKind.SEND_ASSIGNMENT,
    todo.SendExit: EffectKind.SEND_EXIT,
    todo.ProbePort: EffectKind.PROBE_PORT,
    todo.RequestContainer: EffectKind.REQUEST_CONTAINER,
    todo.CancelRequest: EffectKind.GIVE_BACK,
    todo.ReleaseContainer: EffectKind.GIVE_BACK,
    # With events of its own.
    todo.FenceTasks: None,
}

ERRORS = [
    KafkaException(KafkaError(KafkaError._INVALID_ARG, "planted")),
    NoNodeError("planted"),
    ValueError("planted"),
    KeyError("planted"),
    SystemError("planted"),
    BadConfiguration("planted"),
]


class Inline:
    """A writer that runs what it is given at once, in order, and lets nothing be swallowed."""

    def __init__(self) -> None:
        self._commands: list[Callable[[], object]] = []

    def put(self, command: Callable[[], object]) -> None:
        self._commands.append(command)
        if len(self._commands) == 1:
            while self._commands:
                self._commands[0]()
                del self._commands[0]


class Lab(Jobs):
    """Two jobs, led by the planner and the real effects; ``planted`` is raised when ``other`` is concerned."""

    def __post_init__(self) -> None:
        self.planted: dict[type, Sequence[BaseException]] = {}
        self.hits = 0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.resigned: list[str] = []
        self.asked: dict[str, object] = {}
        self.owners: dict[str, str] = {}
        self.statuses: dict[str, StatusRecord] = {}
        self.action: todo.Action | None = None
        super().__post_init__()
        ports: Any = self
        clock: Any = SimpleNamespace(
            monotonic_ms=lambda: self.now_ms,
            now_ms=lambda: self.now_ms,
            later=lambda seconds, work: self.timers.append((self.now_ms + seconds * 1000, work)),
        )
        self.effects = LeaderEffects(
            self.tell,
            clock,
            ports,
            ports,
            ports,
            lambda definition: self.hit(todo.FenceTasks, definition.name),
            resign=self.resigned.append,
            reload=self.reload,
            replies=Replies(self.tell, clock),
            definitions={
                name: {1: JobDefinition(name, "run1", {}, "changelog", "group", 2)}
                for name in ("job", "other")
            },
            beside=lambda work: work(),
        )
        self.effects.writer.close()
        self.effects.writer = Inline()  # type: ignore[assignment]

    # ---- the leader ----

    def turn(self) -> int:
        due = [work for at_ms, work in self.timers if at_ms <= self.now_ms]
        self.timers = [(at_ms, work) for at_ms, work in self.timers if at_ms > self.now_ms]
        for work in due:
            work()
        return super().turn()

    def obey(self, action: todo.Action) -> None:
        if isinstance(action, INWARD):
            return
        self.action = action
        self.effects.carry_out(action, self.view)

    def ask(self, name: str, run: str = "run1", revision: int = 1, **more: object) -> None:
        self.asked = dict(more)
        super().ask(name, run, revision, **more)

    def reload(self) -> None:
        self.load()
        if "other" in self.view.jobs:
            super().ask("other", **self.asked)  # type: ignore[arg-type]

    # ---- outside ----

    def hit(self, kind: type, job: str) -> None:
        if job == "other" and kind in self.planted:
            planted = self.planted[kind]
            self.hits += 1
            raise planted[self.hits % len(planted)]

    def write_tasks(self, changes: Sequence[RecordWrite]) -> tuple[Recorded, ...] | None:
        self.hit(todo.WriteRecords, changes[0].record.task.job)
        written = []
        for change in changes:
            old = self.versions.get(change.record.task)
            if (old.version if old else None) != change.expected_version:
                return None
            written.append(Recorded(change.record, 0 if old is None else old.version + 1))
        self.versions.update({each.record.task: each for each in written})
        return tuple(written)

    def read_tasks(self, changes: Sequence[RecordWrite]) -> tuple[Recorded, ...]:
        self.hit(todo.WriteRecords, changes[0].record.task.job)
        found = (self.versions.get(each.record.task) for each in changes)
        return tuple(each for each in found if each is not None)

    def write_model(self, model: JobModel, stage: str) -> JobModel | None:
        self.hit(todo.WriteModel, model.job)
        written = replace(model, znode=model.znode + 1)
        if model.job == "job":
            self.model = written
        else:
            self.models[f"{model.job} {self.view.jobs[model.job].run}"] = written
        return written

    def write_status(self, job: str, status: StatusRecord) -> None:
        self.hit(todo.WriteStatus, job)
        self.statuses[job] = status

    def send(self, container: str, incarnation: int, message: object) -> None:
        assert isinstance(self.action, (todo.SendAssignment, todo.SendExit))
        self.hit(type(self.action), self.owner_of(container))
        self._send(self.action)

    def probe(self, container: str, incarnation: int) -> None:
        self.hit(todo.ProbePort, self.owner_of(container))
        assert self.action is not None
        super().obey(self.action)

    def request(self, number: int, host: str | None, cell: int, demand: Demand) -> None:
        assert isinstance(self.action, todo.RequestContainer)
        self.hit(todo.RequestContainer, job_of(self.action.slot))
        # What comes of it is called by the number that is given next.
        self.owners[f"s_{self.serial + 1}"] = job_of(self.action.slot)
        super().obey(self.action)

    def release(self, skein_id: str) -> None:
        kind = todo.CancelRequest if skein_id in self.waiting else todo.ReleaseContainer
        self.hit(kind, self.owners.get(skein_id, ""))
        self.waiting.pop(skein_id, None)
        self.kill(skein_id)

    def owner_of(self, container: str) -> str:
        known = self.view.containers.get(container)
        return self.owners.get(known.skein_id, "") if known is not None else ""

    # ---- what a test does ----

    def plant(self, kind: type) -> None:
        """Have an effect of the other job fail, each time by another error."""
        self.planted[kind] = ERRORS

    def go_through(self) -> None:
        """Have the other job go through all that a leader does for one."""
        self.grants_nothing = True
        for skein_id in self.others_processes()[:1]:
            self.kill(skein_id)
        self.run(17_000)
        self.grants_nothing = False
        for skein_id in self.others_processes():
            self.processes[skein_id].is_frozen = True
        self.run(4_000)
        self.ask("other", is_wanted=False)
        self.run(15_000)

    def others_processes(self) -> list[str]:
        return [each for each in self.processes if self.owners.get(each) == "other"]

    def is_led(self) -> bool:
        """Return whether the first job is deployed, and failed over when its active dies."""
        self.kill(self.active_process(0).skein_id)
        self.run(8_000)
        return self.job("job").state is JobState.DEPLOYED


def test_every_action_is_carried_out_outside_or_changes_the_view_alone() -> None:
    assert {*get_args(todo.Action)} == {*OUTSIDE, *INWARD, todo.Answer}
    assert {each for each in OUTSIDE.values() if each is not None} == set(EffectKind)


@pytest.mark.parametrize("kind", OUTSIDE, ids=lambda each: each.__name__)
def test_errors_in_an_effect_of_one_job_set_it_aside_and_the_other_is_led(kind: type) -> None:
    lab = Lab()
    if kind is todo.WriteModel:
        lab.plant(kind)
    lab.ask("other")
    lab.run(8_000)
    assert lab.job("job").state is JobState.DEPLOYED
    lab.plant(kind)
    lab.go_through()
    assert lab.hits > 0, "the planted errors were never met"
    assert lab.hits < 100, "tried again without a pause"
    assert lab.is_led()
    assert lab.resigned == []
    expected = EntryKind.EFFECT_FAILED if OUTSIDE[kind] is not None else EntryKind.FENCING_FAILED
    told = [each for each in lab.entries if each.kind is expected]
    assert {each.job for each in told} == {"other"}
    assert all("planted" in str(each.reason) for each in told)
    lab.planted.clear()
    lab.reload()
    lab.run(20_000)
    assert lab.job("other").state is JobState.UNDEPLOYED, lab.job("other").reasons
    assert "other" not in {lab.owners.get(each) for each in (*lab.processes, *lab.waiting)}
    lab.ask("other")
    lab.run(10_000)
    assert lab.job("other").state is JobState.DEPLOYED, lab.job("other").reasons
    assert lab.job("other").faults == {}


def test_status_tells_what_a_job_is_set_aside_for_until_it_is_done() -> None:
    lab = Lab()
    lab.plant(todo.RequestContainer)
    lab.ask("other")
    lab.run(3_000)
    assert "set aside, for containers cannot be requested" in str(lab.job("other").reasons)
    assert "planted" in str(lab.job("other").reasons)
    assert lab.job("job").reasons == ()
    lab.planted.clear()
    lab.run(20_000)
    assert (lab.job("other").state, lab.job("other").reasons) == (JobState.DEPLOYED, ())
    assert EntryKind.EFFECT_DONE in {each.kind for each in lab.entries}


def test_status_says_whether_a_job_cannot_be_fenced_as_long_as_that_is_so() -> None:
    lab = Lab()
    lab.ask("other")
    lab.run(8_000)
    assert lab.statuses["other"].is_unfenceable is False
    assert (lab.statuses["other"].run, lab.statuses["other"].revision) == ("run1", 1)
    lab.plant(todo.FenceTasks)
    lab.ask("other", is_wanted=False)
    lab.run(8_000)
    assert (lab.statuses["other"].state, lab.statuses["other"].is_unfenceable) == ("undeploying", True)
    assert lab.statuses["job"].is_unfenceable is False
    lab.planted.clear()
    lab.run(20_000)
    assert (lab.statuses["other"].state, lab.statuses["other"].is_unfenceable) == ("undeployed", False)


def test_a_leader_passes_its_points_on_both_sides_of_what_is_seen_outside() -> None:
    lab = Lab()
    lab.run(8_000)
    seen: list[tuple[str, int, int]] = []

    def look(point: str) -> None:
        seen.append((point, max(each.record.epoch for each in lab.versions.values()), len(lab.waiting)))

    lab.effects.probe = look
    before, asked = max(each.record.epoch for each in lab.versions.values()), len(lab.waiting)
    lab.kill(lab.active_process(0).skein_id)
    lab.run(8_000)
    failover = [(point, epoch) for point, epoch, _ in seen if point in (WRITING, WRITTEN, ASSIGNING)]
    assert failover[:3] == [(WRITING, before), (WRITTEN, before + 1), (ASSIGNING, before + 1)]
    assert (REQUESTED, asked + 1) in {(point, waiting) for point, _, waiting in seen}


@pytest.mark.parametrize("kind", [todo.WriteRecords, todo.WriteModel, todo.WriteStatus])
def test_who_leads_no_more_resigns(kind: type) -> None:
    lab = Lab()
    lab.planted[kind] = [Fenced("another leader has taken over")]
    lab.ask("other")
    lab.run(1_000)
    assert set(lab.resigned) == {"another leader has taken over"}
    assert not any(each.kind is EntryKind.EFFECT_FAILED for each in lab.entries)


@pytest.mark.parametrize("error", [MemoryError(), BrokenInvariant("planted")])
@pytest.mark.parametrize("kind", [todo.WriteRecords, todo.SendAssignment, todo.RequestContainer])
def test_error_that_breaks_the_process_is_no_trouble_of_a_job(kind: type, error: BaseException) -> None:
    lab = Lab()
    lab.planted[kind] = [error]
    lab.ask("other")
    with pytest.raises(type(error)):
        lab.run(8_000)


def test_error_that_breaks_the_process_ends_it_from_its_threads_too() -> None:
    broken: list[BaseException] = []
    lab = Lab()
    lab.effects.broken = broken.append
    lab.planted[todo.FenceTasks] = [MemoryError()]
    lab.effects._fence(todo.FenceTasks(1, "other", ()))
    assert [type(each) for each in broken] == [MemoryError]
    lab.effects._writer_failed(BrokenInvariant("planted"))
    lab.effects._writer_failed(ValueError("planted"))
    assert [type(each) for each in broken] == [MemoryError, BrokenInvariant]


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        *((each, Blame.JOB) for each in ERRORS),
        (Transient("x"), Blame.JOB),
        (Fenced("x"), Blame.LEADERSHIP),
        (BrokenInvariant("x"), Blame.PROCESS),
        (MemoryError(), Blame.PROCESS),
        (KeyboardInterrupt(), Blame.PROCESS),
        (SystemExit(1), Blame.PROCESS),
    ],
    ids=lambda each: type(each).__name__,
)
def test_whom_an_error_concerns(error: BaseException, whose: Blame) -> None:
    assert blame(error) is whose
