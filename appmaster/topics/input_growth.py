"""A leader's periodic checks of its jobs' topics: inputs that grow, topics made again, changelogs that delete records.

Added partitions are adopted as tasks, or reported in the job's status. When a topic grows, keys move to other
partitions, and so away from their state: only a job with `task.inputs.may.grow` gets new tasks. Its changelog grows
first, so that every task always has a partition there; then the number of tasks is raised in the job's record, unless
that has another run or no `task.inputs.may.grow` by then; its watch makes the leader create the tasks. Both steps may
be repeated, even by a leader that was deposed: the number only rises, and it comes from the brokers.

A task reads its partition of every input, so several inputs must have grown alike before anything is adopted.

Each topic's id is compared with the run's record (`appmaster.topics.ids`), and recorded if that lacks it.

A changelog may only be compacted. Brokers with another setting delete state, which would remain unnoticed until a
replica is restored, so its policy is checked periodically.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.blame import describe_error, is_of_job, traceback_of
from appmaster.changes.revisions import grown, requested_settings
from appmaster.planning.state.events import TopicNoted
from appmaster.ports import JobUpdates
from appmaster.records import JobRecord
from appmaster.topics import changelog
from appmaster.topics.ids import TopicFindings, TopicObstacle, judge, kinds, with_topics
from appmaster.topics.ports import InputTopics
from standby.config import JobConfig, KafkaSettings, check_size, kafka_settings, parse
from standby.errors import BadConfiguration, StandfastError
from standby.replica.claim import claim_text
from standby.replica.identity import RunTopics
from standby.shared.wire import JobDefinition

_log = logging.getLogger(__name__)

#: How often the brokers are asked for the number of partitions of inputs, seconds.
LOOK_SECONDS: Final = 5.0

#: The policy of each changelog is checked once in this number of looks. By default, brokers look every five minutes for
#: records to delete.
_POLICY_LOOKS: Final = 12


def growth_note(config: JobConfig, tasks: int, counts: Mapping[str, int]) -> str:
    """Return what operators should know about inputs whose number of partitions differs from the number of tasks.

    ``counts`` has the number of partitions of each input. Empty if the numbers agree, or if the job adopts what was
    added.
    """
    for topic, partitions in counts.items():
        if partitions == 0:
            return f"{topic}, {'the' if len(counts) == 1 else 'an'} input, does not exist any more"
        if partitions < tasks:
            return f"{topic} has {partitions} partitions, fewer than the job's {tasks} tasks: it was created again"
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic} {partitions}" for topic, partitions in counts.items())
        return (
            f"the inputs have different numbers of partitions ({listed}): what was added is not read, because a task "
            "reads its partition of every input; give them the same number"
        )
    topic, partitions = next(iter(counts.items()))
    if partitions == tasks or config.may_grow:
        return ""
    return (
        f"{topic} has {partitions} partitions, {partitions - tasks} of them are not read: keys would move to other "
        "tasks than their state. If that is acceptable, `standfast update` with task.inputs.may.grow=true"
    )


@dataclass(frozen=True, slots=True)
class TopicState:
    """What was found out about a job's topics."""

    run: str = ""
    note: str = ""
    """What operators should know about them, apart from `risk`."""
    obstacle: TopicObstacle | None = None
    """Why the job cannot continue with them."""
    risk: str = ""
    """Why its changelog is about to lose the job's state."""
    is_risk_known: bool = False
    """Whether the brokers have said what the changelog's policy is."""
    was_asked: bool = False
    """Whether they were asked for it."""

    @property
    def notes(self) -> str:
        """All that operators should know."""
        return "; ".join(filter(None, (self.note, self.risk)))

    def of(self, run: str) -> TopicState:
        """Return what of this holds for a run: nothing if it was found out about another one."""
        return self if self.run == run else TopicState(run)


