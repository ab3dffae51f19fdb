"""The time of a takeover by a new leader, by the number of task records: ``python -m benchmarks.takeover``.

Three ZooKeeper servers on this machine have a deployed job of 100, 1,000 and 10,000 tasks with a standby each (20
tasks per container, containers registered), and the record of a leader whose port refuses connections. A candidate
takes over that record with the code of production: election, cells, records, events, the first turn with its
invariants. The cells' AMs are fakes that answer at once; their part does not grow with the tasks. Times count from
the check that finds the port closed: until the epoch is raised; until the containers' registrations and all records
are read; and until the end of the first turn, after which the leader decides and gives orders. Writes JSON with every
round, and a picture of the medians.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.kafka import Topics
from appmaster.adapters.zookeeper.jobs import ZooKeeperJobs
from appmaster.adapters.zookeeper.registry import ZooKeeperRegistry
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.driver import Driver
from appmaster.effects import LeaderEffects, Replies
from appmaster.eventlog.entries import LogEntry
from appmaster.leadership.candidate import Candidate
from appmaster.leadership.cells import Cells
from appmaster.leadership.election import Election
from appmaster.leadership.ports import RegisteredContainer
from appmaster.leadership.yarn_ids import attempt_of, grant_id
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import Action, RecordWrite
from appmaster.planning.state.events import Event
from appmaster.planning.state.view import ClusterView
from appmaster.records import CellRecord, Loaded, StatusRecord
from benchmarks.contest import Results, say
from benchmarks.planner import World
from benchmarks.report import Measure, Report
from locality.fit import Demand, PoolProcess
from standby.errors import Fenced
from standby.shared import naming, records
from standby.shared.clock import REAL, boot_ms
from standby.shared.records import ContainerRecord, ControllerRecord
from standby.shared.wire import JobDefinition
from standby.threads.inbox import Inbox
from tests.servers.ensemble import Ensemble

#: Records in one transaction during the preparation.
_WRITES: Final = 500

_SESSION_MS: Final = 10_000

_CELLS: Final = (1, 2)

_CONFIG: Final = {
    "job.name": "job",
    "task.inputs": "in",
    "task.transform": "module:function",
    "task.step": "module:function",
    "zookeeper.connect": "zk:2181",
    "kafka.bootstrap.servers": "kafka:9092",
    "job.hotstandby.enabled": "true",
}

_MEASURES: Final[tuple[Measure, ...]] = (
    ("total_ms", "take-over, ms", 1.0),
    ("seizure_ms", "of it until the epoch is raised, ms", 1.0),
    ("registrations_ms", "reading containers' registrations, ms", 1.0),
    ("records_ms", "reading records, ms", 1.0),
    ("turn_ms", "the first turn, ms", 1.0),
)


class Silent:
    """A fake of the control port: it does not listen, and drops every message."""

    def learn(self, container: str, host: str, port: int) -> None:
        """Ignore an address."""

    def send(self, container: str, incarnation: int, message: object) -> None:
        """Drop an order."""

    def probe(self, container: str, incarnation: int) -> None:
        """Drop a question."""


class Connection:
    """A fake of a cell's Skein AM that answers at once."""

    def __init__(self, number: int, attempt: str, stage: Stage) -> None:
        self.hosts = stage.hosts
        self.full: frozenset[str] = frozenset()
        self.note = ""
        self.owed: set[str] = set()
        self._expected = tuple(
            happened.ContainerExpected(each, grant_id(attempt, each), REAL.monotonic_ms(), number, attempt)
            for each in stage.containers.values()
            if attempt_of(each) == attempt
        )

    def connect(self) -> None:
        """Be connected."""

    def expected(self) -> tuple[happened.ContainerExpected, ...]:
        """Return what runs."""
        return self._expected

    def start(self) -> None:
        """Watch nothing: nothing changes."""

    stop = close = start

    @property
    def processes(self) -> tuple[PoolProcess, ...]:
        """Return nothing: it is no pool."""
        return ()

    def request(self, number: int, host: str | None, demand: Demand) -> None:
        """Grant nothing."""

    def release(self, granted: str) -> bool:
        """Take a container back."""
        return True

    def finish(self, *, succeeded: bool, diagnostics: str) -> None:
        """End nothing."""


