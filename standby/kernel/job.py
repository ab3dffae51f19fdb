"""What the kernel runs for one job: its clients and threads, shared by the job's replicas here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from standby.config import JobConfig, parse
from standby.kernel.batch import BatchRunner, Step
from standby.kernel.ends import Ends
from standby.kernel.fetch import Peers
from standby.kernel.identity import Identity
from standby.kernel.lost_input import LostInput
from standby.kernel.marks import Marks
from standby.kernel.ownership import Ownership
from standby.kernel.pipeline import Pipeline
from standby.kernel.ports import Connect, OpenDatabase
from standby.kernel.preparation import Preparation
from standby.kernel.probes import Probe
from standby.kernel.replay import Replay
from standby.kernel.suspects import Suspects
from standby.kernel.takeover import Takeover
from standby.kernel.tally import Tally
from standby.model import TaskId
from standby.naming import state_path
from standby.ports import MakeFeed, RecordReader
from standby.replica.failing import error_policy
from standby.replica.identity import RunTopics
from standby.replica.origin import Origin
from standby.wire import JobDefinition

#: How often the ends are asked for; less where the lag policy is finer than that.
_ENDS_MS: Final = 500

#: Above the transaction's time-out: a commit that takes longer will not come back.
_COMMIT_GRACE_SECONDS: Final = 5.0

#: The same for a step of the way to active, in which several calls wait, one after the other.
_WAY_GRACE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Environment:
    """What all jobs of a container have in common."""

    cluster: str
    host: str
    records: RecordReader
    make_feed: MakeFeed
    connect: Connect
    open_database: OpenDatabase
    find_step: Callable[[JobConfig], Step]
    clock: Callable[[], int]
    """Unix milliseconds."""
    probe: Probe
    tally: Tally
    peers: Peers | None = None
    """Whom to fetch state from; None: from nobody."""
    marks: Marks = field(default_factory=Marks)
    """Told what of the jobs' code runs."""
    opening: threading.Lock = field(default_factory=threading.Lock)
    """Held while a database is opened: who looks for strays must not touch its lock meanwhile."""


class JobKernel:
    """One job in one container: its replay's threads, a pipeline thread, and two that ask Kafka now and then.

    Raises `BadConfiguration` when the definition cannot be used.
    """

    def __init__(self, environment: Environment, definition: JobDefinition) -> None:
        self.definition = definition
        """The newest one of this run and revision; replaced by the conductor, read by anybody."""
        self.config: Final = parse(definition.config)
        self.environment: Final = environment
        self._watched: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
        name = definition.name
        clock, probe = environment.clock, environment.probe
        self.broker: Final = environment.connect(environment.cluster, self.config, definition)
        self.identity: Final = Identity(self.broker, self.topics)
        interval_ms = max(50, min(_ENDS_MS, self.config.lag_time_ms // 4))
        self.ends: Final = Ends(self.broker, interval_ms, clock, lambda: self._watched, name)
        self.replay: Final = Replay(
            self.broker,
            self.ends,
            self.config.lag_time_ms,
            clock,
            probe,
            name,
            restore_threads=self.config.restore_threads,
            restore_bytes_per_second=self.config.restore_max_bytes_per_second,
            check_topic=self.identity.changelog_id,
        )
        self.commit_seconds: Final = self.config.transaction_timeout_ms / 1000 + _COMMIT_GRACE_SECONDS
        self.way_seconds: Final = max(
            self.config.progress_timeout_ms / 1000, self.commit_seconds + _WAY_GRACE_SECONDS
        )
        """How long a step of the way to active may stand still: nothing there takes so long."""
        runner = BatchRunner(
            partial(environment.find_step, self.config),
            self.config.stores,
            self.config.inputs,
            self.config.outputs,
            self.commit_seconds,
            probe,
            environment.marks,
        )
        suspects = Suspects(error_policy(self.config), self.broker, clock, self.commit_seconds)
        make_feed = partial(environment.make_feed, self.config, definition)
        self.pipeline: Final = Pipeline(
            make_feed,
            runner,
            suspects,
            Preparation(self.broker.committed),
            LostInput(
                self.broker.input_bounds,
                self.config.inputs,
                self.commit_seconds,
                may_skip=self.config.input_lost == "skip",
                clock=clock,
                check_topics=self.identity.check,
            ),
            clock,
            lambda partition: self.ends.input(partition) is not None,
            self.config.inputs,
            name,
            environment.marks,
        )
        self.ownership: Final = Ownership(self.broker.committed, clock, name)
        self.takeover: Final = Takeover(
            environment.cluster,
            self.config,
            definition,
            self.topics,
            self.broker,
            self.identity,
            self.replay,
            environment.records,
            clock,
            probe,
        )

    def watch(self, changelog: Collection[int], inputs: Collection[int]) -> None:
        """Have the ends of these partitions asked for, changelog and input."""
        before, self._watched = self._watched, (frozenset(changelog), frozenset(inputs))
        if any(now - known for now, known in zip(self._watched, before, strict=True)):
            self.ends.look()

    def directories(self, task: TaskId) -> tuple[Path, ...]:
        """Return where a task's state may lie on this host, one place for each state directory."""
        environment = self.environment
        path = state_path(environment.cluster, environment.host, task, self.definition.run)
        return tuple(Path(each) / path for each in self.config.state_dirs)

    def topics(self) -> RunTopics:
        """Return the topics that the run rests on, with what it has recorded of them by now."""
        present = self.definition
        return RunTopics(present.name, present.changelog, self.config.inputs, present.topics)

    def origin(self, task: TaskId) -> Origin:
        """Return what the side file of a task's state must say; raises `Transient`."""
        return Origin(
            job=task.job,
            stage=task.stage,
            partition=task.partition,
            run=self.definition.run,
            topic=self.definition.changelog,
            topic_id=self.identity.changelog_id(),
            retention_ms=self.config.changelog_delete_retention_ms,
        )

    def close(self) -> None:
        """End everything; blocks until a running batch is through. All replicas are closed before."""
        self.ends.close()
        self.ownership.close()
        self.replay.close()
        self.pipeline.close().result()
        self.broker.close()
