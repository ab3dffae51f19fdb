"""The job of the simulated cluster, and the commands of its operators: the only users of the planner's interface."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import JobSpec
from appmaster.planning.state.view import Command, Operation
from locality.hosts import HostInfo
from standby.shared.model import ProcessorId, TaskId
from standby.shared.wire import JobDefinition
from tests.simulation.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from tests.simulation.clock import Clock
    from tests.simulation.leader import Candidate

NAME, STAGE, RUN = "job", "main", "run1"

#: The times of a job in a hurry: a story of half a minute has room for every deadline.
POLICY = PlannerPolicy(
    samehost_timeout_ms=1_500,
    host_timeout_ms=2_000,
    suspect_grace_ms=1_500,
    progress_timeout_ms=4_000,
    restore_delay_ms=1_000,
    prepare_timeout_ms=3_000,
    rebalance_pause_ms=1_000,
    takeover_grace_ms=3_000,
    launch_timeout_ms=5_000,
    request_timeout_ms=1_500,
    stop_timeout_ms=2_000,
    retry_count=-1,
    fails_on_error=False,
    retry_backoff_ms=200,
    retry_backoff_max_ms=2_000,
    avoid_host_ms=2_000,
    exit_timeout_ms=2_000,
    quiet_ms=500,
)

#: A valid configuration; only the lag bound in it matters to a container.
CONFIG = {
    "job.name": NAME,
    "task.inputs": "in",
    "task.transform": "module:function",
    "task.step": "module:function",
    "zookeeper.connect": "zk:2181",
    "kafka.bootstrap.servers": "kafka:9092",
}


def rack(host: str) -> str:
    """Return the rack in which a host stands: there are two, each with every other host."""
    return f"/{int(host[1:]) % 2}"


@dataclass
class Job:
    """What is asked of the cluster now."""

    tasks: int
    containers: int
    standbys: int
    is_mixed: bool = False
    restarts: bool = False
    policy: PlannerPolicy = POLICY
    revision: int = 1
    spares: int = 0
    """How many spare containers it is to have."""
    drained: dict[str, str] = field(default_factory=dict)
    commands: int = 0

    def task_ids(self) -> tuple[TaskId, ...]:
        return tuple(TaskId(NAME, STAGE, each) for each in range(self.tasks))

    def load(self, hosts: tuple[str, ...], zookeeper: ZooKeeper, *, has_records: bool) -> list[Event]:
        """Return what a leader reads of the job; a new one has no records yet."""
        zookeeper.answer()
        spec = JobSpec(STAGE, self.tasks, self.containers, self.standbys, self.is_mixed)
        policy = replace(self.policy, restarts=self.restarts, spare_count=self.spares)
        events: list[Event] = [
            happened.HostsKnown(tuple(HostInfo(each, rack=rack(each)) for each in hosts)),
            happened.HostsDrained(dict(self.drained), is_taken_over=False),
            happened.JobLoaded(NAME, RUN, spec, zookeeper.model, policy, self.revision),
        ]
        if not has_records:
            records = tuple(zookeeper.records[each] for each in sorted(zookeeper.records))
            events.append(happened.RecordsLoaded(records))
        return events

    def definitions(self, action: todo.SendAssignment) -> tuple[JobDefinition, ...]:
        """Return the definitions that go with an assignment."""
        return tuple(
            JobDefinition(name, RUN, CONFIG, "changelog", "group", self.tasks, revision)
            for name, revision in action.jobs
        )

    def fail_over(self, leader: Candidate, clock: Clock) -> None:
        """Ask the leader for a planned change of active."""
        model = leader.view.jobs[NAME].model if NAME in leader.view.jobs else None
        if model is None or not model.processors:
            return
        self.commands += 1
        processor: ProcessorId = clock.chance.choice(sorted(model.processors))
        leader.post(happened.Commanded(Command(self.commands, Operation.HAND_OVER, processor)))
