"""A topic that was deleted and created again under its name is never taken for the old one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from standby.kernel.ports import WriterLost
from standby.kernel.store import places
from standby.replica.store.keys import is_own, split
from standby.shared.model import Fault, Phase, Role, TaskId, TopicIdentity
from tests.fakes import ledger_job
from tests.memory_lab import MakeLab, MemoryContainer, MemoryLab

#: As a run has recorded them at its beginning.
RECORDED = {each: TopicIdentity(f"id of {each}") for each in ("in", "changelog", "out")}


def of_topics(lab: MemoryLab, topics: Mapping[str, TopicIdentity] = RECORDED) -> MemoryLab:
    lab.definition = replace(lab.definition, topics=topics)
    return lab


@pytest.fixture
def lab(make_lab: MakeLab) -> MemoryLab:
    """A lab whose run has recorded its topics."""
    return of_topics(make_lab())


def run_once(lab: MemoryLab) -> None:
    """Have an active process something, and be gone."""
    lab.begun(40).close()


def submitted_again(lab: MemoryLab, epoch: int = 2, host: str = "a") -> MemoryContainer:
    """Return a container in a process of its own, which is to be active of every task."""
    return lab.container(host).activate(0, epoch, claimed=True)


def state(lab: MemoryLab) -> dict[Path, dict[bytes, bytes]]:
    """Return what lies on the disks: directory → key → value, without what is the kernel's own."""
    return {
        path: {key: value for key, value in found.items() if not is_own(key)}
        for path, found in lab.disk.flushed.items()
        if path.is_dir()
    }


def assert_told(container: MemoryContainer, topic: str) -> None:
    """Fail unless every task comes to its end with the topic named, and what to do."""
    container.await_phase(Phase.FAILED)
    for each in container.statuses():
        assert each.fault is Fault.CHANGED_TOPIC, each.detail
        assert f" {topic} was deleted and created again" in each.detail
        assert f"standfast topics ledger --accept {topic}" in each.detail
    assert container.replicas.broken is None


def committed_in(lab: MemoryLab, topic: str) -> int:
    return sum(len(lab.kafka.committed_records(topic, each.partition)) for each in lab.tasks)


def test_a_changelog_that_is_made_again_under_an_active_gets_no_commit(lab: MemoryLab) -> None:
    """And the state of each replica stays."""
    active, standby = lab.pair()
    outputs = committed_in(lab, "out")
    lab.kafka.make_again("changelog")
    lab.produce(40)
    for each in (active, standby):
        assert_told(each, "changelog")
        each.close()
    assert (committed_in(lab, "changelog"), committed_in(lab, "out")) == (0, outputs)
    assert len(state(lab)) == 2 * len(lab.tasks)
    assert all(state(lab).values())


@pytest.mark.parametrize(
    ("topic", "host", "records"),
    [
        pytest.param("changelog", "a", 40, id="changelog, with state"),
        pytest.param("changelog", "b", 40, id="changelog, without state"),
        pytest.param("in", "a", 0, id="input, empty"),
        pytest.param("in", "a", 200, id="input, has grown"),
    ],
)
def test_a_topic_that_is_made_again_while_the_job_is_down_is_reported_and_no_state_wiped_or_begun(
    lab: MemoryLab, topic: str, host: str, records: int
) -> None:
    run_once(lab)
    before, changes = state(lab), committed_in(lab, "changelog")
    lab.kafka.make_again(topic)
    lab.produce(records)
    again = submitted_again(lab, host=host)
    assert_told(again, topic)
    again.close()
    assert state(lab) == before != {}
    assert committed_in(lab, "changelog") == (0 if topic == "changelog" else changes)


def test_a_changelog_that_was_only_cut_off_is_reported_as_that(lab: MemoryLab) -> None:
    """The other reason why there is nothing at a replica's position."""
    lab.begun(40)
    standby = lab.container("b").want(1, Role.STANDBY, 1, is_paused=True).await_phase(Phase.RESTORING)
    for task in lab.tasks:
        lab.kafka.starts["changelog", task.partition] = 4
    standby.want(1, Role.STANDBY, 1)
    standby.await_all(lambda each: "it begins at offset 4" in each.detail)


def test_an_input_that_is_made_again_and_has_grown_is_not_read_from_its_middle(lab: MemoryLab) -> None:
    active = lab.begun(40)
    changes, outputs = committed_in(lab, "changelog"), committed_in(lab, "out")
    with lab.kafka.lock:
        lab.kafka.make_again("in")
        for _ in range(4):
            lab.produce(40)
    assert_told(active, "in")
    assert (committed_in(lab, "changelog"), committed_in(lab, "out")) == (changes, outputs)


def test_an_output_that_is_made_again_is_written_to(lab: MemoryLab) -> None:
    active = lab.begun(40)
    lab.kafka.make_again("out")
    active.process(40)
    assert committed_in(lab, "out") > 0


