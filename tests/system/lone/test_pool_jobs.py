"""Jobs that share a pool: they come, go and come again, and each is placed, counts and fails over for itself.

What fails again and again in one of them, a record or a process, and a changelog that was made again.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.cimpl import NewTopic

from demo.scenario import now_ms
from demo.standing import Replica, Status
from demo.topics import read_committed
from embedded.cluster import LocalCluster
from standby.shared import naming
from tests.patience import looks
from tests.system.lone.pool_job import JobOnPool, pool_of, wait_until_all_wait
from tests.system.lone.pool_lab import PoolOnLoopback, host
from tests.system.yarn.counting import Pair, some
from tests.topics import create_again

#: Two jobs of a processor with a standby each need a process for every copy, half of them in each zone. With one more,
#: whatever processes the copies of a processor come to, those of another one find two hosts.
NODES = {0: 0, 1: 1, 2: 2, 3: 1, 4: 0}

#: Keys and values of several scripts, of no letters at all, and of none.
TEXTS = ("Zürich", "東京", "Ω≈ç√", "👩🏽‍🚀", "naïve résumé", "line\nbreak", "", "\u200b", "a\x00b", "ﷺ")
PAIRS = [(key.encode(), value.encode()) for value in TEXTS for key in TEXTS]

ZONES = {host(0): "Süd", host(1): "北", host(2): "Süd"}

IN_ZONES: dict[str, Any] = {
    "job.container.count": "1",
    "yarn.host.attributes": [f"{each}=zone:{zone}" for each, zone in ZONES.items()],
    "job.locality.spread": "zone",
}


@pytest.fixture(scope="module")
def started(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolOnLoopback]:
    with pool_of(cluster, tmp_path_factory.mktemp("jobs"), NODES) as pool:
        yield pool


@pytest.fixture
def pool(started: PoolOnLoopback) -> PoolOnLoopback:
    """The pool, when none of its processes is claimed."""
    wait_until_all_wait(started)
    return started


def test_each_job_lives_for_itself_and_its_name_may_differ_in_dots_only(pool: PoolOnLoopback) -> None:
    with ExitStack() as ends, ExitStack() as end_of_two:
        # Of one task, and of two.
        one = JobOnPool(pool, "name_a.b-c", 1, "in_put.a-b", **IN_ZONES)
        two = JobOnPool(pool, "name.a_b-c", 2, "in-put.a_b", **IN_ZONES)
        ends.callback(one.close)
        end_of_two.callback(two.close)
        one.deploy()
        two.deploy()
        each_is_placed_counts_and_fails_over_for_itself(one, two)
        before = one.epochs
        update_at_submit_stops_what_runs_and_starts_it_anew_with_its_run(two)
        killed_job_goes_on_where_it_was(one, two)
        assert one.epochs == before, "the other job has not noticed"
        run, directories = two.run_id, state_directories(two)
        assert all(any(each.rglob(run)) for each in directories)
        end_of_two.close()
        assert statuses(one) == {one.name: "deployed"}
        # What a former copy left elsewhere goes with the next process there that serves tasks.
        assert not any(any(each.rglob(run)) for each in directories), "its state is gone"
        assert one.epochs == before, "nor of the end"
        one.produce(0, PAIRS)
        one.assert_exact()


def fail_over(job: JobOnPool, task: int) -> None:
    """Kill a task's active, and wait until the standby has followed it."""
    standby = job.replica(task, active=False)
    job.send(job.replica(task, active=True), signal.SIGKILL)
    job.wait(lambda status: status.tasks[task].active == standby.copy, "the standby as active")


def each_is_placed_counts_and_fails_over_for_itself(one: JobOnPool, two: JobOnPool) -> None:
    for job in (one, two):
        for task in job.wait_whole().tasks:
            assert len({ZONES[each.host or ""] for each in task.replicas}) == 2, f"{task}\n{job.story()}"
    before = two.epochs
    one.produce(0, PAIRS)
    one.assert_exact()
    fail_over(one, 0)
    one.produce(0, reversed(PAIRS))
    one.assert_exact()
    two.assert_exact()
    assert two.epochs == before
    # Of a partition that has never had a record.
    fail_over(two, 1)
    two.produce(0, PAIRS)
    two.produce(1, [(b"zum ersten Mal", b"1")])
    two.assert_exact()