class Stage:
    """A deployed job of ``tasks`` tasks as it is in ZooKeeper, made by the planner itself."""

    def __init__(self, connect: str, tasks: int) -> None:
        self.tasks = tasks
        self.name = f"takeover{tasks}"
        self.connect = connect
        world = World(tasks)
        world.settle()
        self.hosts = world.hosts
        copies = {
            name: copy for each in world.view.records.values() for copy, name in each.record.placed.items()
        }
        # Each cell has one copy of every task, as in a cluster of two.
        self.containers = {
            each: f"{attempt(_CELLS[copy])}_{index:06}"
            for index, (each, copy) in enumerate(sorted(copies.items()))
        }
        self._hosts = {name: world.view.containers[each].host for each, name in self.containers.items()}
        self._job = world.view.jobs["job"]
        self._records = [
            replace(
                each.record,
                placed={copy: self.containers[name] for copy, name in each.record.placed.items()},
            )
            for each in world.view.records.values()
        ]

    def set(self) -> ZooKeeper:
        """Write all of it; return the session of the leader that wrote it, dead because its port refuses."""
        leader = ZooKeeper(self.connect, self.name, _SESSION_MS)
        leader.connect()
        leader.tree.prepare()
        definition = JobDefinition("job", "run", _config(self.tasks), "changelog", "group", self.tasks)
        leader.changes.submit(leader.changes.first_submit(definition))
        for number in _CELLS:
            leader.cells.claim(number, CellRecord(f"a{number}", "me", attempt(number), "127.0.0.1:1"))
        assert leader.election.lead(ControllerRecord("dead", "127.0.0.1", 1, 0)) is not None
        assert leader.records.write_model(replace(self._job.model, znode=-1), "main") is not None
        leader.records.write_status("job", StatusRecord("deployed"))
        for first in range(0, len(self._records), _WRITES):
            some = [RecordWrite(each, None) for each in self._records[first : first + _WRITES]]
            assert leader.records.write_tasks(some) is not None
        pending = []
        for number, (container, host) in enumerate(self._hosts.items()):
            cell = next(each for each in _CELLS if attempt(each) == attempt_of(container))
            record = ContainerRecord(container, container, cell, host, 1 + number, 0, number, 1, "")
            path = naming.container_path(self.name, container)
            pending.append(leader.client.create_async(path, records.encode(record), ephemeral=True))
        for each in pending:
            each.get()
        return leader


def attempt(cell: int) -> str:
    """Return the attempt of a cell's application, named as in YARN."""
    return f"container_e01_1700000000000_000{cell}_01"