def test_a_topic_that_is_missing_is_waited_for_and_reported(lab: MemoryLab) -> None:
    lab.kafka.topic_ids["changelog"] = ""
    active = lab.container("a").activate()
    active.eventually(lambda: any("changelog: there is no such topic" in each for each in active.details))
    del lab.kafka.topic_ids["changelog"]
    active.process(40)
    lab.assert_exact()


def test_questions_without_an_answer_cost_nothing_but_time(lab: MemoryLab) -> None:
    active = lab.begun(40)
    lab.kafka.unanswered["ask_topic_ids"] = 5
    active.process(40)
    lab.assert_exact()


def test_a_changelog_that_was_truncated_is_reported_by_a_replica_that_has_more(lab: MemoryLab) -> None:
    active = lab.begun(40)
    with lab.kafka.lock:
        for task in lab.tasks:
            del lab.kafka.logs["changelog", task.partition][3:]
    lab.produce(40)
    active.await_phase(Phase.FAILED)
    assert all("is lost" in each for each in active.details), active.details


# ---- what was accepted ----


def accepted(lab: MemoryLab, topic: str, start: str = "", topic_id: str = "made again") -> None:
    """Have the run take the present topic for its own, as `standfast topics --accept` does."""
    generation = 1 + max(each.generation for each in lab.definition.topics.values())
    topics = {**lab.definition.topics, topic: TopicIdentity(topic_id, generation, start)}
    lab.definition = replace(lab.definition, topics=topics)


def test_an_accepted_input_is_read_from_its_beginning_once_wherever_a_takeover_breaks_off(
    lab: MemoryLab,
) -> None:
    run_once(lab)
    former = lab.kafka.make_again("in")
    lab.produce(60)
    accepted(lab, "in", "earliest")
    # Shared by the threads of two commits, each of which takes one.
    losses = iter([WriterLost("the broker does not answer")] * 4)

    def break_off() -> None:
        if loss := next(losses, None):
            raise loss

    lab.kafka.before_commit = lab.kafka.after_commit = break_off
    for epoch in (2, 3):
        submitted_again(lab, epoch).await_processed().process(40).close()
    lab.assert_exact(former=former)


def test_an_accepted_changelog_begins_with_what_it_holds_and_the_input_goes_on(lab: MemoryLab) -> None:
    run_once(lab)
    at = {task: len(lab.kafka.logs["in", task.partition]) for task in lab.tasks}
    lab.kafka.make_again("changelog")
    accepted(lab, "changelog")
    for epoch in (2, 3):
        submitted_again(lab, epoch).process(40).close()
    assert_state_of(lab, at)


def assert_state_of(lab: MemoryLab, at: Mapping[TaskId, int]) -> None:
    """Compare the changelog's final state with the model of the input from these offsets on."""
    model = ledger_job.Model()
    for task in lab.tasks:
        log = enumerate(lab.kafka.logs["in", task.partition])
        model.take((offset, each.key or b"", each.value or b"") for offset, each in log if offset >= at[task])
    found = {
        split(key): value
        for task in lab.tasks
        for key, value in lab.kafka.committed_records("changelog", task.partition)
        if not is_own(key)
    }
    assert {key: value for key, value in found.items() if value is not None} == model.state


def test_state_of_a_changelog_that_was_given_up_is_never_used(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays on a disk of its own, and the present changelog grows beyond its position."""
    disks = [tmp_path / each for each in ("one", "two")]
    lab = of_topics(make_lab(**{"job.state.dir": ",".join(map(str, disks))}))
    room = {disks[0]: 2 << 30, disks[1]: 1 << 30}
    monkeypatch.setattr(places, "free_bytes", lambda place: room[disks[place.is_relative_to(disks[1])]])
    active = lab.container("a").activate()
    for _ in range(5):
        active.process(40, keys=11)
    active.close()
    at = {task: len(lab.kafka.logs["in", task.partition]) for task in lab.tasks}
    lab.kafka.make_again("changelog")
    accepted(lab, "changelog")
    room[disks[1]] = 3 << 30
    again = submitted_again(lab).process(40, keys=11)
    for _ in range(10):
        # Of other keys: beyond the former position nothing says what those are.
        again.process(40)
    # Before its position is written down anew.
    again.crash()
    submitted_again(lab, 3).process(60, keys=11)
    assert_state_of(lab, at)


def test_changelog_and_input_accepted_together_begin_the_job_anew(lab: MemoryLab) -> None:
    run_once(lab)
    lab.kafka.make_again("changelog")
    lab.kafka.make_again("in")
    lab.kafka.make_again("out")
    lab.produce(40)
    accepted(lab, "changelog")
    accepted(lab, "in", "earliest")
    submitted_again(lab).await_processed().process(40)
    lab.assert_exact()
