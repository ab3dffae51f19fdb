"""The whole cluster in one seeded scheduler: hosts, YARN, ZooKeeper, Kafka, candidates, containers, and time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from appmaster.leadership.suspicion import PortAnswer
from appmaster.planning.plan import plan
from appmaster.planning.state.model import SpareSlotId
from appmaster.planning.state.view import ClusterView
from standby.errors import BrokenInvariant
from standby.shared.exits import ProcessEnd
from standby.shared.model import Phase, ReplicaId, TaskRecord
from standby.shared.records import ControllerRecord
from tests.simulation.clock import Clock
from tests.simulation.container import Container
from tests.simulation.invariants import Invariants
from tests.simulation.job import NAME, RUN, Job, rack
from tests.simulation.kafka import Log
from tests.simulation.leader import RESTART_MS, Candidate, Told
from tests.simulation.network import Stream
from tests.simulation.pool import ProcessPool
from tests.simulation.process import Host, Process
from tests.simulation.steps import Steps
from tests.simulation.yarn import Listed, Yarn
from tests.simulation.zookeeper import ZooKeeper

#: How long the system may take to be whole and quiet once nothing fails any more.
SETTLE_MS = 45_000

#: How long a connection waits for a process before its witness looks at it.
WITNESS_MS: Final = 100

#: Looked at this often then, and so many times in a row it must be whole.
LOOK_MS: Final = 500
LOOKS: Final = 3


def _squares(places: Iterable[str]) -> int:
    """Return the sum of squares of actives per place; the smallest is the most even."""
    return sum(count * count for count in Counter(places).values())


@dataclass(frozen=True)
class Shape:
    """How large a story's cluster is, and what its job is like."""

    kind: str = "promote"
    """Of failover: ``promote`` or ``restart``; or ``mixed``."""
    tasks: int = 3
    containers: int = 2
    standbys: int = 1
    hosts: int = 3
    cells: int = 2
    spares: int = 0


def shape_of(chance: Random) -> Shape:
    """Return a shape of chance."""
    standbys = chance.choice((1, 1, 1, 2))
    kind = chance.choice(("promote", "promote", "restart", "mixed"))
    tasks = chance.randint(2, 5)
    containers = chance.randint(1, 3) if kind != "mixed" else chance.randint(1 + standbys, 4)
    hosts = min(standbys + 1 + chance.choice((0, 1, 1, 2)), 5)
    return Shape(kind, tasks, containers, standbys, hosts, chance.choice((1, 2, 2)))


