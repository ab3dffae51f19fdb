"""The recorded ids of the topics of a job's run, and what follows if a topic turns out to be a different one. Pure.

A topic is identified by its id, not its name (docs/decisions/0021). The meaning of a changed id depends on the topic's
use: offsets and state depend on inputs and changelog, so the job stops; outputs and dead letters are only written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from msgspec.structs import replace as with_fields

from appmaster.planning.state.events import TopicNoted
from appmaster.records import JobRecord
from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.replica.identity import RunTopics, changed
from standby.shared.model import TopicIdentity
from standby.shared.wire import JobDefinition

#: The use of a topic in a job.
TopicKind = Literal["input", "changelog", "output", "dead letters"]

#: Topics that offsets and state depend on.
OF_THE_RUN: Final = ("input", "changelog")


def kinds(definition: JobDefinition, config: JobConfig) -> dict[str, TopicKind]:
    """Return the topics of a job, each with its use."""
    found: dict[str, TopicKind] = dict.fromkeys(config.inputs, "input")
    found[definition.changelog] = "changelog"
    found |= {each: "output" for each in config.outputs if each not in found}
    if config.dead_letter_topic:
        found.setdefault(config.dead_letter_topic, "dead letters")
    return found


@dataclass(frozen=True, slots=True)
class TopicFindings:
    """The result of comparing a job's topics with their records."""

    topics: Mapping[str, TopicIdentity]
    """What is to be recorded about them."""
    events: tuple[TopicNoted, ...]
    """What of that was not recorded before."""
    obstacle: str
    """Why the job cannot continue; empty: it can."""
    missing: tuple[str, ...]
    """The topics that do not exist, in words."""


@dataclass(frozen=True, slots=True)
class TopicObstacle:
    """Why a job cannot continue: one of its topics is not the one of its run."""

    run: str
    topics: Mapping[str, TopicIdentity]
    """The records of the run's topics when that was found."""
    why: str

    def of(self, definition: JobDefinition) -> str:
        """Return why the job cannot continue; empty if that was another run, or was accepted since."""
        return self.why if (definition.run, definition.topics) == (self.run, self.topics) else ""


def judge(definition: JobDefinition, config: JobConfig, found: Mapping[str, str]) -> TopicFindings:
    """Return what follows from the ids ``found`` for existing topics; topics that do not exist are missing there."""
    job, topics = definition.name, dict(definition.topics)
    run = RunTopics(job, definition.changelog, config.inputs, topics)
    events, missing, obstacle = [], [], ""
    for topic, kind in kinds(definition, config).items():
        known, present = run.of(topic), found.get(topic, "")
        if not present:
            missing.append(f"{topic}, {_article(kind, config)}, does not exist")
        elif not known.id:
            topics[topic] = replace(known, id=present)
            said = f"{kind} {topic}: its id was not known before and is recorded now; nothing was compared"
            events.append(TopicNoted(job, topic, kind, said, known.id, present, is_changed=False))
        elif known.id != present and kind in OF_THE_RUN:
            obstacle = obstacle or changed(run, topic, known.id, present)
        elif known.id != present:
            topics[topic] = replace(known, id=present)
            said = (
                f"{kind} {topic} was deleted and created again: the job continues and writes to the present one; "
                "what it had written to the former one is gone"
            )
            events.append(TopicNoted(job, topic, kind, said, known.id, present, is_changed=True))
    return TopicFindings(topics, tuple(events), obstacle, tuple(missing))


def with_topics(
    record: JobRecord, before: Mapping[str, TopicIdentity], topics: Mapping[str, TopicIdentity]
) -> JobRecord:
    """Return the job's record with what is to be recorded about topics, except those that were changed meanwhile."""
    present = record.definition.topics
    new = {topic: each for topic, each in topics.items() if present.get(topic) == before.get(topic)}

    def known(definition: JobDefinition) -> JobDefinition:
        return with_fields(definition, topics={**definition.topics, **new})

    return with_fields(record, definition=known(record.definition), former=tuple(map(known, record.former)))


def accept(
    definition: JobDefinition, config: JobConfig, topic: str, found: Mapping[str, str], start: str
) -> Mapping[str, TopicIdentity]:
    """Return the records of the run's topics after the present ``topic`` has been accepted, whatever it was before.

    ``start`` says from where inputs are read, ``earliest`` or ``latest``. It is needed for an input. For a changelog,
    every input is read again from there if it is given, and from the committed offsets otherwise. Raises
    `BadConfiguration` for a topic that does not belong to the job, or does not exist.
    """
    kind = kinds(definition, config).get(topic)
    if kind is None:
        names = ", ".join(kinds(definition, config))
        raise BadConfiguration(f"{topic} is not a topic of {definition.name}; it has {names}")
    if topic not in found:
        raise BadConfiguration(f"{topic} does not exist; create it first")
    if kind == "input" and not start:
        raise BadConfiguration(
            f"{topic} is an input, and the committed offsets do not apply to it: say where to read it from, "
            "--from earliest or --from latest"
        )
    if kind not in OF_THE_RUN and start:
        raise BadConfiguration(f"--from: {topic} is not read ({kind})")
    run = RunTopics(definition.name, definition.changelog, config.inputs, definition.topics)
    generation = run.generation + 1
    topics = {**definition.topics, topic: TopicIdentity(found[topic], generation, start)}
    if kind == "changelog":
        topics[topic] = TopicIdentity(found[topic], generation)
        for each in config.inputs if start else ():
            topics[each] = TopicIdentity(run.of(each).id, generation, start)
    elif kind != "input":
        topics[topic] = replace(run.of(topic), id=found[topic])
    return topics


def _article(kind: TopicKind, config: JobConfig) -> str:
    if kind == "input":
        return "the input" if len(config.inputs) == 1 else "an input"
    return {"changelog": "the changelog", "output": "an output"}.get(kind, "the topic of dead letters")