def update_at_submit_stops_what_runs_and_starts_it_anew_with_its_run(two: JobOnPool) -> None:
    run, before = two.run_id, {each.container for task in two.status.tasks for each in task.replicas}
    assert "runs already in" in two.refused()
    said = two.deploy("--update", "--set", "job.hotstandby.enabled=false", "--json")
    assert '"copies": 1' in said
    assert two.run_id == run
    assert before.isdisjoint(each.container for task in two.status.tasks for each in task.replicas)
    two.produce(1, [(b"zum zweiten Mal", b"1")])
    two.assert_exact()


def killed_job_goes_on_where_it_was(one: JobOnPool, two: JobOnPool) -> None:
    two.standfast("kill", two.name)
    one.produce(0, PAIRS)
    two.produce(0, PAIRS)
    one.assert_exact()
    assert statuses(one) == {one.name: "deployed", two.name: "undeployed"}
    assert "undeployed" in two.standfast("status", two.name, status=1)
    two.deploy()
    two.assert_exact()


def state_directories(job: JobOnPool) -> set[Path]:
    """Return those of the nodes that have a copy of a job: their processes run below them."""
    pids = {each.pid for task in job.status.tasks for each in task.replicas}
    return {Path(psutil.Process(each).cwd()).parents[2] for each in pids if each is not None}


def statuses(each: JobOnPool) -> dict[str, str]:
    """Return the cluster's jobs, and how they are."""
    return {found["job"]: found["status"] for found in json.loads(each.standfast("jobs", "--json"))}


# ---- what fails again and again ----

POISON = [(b"poisoned", b"poison")]


def test_failing_record_becomes_a_dead_letter_and_a_failing_processor_is_parked(pool: PoolOnLoopback) -> None:
    """Two processors of one task; one that fails twice is parked."""
    settings = {
        "task.on.error.attempts": "2",
        "task.on.error": "dead-letter",
        "task.dead.letter": "letters-dead",
        "job.container.count": "2",
        "cluster-manager.container.retry.count": "1",
        "cluster-manager.container.retry.exhausted": "park",
    }
    with closing(JobOnPool(pool, "letters", 2, **settings)) as job:
        job.deploy()
        job.wait_whole()
        failing_record_becomes_one_dead_letter_and_kills_no_replica(job)
        processor_that_fails_too_often_is_parked_and_comes_back_when_asked(job)


def places(status: Status) -> set[tuple[int, int, str | None]]:
    return {(each.partition, copy.copy, copy.container) for each in status.tasks for copy in each.replicas}


def failing_record_becomes_one_dead_letter_and_kills_no_replica(job: JobOnPool) -> None:
    begun, before = now_ms(), places(job.status)
    job.produce(0, some(100, 7))
    job.produce(0, POISON, counts=False)
    job.produce(0, some(100, 7, 100))
    job.produce(1, [(b"other", b"1")])
    job.assert_exact()
    (letter,) = job.dead_letters()
    assert [(letter.key, letter.value)] == POISON
    given_up = job.wait_for_event("record_given_up", begun)
    data = given_up.data or {}
    assert (data["topic"], data["partition"], data["offset"]) == (job.topic, 0, 100)
    assert (data["how"], given_up.reason) == ("dead-letter", "ValueError: a poisoned record")
    shown = job.wait(
        lambda status: any(each.dead_lettered == 1 for each in status.tasks[0].replicas), "a dead letter"
    )
    assert sum(each.skipped for each in shown.tasks[0].replicas) == 0
    assert places(job.status) == before
    assert not {"container_lost", "replica_failed"} & job.kinds(begun)
    assert [each.kind for each in job.events(begun)].count("record_given_up") == 1


