"""The kernel's clients and threads for one job, shared by the job's replicas in this container."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Final

from standby.config import parse
from standby.feeding.state import RECLAIM_MS, FeedingPolicy
from standby.kernel.active.ownership import Ownership
from standby.kernel.active.topic_ids import TopicIdCheck
from standby.kernel.environment import Environment
from standby.kernel.pipeline.batch import BatchRunner
from standby.kernel.pipeline.pipeline import Pipeline, PipelinePorts
from standby.kernel.replay.ends import EndOffsetPoller
from standby.kernel.replay.rate_limiter import RateLimiter
from standby.kernel.replay.replayer import Rules
from standby.kernel.replay.router import ReplayRouter
from standby.replica.failing import error_policy
from standby.replica.identity import RunTopics
from standby.replica.store.origin import Origin
from standby.shared.model import TaskId
from standby.shared.naming import state_path
from standby.shared.wire import JobDefinition

#: How often end offsets are requested; more often if the lag policy requires it.
_ENDS_MS: Final = 500

#: Added to the transaction time-out: a commit that takes longer is considered hanging.
_COMMIT_GRACE_SECONDS: Final = 5.0

#: The same for a step of becoming active, in which several calls wait in sequence.
_WAY_GRACE_SECONDS: Final = 60.0


class JobKernel:
    """One job in one container: its replay threads, a pipeline thread, and two threads that poll Kafka.

    Raises `BadConfiguration` when the definition cannot be used.
    """

    def __init__(self, environment: Environment, definition: JobDefinition) -> None:
        self.definition = definition
        """The newest definition of this run and revision; replaced by the conductor, read from any thread."""
        self.config: Final = parse(definition.config)
        self.environment: Final = environment
        self._watched: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
        name = definition.name
        clock = environment.clock
        self.broker: Final = environment.connect(environment.cluster, self.config, definition)
        self.identity: Final = TopicIdCheck(self.broker, self.topics, clock.monotonic)
        interval_ms = max(50, min(_ENDS_MS, self.config.lag_time_ms // 4))
        self.ends: Final = EndOffsetPoller(
            self.broker, interval_ms, clock.now_ms, lambda: self._watched, name, clock.pace
        )
        rules = Rules(
            ends=self.ends,
            lag_bound_ms=self.config.lag_time_ms,
            clock=clock,
            probe=environment.probe,
            restore_bytes_per_second=self.config.restore_max_bytes_per_second,
            check_topic=self.identity.changelog_id,
            topic=definition.changelog,
            bounds=self.broker.changelog_bounds,
            rate_limiter=RateLimiter(clock.monotonic),
        )
        self.replay: Final = ReplayRouter(
            self.broker.open_changelog, rules, self.config.restore_threads, name
        )
        self.commit_seconds: Final = self.config.transaction_timeout_ms / 1000 + _COMMIT_GRACE_SECONDS
        self.way_seconds: Final = max(
            self.config.progress_timeout_ms / 1000, self.commit_seconds + _WAY_GRACE_SECONDS
        )
        """How long a step of becoming active may make no progress; no step normally takes this long."""
        runner = BatchRunner(
            partial(environment.find_step, self.config),
            self.config,
            self.commit_seconds,
            environment.probe,
            environment.marks,
            clock,
        )
        self.pipeline: Final = Pipeline(
            name,
            FeedingPolicy(
                error_policy(self.config),
                may_skip_lost=self.config.input_lost == "skip",
                # An active's state counts as caught up until its last commit, so it must not become too old by idling.
                reclaim_ms=min(RECLAIM_MS, self.config.changelog_delete_retention_ms // 4),
            ),
            runner,
            PipelinePorts(
                make_feed=partial(environment.make_feed, self.config, definition),
                input=self.broker,
                input_end=self._input_end,
                check_topics=self.identity.check,
                clock=clock,
            ),
            self.commit_seconds,
        )
        self.ownership: Final = Ownership(self.broker.committed, clock.now_ms, name)

    def watch(self, changelog: Collection[int], inputs: Collection[int]) -> None:
        """Set the changelog and input partitions whose ends are requested."""
        before, self._watched = self._watched, (frozenset(changelog), frozenset(inputs))
        if any(now - known for now, known in zip(self._watched, before, strict=True)):
            self.ends.look()

    def _input_end(self, partition: int) -> int | None:
        end = self.ends.input(partition)
        return None if end is None else end.offset

    def directories(self, task: TaskId) -> tuple[Path, ...]:
        """Return the possible directories of a task's state on this host, one per state directory."""
        environment = self.environment
        path = state_path(environment.cluster, environment.host, task, self.definition.run)
        return tuple(Path(each) / path for each in self.state_dirs)

    @property
    def state_dirs(self) -> tuple[str, ...]:
        """The state directories of this host."""
        return self.environment.state_dirs or self.config.state_dirs

    def topics(self) -> RunTopics:
        """Return the topics that the run depends on, with their ids as far as they are recorded."""
        present = self.definition
        return RunTopics(present.name, present.changelog, self.config.inputs, present.topics)

    def origin(self, task: TaskId) -> Origin:
        """Return the expected side file content of a task's state. Raises `Transient`."""
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
        """End everything; blocks until a running batch has ended. All replicas must be closed before."""
        self.ends.close()
        self.ownership.close()
        self.replay.close()
        self.pipeline.close().result()
        self.broker.close()