class World:
    """One story's cluster."""

    def __init__(
        self, seed: int, shape: Shape | None = None, *, is_pool: bool = False, has_spares: bool = False
    ) -> None:
        """``has_spares``: a random job has spare containers; the story of a seed is another one then."""
        self.clock = Clock(seed)
        chance = self.clock.chance
        shape = shape or shape_of(chance)
        if has_spares:
            shape = replace(shape, spares=chance.choice((1, 1, 2)), hosts=min(shape.hosts + 1, 5))
        self.has_spares = has_spares
        if is_pool:
            shape = replace(shape, cells=1)
        self.is_pool = is_pool
        """Whether there is a pool in place of YARN."""
        self.run_id = RUN
        self.job = Job(
            tasks=shape.tasks,
            containers=shape.containers,
            standbys=shape.standbys,
            is_mixed=shape.kind == "mixed",
            restarts=shape.kind == "restart",
            spares=shape.spares,
        )
        self.hosts = {f"h{each}": Host(f"h{each}") for each in range(1, shape.hosts + 1)}
        self.is_full = is_pool and chance.choice((False, True))
        """Whether the pool has as few processes as the job can do with, on some hosts more than on others."""
        if self.is_full:
            self._fill_up()
        self.master_hosts = [Host("m1"), Host("m2")]
        self.invariants = Invariants(self)
        self.steps = Steps(self)
        self.zookeeper = ZooKeeper(self.clock, self.invariants.written)
        self.logs = {task: Log(self.clock, task) for task in self.job.task_ids()}
        outside = (self.clock, self.hosts, self._launch, self.list_changed, self._am_started)
        self.yarn = ProcessPool(*outside, epoch=lambda: self.zookeeper.epoch) if is_pool else Yarn(*outside)
        self.containers: dict[str, Container] = {}
        self.dismissed: set[str] = set()
        self.candidates: list[Candidate] = []
        self.traps: dict[str, Callable[[Process], None]] = {}
        """Step → what happens to the next process that passes it."""
        self.log: list[Told | str] = []
        """The event log, and the faults between its entries as they began."""
        self.faults_until_ms = 2_000
        self.deaf_until_ms: dict[str, int] = {}
        """Container → until when no leader can be reached from there, while everything else can."""
        self._ports = 7_000
        self._serial = 0
        self._cut_ms: dict[str, int] = {}
        for log in self.logs.values():
            log.grow(chance.choice((0, 10, 100)))
        self.flow()
        self.cells = shape.cells
        for cell in range(1, self.cells + 1):
            self.yarn.start_am(cell)

    # ---- running ----

    def run(self, milliseconds: int) -> None:
        self.clock.run(self.clock.now_ms + milliseconds)

    def settle(self) -> None:
        """Let time pass until the job is whole and its leader quiet; raises `BrokenInvariant` when that never comes."""
        self.is_flowing = False
        deadline, whole = self.clock.now_ms + SETTLE_MS, 0
        while whole < LOOKS:
            self.run(LOOK_MS)
            missing = self.missing()
            whole = 0 if missing else whole + 1
            if self.clock.now_ms > deadline:
                raise BrokenInvariant(f"whole_at_the_end: {missing}")

    def missing(self) -> str:
        """Return what keeps the job from being whole and its leader from being quiet; empty: nothing."""
        leader = self.leader()
        if leader is None:
            return "no leader"
        view, model = leader.view, self.zookeeper.model
        if model is None or not model.processors:
            return "there is no model"
        wanted = 1 + self.job.standbys
        if len(model.processors) != self.processors() or model.copies != wanted:
            return f"the model has {len(model.processors)} processors of {model.copies} copies"
        for task, log in self.logs.items():
            recorded = self.zookeeper.records.get(task)
            if recorded is None:
                return f"{task} has no record"
            missing = self._missing_of(recorded.record, wanted)
            if missing:
                return missing
            if log.done != log.input_end:
                return f"{task}: {log.done} of {log.input_end} input records are processed"
        actions = plan(view)
        if actions:
            return f"the leader wants {actions}"
        uneven = self._uneven()
        if uneven:
            return uneven
        kept = {each for known in self.zookeeper.records.values() for each in known.record.placed.values()}
        if self.job.is_mixed and len(kept) > self.job.containers:
            return f"copies are in {len(kept)} containers, and there are to be {self.job.containers}"
        lacking = self._lacking_spares(view)
        if lacking or all(isinstance(each.slot, SpareSlotId) for each in view.requests.values()):
            return lacking or (f"the leader waits: {view.writing}" if view.writing else "")
        return f"the leader waits: {view.writing} {view.requests}"

    def _lacking_spares(self, view: ClusterView) -> str:
        """Return how many spare containers are missing although there is room, or are too many; empty: none is."""
        found = [self.containers.get(each.id) for each in view.spares_of(NAME)]
        ready = [each for each in found if each is not None and each.is_alive and each.kernel.is_warm]
        has_room = any(
            self.yarn.has_room(each)
            for each in self.hosts.values()
            if each.is_up and each.name not in self.job.drained
        )
        if (
            len(found) > self.job.spares
            or len(ready) < len(found)
            or (len(ready) < self.job.spares and has_room)
        ):
            return f"{len(ready)} of {len(found)} spare containers are ready, and there are to be {self.job.spares}"
        return ""

    def processors(self) -> int:
        return self.job.tasks if self.job.is_mixed else min(self.job.containers, self.job.tasks)

    def fits(self, containers: int, standbys: int) -> bool:
        """Return whether the hosts have room for a job of this size, with no two copies of a task on a host."""
        copies, counts = 1 + standbys, [each.capacity for each in self.hosts.values()]
        if self.job.is_mixed:
            return len(counts) >= copies and sum(counts) >= containers
        processors = min(containers, self.job.tasks)
        return sum(min(each, processors) for each in counts) >= processors * copies

    def _fill_up(self) -> None:
        """Give the hosts no more processes than the job needs."""
        hosts = list(self.hosts.values())
        for each in hosts:
            each.capacity = 1
        while not self.fits(self.job.containers, self.job.standbys):
            self.clock.chance.choice(hosts).capacity += 1

    def _missing_of(self, record: TaskRecord, wanted: int) -> str:
        """Return what keeps a task from being whole; empty: nothing."""
        if len(record.placed) != wanted or len(record.in_sync) != wanted or record.moving or record.displaced:
            return f"{record} is not whole"
        for copy, name in record.placed.items():
            container = self.containers.get(name)
            held = container.kernel.held.get(ReplicaId(record.task, copy)) if container is not None else None
            if container is None or held is None or not container.is_alive:
                return f"{record.task}#{copy} is not in {name}"
            phase = Phase.ACTIVE if copy == record.active else Phase.TAILING
            if held.replica.phase is not phase or held.replica.epoch != record.epoch:
                return f"{held.replica} is not {phase.value} at {record.epoch}"
            if container.host.name in self.job.drained:
                return f"{name} is on {container.host.name}, which is drained"
            if container.kernel.revisions.get(NAME) != self.job.revision:
                return f"{name} runs revision {container.kernel.revisions}"
            if self.yarn.attempts.get(container.cell) != container.attempt:
                return f"{name} is of an attempt that is over"
        cells = {self.containers[name].cell for name in record.placed.values()}
        if len(cells) < min(self.cells, wanted) and not self.job.is_mixed:
            return f"every copy of {record.task} is in cell {cells}"
        racks = {rack(self.containers[name].host.name) for name in record.placed.values()}
        allowed = {rack(each) for each in self.hosts if each not in self.job.drained}
        if len(racks) < min(len(allowed), wanted) and not self.job.is_mixed and not self.is_full:
            return f"every copy of {record.task} is in rack {racks}"
        return ""

    def _uneven(self) -> str:
        """Return how actives are spread if another choice of copies is more even; empty: none is.

        Tries every choice. An active that an operator chose (`standfast handover`) stays.
        """
        model = self.zookeeper.model
        assert model is not None
        present: list[str] = []
        choices: list[set[str]] = []
        for processor in model.processors.values():
            record = self.zookeeper.records[processor.tasks[0]].record
            places = {copy: self._place(name) for copy, name in record.placed.items()}
            present.append(places[record.active or 0])
            choices.append({present[-1]} if record.is_chosen else set(places.values()))
        least = min(map(_squares, itertools.product(*choices)))
        return f"actives are at {present}, and could be spread evenly" if _squares(present) > least else ""

    def _place(self, container: str) -> str:
        """Return the place of a container: in a mixed job the container itself, else its host."""
        return container if self.job.is_mixed else self.containers[container].host.name

    def passed(self, process: Process, step: str) -> None:
        """Have the fault happen that waits for this step, if one does."""
        trap = self.traps.pop(step, None)
        if trap is not None:
            self.clock.tell("FAULT at the step {!r} of {}", step, process.name)
            trap(process)

    def faults_until(self, at_ms: int) -> None:
        """Take note that a fault lasts until then."""
        self.faults_until_ms = max(self.faults_until_ms, at_ms)

    def flow(self) -> None:
        """Have input come to every task, until the world is to settle."""
        self.is_flowing = True
        for log in self.logs.values():
            self._flow(log)

    def _flow(self, log: Log) -> None:
        if self.is_flowing:
            log.grow(self.clock.between(0, 4))
            self.clock.after(self.clock.between(60, 300), self._flow, log)

    # ---- candidates ----

    def leader(self) -> Candidate | None:
        """Return the candidate that ZooKeeper names."""
        named = self.zookeeper.leader
        return next(
            (
                each
                for each in self.candidates
                if named is not None and each.name == named.candidate and each.is_leading and each.is_alive
            ),
            None,
        )

    def _am_started(self, cell: int, attempt: str) -> None:
        """Have the cell's supervisor start a candidate; each cell's master has a host of its own.

        A pool has a master on each of those hosts.
        """
        for host in self.master_hosts if self.is_pool else (self.master_hosts[cell - 1],):
            self._start_candidate(host, cell, attempt)

    def _start_candidate(self, host: Host, cell: int, attempt: str) -> None:
        if self.yarn.attempts.get(cell) != attempt:
            return  # its supervisor has ended with the AM
        if not host.is_up:
            self.clock.after(500, self._start_candidate, host, cell, attempt)
            return
        self._serial += 1
        self.candidates.append(Candidate(self, host, f"candidate-{self._serial}", cell, attempt))

    def candidate_died(self, candidate: Candidate) -> None:
        """Have the supervisor start another one."""
        self.candidates.remove(candidate)
        delay = self.clock.between(*RESTART_MS)
        self.clock.after(delay, self._start_candidate, candidate.host, candidate.cell, candidate.attempt)

    def lose_cell(self, cell: int, *, runs_on: bool) -> None:
        """Lose a cell's AM, and its candidate with it; its containers end too, or run on for a while."""
        attempt = self.yarn.attempts.get(cell)
        self.yarn.lose_am(cell, runs_on=runs_on)
        for each in [each for each in self.candidates if each.cell == cell and each.attempt == attempt]:
            each.kill()

    def next_port(self) -> int:
        self._ports += 1
        return self._ports

    def answer_of(self, asking: Candidate, port: int) -> PortAnswer:
        """Return what a candidate's port answers to another; a host that is away does not."""
        found = next((each for each in self.candidates if each.port == port), None)
        if found is None:
            is_away = any(each.is_cut or not each.is_up for each in self.master_hosts)
            return PortAnswer.NONE if is_away else PortAnswer.REFUSED
        return PortAnswer.NONE if found.host.is_cut or asking.host.is_cut else PortAnswer.ACCEPTED

    def am_refuses(self, cell: int) -> bool:
        """Return whether nothing listens at a cell's AM's port: it is dead, and its host is there to say so."""
        host = self.master_hosts[cell - 1]
        return cell not in self.yarn.attempts and host.is_up and not host.is_cut

    def list_changed(self) -> None:
        """Have every candidate look at what the cells' AMs list."""
        for each in self.candidates:
            each.look_soon()

    def job_changed(self) -> None:
        """Have the candidates read the job again, as their watches tell them."""
        for each in self.candidates:
            each.job_changed()

    # ---- containers ----

    def _launch(self, listed: Listed) -> Process:
        assert listed.host is not None
        container = Container(self, listed, self.logs)
        self.containers[container.name] = container
        return container

    def probe(
        self, leader: Candidate, container: str
    ) -> tuple[bool, ProcessEnd | None, bool, bool, bool, bool]:
        """Return whether a container lives as far as its port tells, and what its witness says.

        Further whether its host answers, and its process, and whether its witness sees it standing still, or waiting
        for its disk. Only a live host refuses.
        """
        process = self.containers.get(container)
        if process is None:
            return True, None, False, False, False, False
        host = process.host
        is_answered = host.is_up and not host.is_cut and not leader.host.is_cut
        if process.is_alive or not is_answered:
            stands_ms = self.clock.now_ms - process.running_since_ms if process.stops else 0
            is_seen = is_answered and process.is_alive and stands_ms > WITNESS_MS
            at_disk = is_seen and process.waits_for_disk
            return (
                True,
                None,
                is_answered,
                is_answered and process.is_running,
                is_seen and not at_disk,
                at_disk,
            )
        return False, process.end, True, False, False, False

    def connect(self, stream: Stream, leader: ControllerRecord) -> None:
        """Connect a container's stream to the leader that it names."""
        stream.container.send(self.clock.between(2, 15), self._connect, stream, leader)

    def _connect(self, stream: Stream, leader: ControllerRecord) -> None:
        if self.deaf_until_ms.get(stream.container.name, 0) > self.clock.now_ms:
            return
        candidate = next((each for each in self.candidates if each.port == leader.port), None)
        if candidate is None:
            stream.break_("connection refused")
        else:
            candidate.receive(self.clock.between(1, 5), stream.accepted, candidate)

    # ---- cuts ----

    def cut(self, host: Host, *, is_cut: bool) -> None:
        """Cut a host off, or connect it again: what was under way arrives late."""
        host.is_cut = is_cut
        self._cut_ms[host.name] = self.clock.now_ms
        if not is_cut:
            held, host.held_up = host.held_up, []
            for act, args in held:
                self.clock.after(self.clock.between(0, 20), act, *args)
        for each in [*self.containers.values(), *self.candidates]:
            if each.host is host and each.is_alive:
                each.contact_changed()

    def now_cut_ms(self, *processes: Process) -> int:
        """Return for how long none of the processes' hosts has been cut off or connected again."""
        return self.clock.now_ms - max(self._cut_ms.get(each.host.name, -1_000_000) for each in processes)