def _config(tasks: int) -> Mapping[str, str]:
    return {**_CONFIG, "job.container.count": str(tasks // 20)}


class Spent:
    """The durations of the longest reads of a takeover, milliseconds."""

    def __init__(self) -> None:
        self.ms = {"registrations_ms": 0.0, "records_ms": 0.0}

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count what is done meanwhile."""
        begun = time.perf_counter()
        yield
        self.ms[what] += (time.perf_counter() - begun) * 1000


class TimedRegistry(ZooKeeperRegistry):
    """Knows how long it was read."""

    def __init__(self, client: Any, cluster: str, spent: Spent) -> None:
        super().__init__(client, cluster)
        self._spent = spent

    def registrations(self) -> tuple[RegisteredContainer, ...]:
        """Return the registered processes."""
        with self._spent.timed("registrations_ms"):
            return super().registrations()


class TimedJobs(ZooKeeperJobs):
    """Knows how long it was read."""

    def __init__(self, client: Any, cluster: str, spent: Spent) -> None:
        super().__init__(client, cluster)
        self._spent = spent

    def load(
        self, name: str, watch: Callable[[], None] | None = None, *, has_tasks: bool = True
    ) -> Loaded | None:
        """Return all records of a job."""
        with self._spent.timed("records_ms"):
            return super().load(name, watch, has_tasks=has_tasks)


def take_over(stage: Stage, leaders: ExitStack) -> dict[str, float]:
    """Return the times of one takeover, milliseconds; the dead leader of the next one is added to ``leaders``."""
    found: dict[str, float] = {}
    inbox: Inbox[Event] = Inbox()
    actions: list[Action] = []

    def carried_out(action: Action, view: ClusterView) -> None:
        actions.append(action)

    def tell(entry: LogEntry, view: ClusterView) -> None:
        pass

    def turned(seconds: float) -> None:
        found.setdefault("total_ms", (time.perf_counter() - begun) * 1000)
        found.setdefault("turn_ms", seconds * 1000)
        election.leave("its first turn is done")

    zookeeper, spent = ZooKeeper(stage.connect, stage.name, _SESSION_MS), Spent()
    zookeeper.registry = TimedRegistry(zookeeper.client, stage.name, spent)
    zookeeper.jobs = TimedJobs(zookeeper.client, stage.name, spent)
    with zookeeper:
        me = ControllerRecord("successor", "127.0.0.1", 2, 0)
        election = Election(zookeeper.election, me, tuple, boot_ms, _SESSION_MS)
        driver = Driver(inbox, carried_out, tell, turned=turned, may_act=lambda: election.is_leader)

        def connection(number: int, record: CellRecord, lost: Callable[[str], None]) -> Connection:
            return Connection(number, record.attempt, stage)

        cells = Cells(zookeeper.cells, connection, inbox.post, REAL, own=1)
        control: Any = Silent()
        effects = LeaderEffects(
            inbox.post,
            REAL,
            zookeeper.records,
            cells,
            control,
            lambda _: None,
            resign=election.leave,
            reload=lambda: None,
            replies=Replies(inbox.post, REAL),
        )
        candidate = Candidate(zookeeper, cells, effects, driver, inbox, election, REAL, Topics)
        begun = time.perf_counter()
        epoch = election.enter()
        found["seizure_ms"] = (time.perf_counter() - begun) * 1000
        with suppress(Fenced):  # it has left
            candidate.lead(epoch)
        found |= spent.ms
        assert len(driver.view.records) == stage.tasks, driver.view.jobs
        assert len(driver.view.containers) == len(stage.containers)
        cells.stop()
        effects.writer.close()
        effects.writer.join(5.0)
        # The next takeover finds a dead leader again, whose session has not ended.
        stale = ZooKeeper(stage.connect, stage.name, _SESSION_MS)
        stale.connect()
        leaders.callback(stale.close)
        assert stale.election.lead(
            ControllerRecord("dead", "127.0.0.1", 1, 0), depose=zookeeper.election.controller()
        )
    return found


def _measure(arguments: argparse.Namespace, results: Results) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        Ensemble(Path(directory), arguments.servers) as ensemble,
        ExitStack() as leaders,
    ):
        for tasks in arguments.tasks:
            say(_name(tasks))
            with results.attempt(_name(tasks)):
                stage = Stage(ensemble.connect, tasks)
                leaders.callback(stage.set().close)
                # The first round warms the servers and this process.
                take_over(stage, leaders)
                for _ in range(arguments.rounds):
                    results.add(_name(tasks), take_over(stage, leaders))


def _name(tasks: int) -> str:
    return f"{tasks:,} tasks"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0, 1 if a number of tasks could not be measured, or the exit status of what ended it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.takeover", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--tasks", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--servers", type=int, default=3, help="of ZooKeeper")
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks/takeover.json"))
    arguments = parser.parse_args(argv)
    report = Report(arguments.output, "A take-over, by number of task records", _MEASURES, arguments)
    return report.carry_out(
        lambda: _measure(arguments, report.case("take-over", [_name(each) for each in arguments.tasks]))
    )


if __name__ == "__main__":
    sys.exit(main())