@dataclass
class InputGrowth:
    """Checks the inputs of the leader's jobs every few seconds, on its own thread."""

    records: JobUpdates
    jobs: Callable[[], Mapping[str, JobRecord]]
    """Returns the jobs as the leader loaded them last."""
    reload: Callable[[], None]
    """Called when a note has changed."""
    connect: Callable[[KafkaSettings], InputTopics]
    """Makes the connection to a job's brokers."""
    tell: Callable[[TopicNoted], None] = lambda _: None
    """Takes events for the event log."""
    found: Mapping[str, TopicState] = field(default_factory=dict)
    """Job → what was last found out about its topics; replaced, never modified, so any thread may read it."""
    _looks: int = 0
    _posted: set[tuple[object, ...]] = field(default_factory=set)
    """Run, topic and id of what was posted already."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _topics: dict[str, tuple[KafkaSettings, InputTopics]] = field(default_factory=dict)
    """Job → the connection to its brokers, and the settings with which it was made."""

    def start(self) -> None:
        """Start checking."""
        threading.Thread(target=self._run, name="growth", daemon=True).start()

    def stop(self) -> None:
        """Stop; does not wait for a broker that does not answer."""
        self._stop.set()

    def look(self) -> None:
        """Check every job's topics once, and do what follows."""
        found: dict[str, TopicState] = {}
        is_due, self._looks = self._looks % _POLICY_LOOKS == 0, self._looks + 1
        for name, record in self.jobs().items():
            run = record.definition.run
            before = self.found.get(name, TopicState()).of(run)
            if not record.is_wanted:
                if before.risk:
                    # Brokers go on deleting the state that the next submit continues with.
                    asked = self._risk(record.definition) if is_due else None
                    risk = before.risk if asked is None else asked
                    found[name] = TopicState(run, risk=risk, is_risk_known=bool(risk), was_asked=True)
                continue
            try:
                note, obstacle = self._look_at(name, record)
            except Exception as error:
                if not is_of_job(error):
                    raise
                said = describe_error(error)
                _log.warning("the topics of %s: %s", name, said, exc_info=traceback_of(error))
                found[name] = before
                continue
            asked = None
            if obstacle is None and (is_due or not before.was_asked):
                asked = self._risk(record.definition)
            risk, is_known = (before.risk, before.is_risk_known) if asked is None else (asked, True)
            found[name] = TopicState(run, note, obstacle, risk, is_known, was_asked=True)
        self._topics = {name: each for name, each in self._topics.items() if name in found}
        before_all, self.found = self.found, found
        if _notes(found) != _notes(before_all):
            self.reload()

    def _risk(self, job: JobDefinition) -> str | None:
        """Return why a job's changelog is about to lose its state; None if that cannot be found out."""
        topic, (_, topics) = job.changelog, self._topics[job.name]
        try:
            # A missing changelog is reported as missing.
            return changelog.risk(topic, topics.shape(topic)) if topics.count(topic) else None
        except StandfastError as error:
            # The permission for this, DescribeConfigs, is not among the required ones.
            _log.warning("the policy of %s is not known: %s", topic, error)
            return None

    def _look_at(self, name: str, record: JobRecord) -> tuple[str, TopicObstacle | None]:
        definition, config = record.definition, parse(requested_settings(record))
        topics = self._connected(name, config)
        judged = judge(definition, config, topics.ids(kinds(definition, config)))
        if judged.obstacle:
            # Its content does not belong to the run, so nothing else follows.
            return "", TopicObstacle(definition.run, definition.topics, judged.obstacle)
        if judged.events:
            self._record(name, definition, judged)
        if judged.missing:
            return "; ".join(f"{each} (any more)" for each in judged.missing), None
        counts = {topic: topics.count(topic) for topic in config.inputs}
        partitions = min(counts.values())
        if partitions > definition.tasks and config.may_grow and partitions == max(counts.values()):
            try:
                check_size(config, partitions)
            except BadConfiguration as error:
                return f"{', '.join(config.inputs)}: what was added is not read: {error}", None
            _log.info(
                "%s has %d partitions, %s had %d tasks",
                *(", ".join(config.inputs), partitions, name, definition.tasks),
            )
            run = RunTopics(name, definition.changelog, config.inputs, definition.topics)
            prepare(topics, record, config, partitions, run.generation)
            self.records.update(
                name,
                lambda present: grown(present, partitions) if _adopts(present, definition.run) else present,
            )
        return growth_note(config, definition.tasks, counts), None

    def _connected(self, name: str, config: JobConfig) -> InputTopics:
        """Return the connection to a job's brokers, a new one if a change has given it other settings."""
        settings = kafka_settings(config)
        before = self._topics.get(name)
        if before is not None and before[0] == settings:
            return before[1]
        topics = self.connect(settings)
        self._topics[name] = (settings, topics)
        return topics

    def _record(self, name: str, definition: JobDefinition, judged: TopicFindings) -> None:
        """Record what was found out about topics, and post it once."""
        self.records.update(
            name,
            lambda present: (
                with_topics(present, definition.topics, judged.topics)
                if present.definition.run == definition.run
                else present
            ),
        )
        for each in judged.events:
            # The leader may not have read the record again before the next look.
            seen = (definition.run, each.topic, each.topic_id)
            if seen not in self._posted:
                self._posted.add(seen)
                _log.warning("%s: %s", name, each.reason)
                self.tell(each)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception:  # noqa: BLE001 - this thread's outermost loop
                # The leader continues without it; a bug here must not end the thread silently.
                _log.exception("looking at the topics")


def _adopts(record: JobRecord, run: str) -> bool:
    """Return whether a job's record still asks for what was added to the inputs of ``run``, which a run never changes.

    It may have been updated since it was read, or deleted and submitted again.
    """
    return record.definition.run == run and parse(requested_settings(record)).may_grow


def _notes(found: Mapping[str, TopicState]) -> dict[str, tuple[object, ...]]:
    """Return what is to be known about the topics of the jobs for which there is anything."""
    notes = {name: (each.note, each.obstacle, each.risk, each.is_risk_known) for name, each in found.items()}
    return {name: each for name, each in notes.items() if any(each)}


def prepare(
    topics: InputTopics, record: JobRecord, config: JobConfig, partitions: int, generation: int = 0
) -> None:
    """Prepare everything in Kafka that tasks up to ``partitions`` need; raises `Unavailable`.

    An added partition is read from its first record, whatever `job.start.offset` says: the run begins there, and
    everything written since the partition was added belongs to the run. ``generation``: of the run's topics, if it was
    added after the last one was accepted. Otherwise, where an accepted input is read from applies to it, too.
    """
    definition = record.definition
    topics.grow(definition.changelog, partitions)
    if config.run_start == "earliest" and not generation:
        return
    # A commit without the generation would count as one from before the acceptance.
    metadata = claim_text(0, definition.run, generation=generation) if generation else ""
    for topic in config.inputs:
        topics.commit_first(definition.group, topic, range(definition.tasks, partitions), metadata)