def processor_that_fails_too_often_is_parked_and_comes_back_when_asked(job: JobOnPool) -> None:
    begun = now_ms()
    other = job.replica(0, active=True)
    victim = job.replica(1, active=False)
    job.send_alone(victim, signal.SIGSEGV)
    back = job.wait(
        lambda status: container_of(status, 1, victim.copy) not in (None, victim.container), "a new one"
    )
    job.send_alone(replica_of(back, 1, victim.copy), signal.SIGSEGV)
    parked = job.wait_for_event("processor_parked", begun)
    assert "failed 2 times within 300000 ms, 1 are allowed" in (parked.reason or "")
    job.produce(1, [(b"parked " + key, value) for key, value in some(30, 3, 500)])
    job.wait(lambda status: status.tasks[1].active is None, "the task without an active")
    status = job.wait(lambda status: status.jobs[0].status == "incomplete", "incomplete")
    assert any("parked" in each for each in status.jobs[0].reasons), status.jobs[0].reasons
    job.produce(0, some(30, 7, 300))
    job.assert_exact({0})
    assert job.replica(0, active=True).container == other.container, "the rest of the job runs on"
    job.client.call("unpark", job=job.name, processor=(parked.data or {})["processor"])
    job.wait_whole()
    job.assert_exact()


def replica_of(status: Status, partition: int, copy: int) -> Replica:
    return next(each for each in status.tasks[partition].replicas if each.copy == copy)


def container_of(status: Status, partition: int, copy: int) -> str | None:
    found = replica_of(status, partition, copy)
    return found.container if found.in_sync else None


# ---- a topic that was made again ----

COMPACTED = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(8 << 20),
    "delete.retention.ms": "86400000",
}


def test_a_changelog_made_again_stops_its_job_until_it_is_accepted_and_state_begins_anew(
    pool: PoolOnLoopback,
) -> None:
    with closing(JobOnPool(pool, "remade", 1, **{"job.container.count": "1"})) as job:
        job.deploy()
        job.wait_whole()
        job.produce(0, some(200, 7))
        job.assert_exact()
        run, begun, before = job.run_id, now_ms(), outputs(job)
        changelog = naming.changelog_topic(job.cluster_name, job.name, "main", run)
        assert set(states(job).values()) == {"same"}
        create_again(job.kafka, NewTopic(changelog, 1, 1, config=COMPACTED))
        job.produce(0, some(50, 7, 250))
        failed = job.wait_for_event("job_status", begun, job=job.name, status="failed")
        assert f"{changelog} was deleted and created again" in (failed.reason or "")
        assert f"standfast topics {job.name} --accept {changelog}" in (failed.reason or "")
        assert "was deleted and created again" in job.standfast("status", job.name, status=1)
        kept = [each for each in pool.directory.rglob("rocksdb") if run in each.parts]
        assert len(kept) == 2, "the state of both copies is still there"
        assert list(read_committed(job.kafka, changelog)) == [], "nothing is wiped, nor written"
        assert outputs(job) == before
        assert f"{changelog} was deleted and created again" in job.refused()
        assert states(job)[changelog] == "made again"
        assert "begins with what it holds" in job.told("topics", job.name, "--accept", changelog)
        job.deploy()
        # What waited since the changelog was made again, where the input was.
        anew = counted(some(50, 7, 250))
        assert await_outputs(job, 250) == {key: [*before[key], *anew.get(key, [])] for key in before}
        assert set(states(job).values()) == {"same"}


def outputs(job: JobOnPool) -> dict[bytes, list[bytes]]:
    """Return what the output topic has, by key."""
    found: dict[bytes, list[bytes]] = {}
    for each in read_committed(job.kafka, f"{job.topic}-out"):
        found.setdefault(each.key, []).append(each.value or b"")
    return found


def await_outputs(job: JobOnPool, records: int) -> dict[bytes, list[bytes]]:
    """Return the outputs once there are so many."""
    found: dict[bytes, list[bytes]] = {}
    for _ in looks():
        found = outputs(job)
        if sum(map(len, found.values())) >= records:
            return found
    raise AssertionError(f"{found}\n{job.story()}")


def states(job: JobOnPool) -> dict[str, str]:
    """Return topic → how it compares with what the run has recorded, by the command."""
    shown = json.loads(job.standfast("topics", job.name, "--json", status=None))
    return {each["topic"]: each["state"] for each in shown["topics"]}


def counted(given: Iterable[Pair]) -> dict[bytes, list[bytes]]:
    """Return what the job puts out for records when it has counted no others."""
    counts, found = Counter[bytes](), dict[bytes, list[bytes]]()
    for key, value in given:
        counts[key] += 1
        found.setdefault(key, []).append(b"%d %s" % (counts[key], value))
    return found
