"""Whatever fails in whatever order: no invariant is broken on the way, and the job is whole again after."""

from __future__ import annotations

import signal
from collections import Counter

import hypothesis.strategies as st
from hypothesis import example, given, settings

from appmaster.planning.placement.spread import next_steps, stands_of
from appmaster.planning.plan import plan
from appmaster.planning.state.job import OnExhausted, PlannerPolicy
from appmaster.planning.state.view import Operation
from standby.shared.exits import ProcessEnd, Ran
from standby.shared.model import NodeOffer
from tests.examples import examples
from tests.fakes.yarn import FakeCluster

FAULTS = st.sampled_from(
    (
        *("kill", "crash", "freeze", "disk", "thaw", "silent", "loud", "return", "elect", "refuse", "launch"),
        *("launch-ok", "fail-over", "drain", "admit", "upgrade", "more-standbys", "fewer-standbys"),
        *("more-containers", "fewer-containers", "more-tasks", "wait", "wait-long"),
    )
)
OF_JOB = ("code", "code", "kill-job", "submit", "unpark", "no-names", "names")
OF_CELLS = st.sampled_from(["lose-cell", "orphan-cell", "return-cell", "return-cell"])
OF_POOL = st.sampled_from(
    (
        *("kill", "crash", "silent", "loud", "loud", "return", "elect", "fail-over", "drain", "admit"),
        *("wait", "wait-long"),
    )
)


def change(cluster: FakeCluster, what: str, which: int) -> None:
    """Ask for something that is no fault."""
    if what == "fail-over":
        cluster.command(Operation.HAND_OVER, which % cluster.containers)
    elif what == "drain":
        cluster.drain(cluster.hosts[which % len(cluster.hosts)])
    elif what == "admit":
        cluster.drain()
    elif what == "upgrade":
        cluster.load(revision=cluster.revision + 1)
    elif what == "more-standbys":
        cluster.load(standbys=min(2, cluster.standbys + 1))
    elif what == "fewer-standbys":
        cluster.load(standbys=max(0, cluster.standbys - 1))
    elif what == "more-containers":
        cluster.load(containers=min(4, cluster.containers + 1))
    elif what == "fewer-containers":
        cluster.load(containers=max(3 if cluster.is_mixed else 1, cluster.containers - 1))
    elif what == "more-tasks":
        cluster.load(tasks=min(6, cluster.tasks + 1))


def suffer_job(cluster: FakeCluster, what: str, which: int) -> None:
    processes = sorted(cluster.processes.values(), key=lambda each: each.container)
    if what == "code" and processes:
        process = processes[which % len(processes)]
        ran = tuple(Ran(each, 10) for each in cluster.view.actives_in(process.container)[:1])
        cluster.crash(process.skein_id, ProcessEnd(-signal.SIGSEGV, ran))
    elif what == "kill-job":
        cluster.undeploy()
    elif what == "submit":
        submit(cluster)
    elif what == "unpark":
        unpark(cluster)
    elif what in ("no-names", "names"):
        cluster.refuses_names = what == "no-names"
    cluster.run(100)


def unpark(cluster: FakeCluster) -> None:
    for each in cluster.view.jobs["job"].model.parked:
        cluster.command(Operation.UNPARK, each.number)


def submit(cluster: FakeCluster) -> None:
    """Submit the job again, with mended code if it has failed."""
    cluster.is_wanted = True
    cluster.load(revision=cluster.revision + (cluster.view.jobs["job"].failure is not None))


def suffer(cluster: FakeCluster, fault: str, which: int) -> None:
    processes = sorted(cluster.processes.values(), key=lambda each: each.container)
    hosts = sorted(cluster.hosts)
    host = hosts[which % len(hosts)]
    if fault in ("kill", "crash") and processes:
        end = cluster.kill if fault == "kill" else cluster.crash
        end(processes[which % len(processes)].skein_id)
    elif fault in ("freeze", "disk") and processes:
        process = processes[which % len(processes)]
        process.is_frozen, process.waits_for_disk = True, fault == "disk"
    elif fault == "thaw":
        for each in processes:
            each.is_frozen = False
    elif fault == "silent" and host in cluster.up:
        cluster.lose_host(host, silent=True)
    elif fault == "loud":
        cluster.lose_host(host, silent=False)
    elif fault == "return":
        cluster.return_host(host)
    elif fault == "elect":
        cluster.elect(cluster.view.epoch + 1)
    elif fault == "refuse":
        cluster.refuses_writes += 1
    elif fault == "launch":
        cluster.fails_at_launch = lambda each: each == host
    elif fault == "launch-ok":
        cluster.fails_at_launch = lambda each: False
    else:
        change(cluster, fault, which)
    cluster.run(6_000 if fault == "wait-long" else 700 if fault == "wait" else 100)


def suffer_cells(cluster: FakeCluster, fault: str, cell: int) -> None:
    if fault == "return-cell":
        for each in set(cluster.cells).difference(cluster.attempts):
            cluster.return_cell(each)
    elif cell in cluster.attempts:
        cluster.lose_cell(cell, runs_on=fault == "orphan-cell")
    cluster.run(100)


@settings(max_examples=examples(16))
@given(
    faults=st.lists(st.tuples(FAULTS | st.sampled_from(OF_JOB), st.integers(0, 7)), max_size=14),
    shape=st.sampled_from([(1, 1, 1), (4, 2, 1), (5, 2, 2), (3, 3, 0)]),
    kind=st.sampled_from(["promote", "restart", "mixed"]),
)
# Of two mixed containers on a host one is to be started anew, and the other took what it gave up, and gave it back.
@example(
    [("kill", 0), ("kill", 0), ("kill", 0), ("more-containers", 0), ("wait-long", 0), ("upgrade", 0)],
    (5, 2, 2),
    "mixed",
)
# A new leader has not heard of a frozen container yet, and must know all the same on which host it is.
@example(
    [("kill", 0), ("kill", 0), ("freeze", 0), ("elect", 0), ("freeze", 1), ("wait-long", 0)],
    (1, 1, 1),
    "promote",
)
# Records that do not exist yet are refused together with one that does.
@example([("refuse", 0), ("more-tasks", 0), ("refuse", 0)], (1, 1, 1), "promote")
# What a process died of is recorded with the decision that withdraws its tasks.
@example(
    [("wait-long", 0), ("code", 0), ("wait-long", 0), ("code", 1), ("wait-long", 0)], (1, 1, 1), "promote"
)
# A failover is under way when the job is killed.
@example([("wait-long", 0), ("kill", 0), ("kill-job", 0)], (1, 1, 1), "promote")
# The host of a displaced standby cannot be requested.
@example([("wait-long", 0), ("loud", 0), ("no-names", 0), ("wait-long", 0)], (1, 1, 1), "restart")
def test_every_task_is_whole_again_after_any_faults(
    faults: list[tuple[str, int]], shape: tuple[int, int, int], kind: str
) -> None:
    tasks, containers, standbys = shape
    is_mixed = kind == "mixed"
    # The budget is a subject of its own; here it must not end the story.
    policy = PlannerPolicy(
        retry_count=-1, restarts=kind == "restart", error_attempts=2, on_exhausted=OnExhausted.PARK
    )
    cluster = FakeCluster(
        tasks=tasks,
        containers=max(containers, 3) if is_mixed else containers,
        standbys=standbys,
        is_mixed=is_mixed,
        policy=policy,
    )
    for fault, which in faults:
        (suffer_job if fault in OF_JOB else suffer)(cluster, fault, which)
    cluster.fails_at_launch = lambda host: False
    cluster.refuses_writes = 0
    cluster.refuses_names = False
    cluster.drain()
    for process in cluster.processes.values():
        process.is_frozen = False
    for host in cluster.hosts:
        cluster.return_host(host)
    submit(cluster)
    cluster.run(60_000)
    # An upgrade ends, too, and what was parked runs again.
    cluster.load(revision=cluster.revision + 1)
    unpark(cluster)
    cluster.run(90_000)
    assert cluster.is_whole(), cluster.view
    revisions = {each.revisions["job"] for each in cluster.processes.values() if each.replicas}
    assert revisions == {cluster.revision}
    assert not cluster.view.failovers
    assert not cluster.view.handovers
    assert cluster.view.jobs["job"].state.value == "deployed", cluster.view.jobs["job"]
    assert plan(cluster.view) == ()  # a settled cluster is left alone
    if not cluster.view.unsettled:
        assert next_steps(stands_of(cluster.view, cluster.view.jobs["job"])) == [], (
            "actives are spread evenly"
        )


@settings(max_examples=examples(12))
@given(
    faults=st.lists(st.tuples(FAULTS | OF_CELLS, st.integers(0, 7)), max_size=10),
    kind=st.sampled_from(["promote", "restart", "mixed"]),
)
def test_every_task_is_whole_and_in_two_cells_again_after_cells_were_lost_too(
    faults: list[tuple[str, int]], kind: str
) -> None:
    is_mixed = kind == "mixed"
    cluster = FakeCluster(
        tasks=3,
        containers=3 if is_mixed else 2,
        is_mixed=is_mixed,
        policy=PlannerPolicy(retry_count=-1, restarts=kind == "restart"),
        cells=(1, 2),
    )
    for fault, which in [*faults, ("return-cell", 0), ("launch-ok", 0), ("admit", 0), ("thaw", 0)]:
        if fault.endswith("-cell"):
            suffer_cells(cluster, fault, 1 + which % 2)
        else:
            suffer(cluster, fault, which)
    cluster.refuses_writes = 0
    for host in cluster.hosts:
        cluster.return_host(host)
    # Nothing of an ended attempt is left to run for ever.
    for each in {each.attempt for each in cluster.processes.values()} - set(cluster.attempts.values()):
        cluster.end_attempt(each)
    cluster.run(120_000)
    assert cluster.is_whole(), cluster.view
    assert plan(cluster.view) == ()
    if cluster.standbys and not is_mixed:
        for recorded in cluster.versions.values():
            if cluster.view.processor_of(recorded.record.task) in cluster.view.unsettled:
                continue  # its tasks' actives are different copies: spread anew only when they lie alike
            held = [cluster.by_container(name) for name in recorded.record.placed.values()]
            assert len({each.cell for each in held if each is not None}) == 2


@settings(max_examples=examples(20))
@given(
    places=st.lists(st.permutations(range(4)), min_size=1, max_size=4),
    standbys=st.sampled_from([1, 1, 2]),
    faults=st.lists(st.tuples(OF_POOL, st.integers(0, 7)), max_size=10),
    kind=st.sampled_from(["promote", "restart", "mixed"]),
)
def test_a_pool_that_is_just_large_enough_is_whole_again_after_any_faults(
    places: list[list[int]], standbys: int, faults: list[tuple[str, int]], kind: str
) -> None:
    """``places``: hosts of the copies of each processor, or task; there is no other process, and no other room."""
    room = Counter(f"h{host}" for each in places for host in each[: 1 + standbys])
    is_mixed = kind == "mixed"
    cluster = FakeCluster(
        tasks=len(places),
        containers=len(room) if is_mixed else len(places),
        standbys=standbys,
        is_mixed=is_mixed,
        hosts=tuple(sorted(room)),
        capacity=1,
        capacities={} if is_mixed else room,
        offers={each: NodeOffer(tasks=tasks) for each, tasks in room.items()} if is_mixed else {},
        policy=PlannerPolicy(retry_count=-1, restarts=kind == "restart"),
        cells=(1,),
        is_pool=True,
    )
    for fault, which in [*faults, ("admit", 0)]:
        suffer(cluster, fault, which)
    for host in cluster.hosts:
        cluster.return_host(host)
    cluster.settle(180_000)
    assert plan(cluster.view) == ()
