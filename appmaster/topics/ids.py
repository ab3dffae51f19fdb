"""What the topics of a job's run are recorded as, and what follows when one is found to be another one. Pure.

A topic is its id, not its name (docs/decisions/0021). What a changed id means depends on what the topic is to the job:
offsets and state rest on inputs and changelog, so the job stops; outputs and dead letters are only written to.
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

#: What a topic is to a job.
Kind = Literal["input", "changelog", "output", "dead letters"]

#: Those that offsets and state rest on.
OF_THE_RUN: Final = ("input", "changelog")


def kinds(definition: JobDefinition, config: JobConfig) -> dict[str, Kind]:
    """Return the topics of a job, each with what it is to the job."""
    found: dict[str, Kind] = dict.fromkeys(config.inputs, "input")
    found[definition.changelog] = "changelog"
    found |= {each: "output" for each in config.outputs if each not in found}
    if config.on_error == "dead-letter" and config.dead_letter:
        found.setdefault(config.dead_letter, "dead letters")
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of a job's topics."""

    topics: Mapping[str, TopicIdentity]
    """What is to be recorded of them."""
    events: tuple[TopicNoted, ...]
    """What of that was not recorded before."""
    obstacle: str
    """Why the job cannot go on; empty when it can."""
    missing: tuple[str, ...]
    """The topics that do not exist, in words."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a job cannot go on with a topic that is another one than its run's."""

    run: str
    topics: Mapping[str, TopicIdentity]
    """What the run had recorded when that was found."""
    why: str

    def of(self, definition: JobDefinition) -> str:
        """Return why the job cannot go on; empty when that was of another run, or was accepted since."""
        return self.why if (definition.run, definition.topics) == (self.run, self.topics) else ""


def judge(definition: JobDefinition, config: JobConfig, found: Mapping[str, str]) -> Judged:
    """Return what follows from the ids that topics are ``found`` under; those that do not exist are not among them."""
    job, topics = definition.name, dict(definition.topics)
    run = RunTopics(job, definition.changelog, config.inputs, topics)
    events, missing, obstacle = [], [], ""
    for topic, kind in kinds(definition, config).items():
        known, present = run.of(topic), found.get(topic, "")
        if not present:
            missing.append(f"{topic}, {_article(kind, config)}, does not exist")
        elif not known.id:
            topics[topic] = replace(known, id=present)
            said = f"{kind} {topic}: its id is recorded, which was not known before; nothing was compared"
            events.append(TopicNoted(job, topic, kind, said, known.id, present, is_changed=False))
        elif known.id != present and kind in OF_THE_RUN:
            obstacle = obstacle or changed(run, topic, known.id, present)
        elif known.id != present:
            topics[topic] = replace(known, id=present)
            said = (
                f"{kind} {topic} was deleted and created again: the job goes on and writes to the present one; what it "
                "had written to the former one is gone with that"
            )
            events.append(TopicNoted(job, topic, kind, said, known.id, present, is_changed=True))
    return Judged(topics, tuple(events), obstacle, tuple(missing))


def with_topics(
    record: JobRecord, before: Mapping[str, TopicIdentity], topics: Mapping[str, TopicIdentity]
) -> JobRecord:
    """Return the job's record with what is to be recorded of topics, but for those that somebody changed since."""
    present = record.definition.topics
    new = {topic: each for topic, each in topics.items() if present.get(topic) == before.get(topic)}

    def known(definition: JobDefinition) -> JobDefinition:
        return with_fields(definition, topics={**definition.topics, **new})

    return with_fields(record, definition=known(record.definition), former=tuple(map(known, record.former)))


def accept(
    definition: JobDefinition, config: JobConfig, topic: str, found: Mapping[str, str], start: str
) -> Mapping[str, TopicIdentity]:
    """Return what is recorded of the run's topics once the present ``topic`` is its own, whatever it was before.

    ``start`` says where inputs are read from, ``earliest`` or ``latest``: needed for an input; of a changelog every
    input is read anew with it, and goes on at the committed offsets without. Raises `BadConfiguration` for a topic that
    is not the job's, or does not exist.
    """
    kind = kinds(definition, config).get(topic)
    if kind is None:
        names = ", ".join(kinds(definition, config))
        raise BadConfiguration(f"{topic} is no topic of {definition.name}; it has {names}")
    if topic not in found:
        raise BadConfiguration(f"{topic} does not exist; create it first")
    if kind == "input" and not start:
        raise BadConfiguration(
            f"{topic} is an input, and the committed offsets mean nothing in it: say where to read it from, "
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


def _article(kind: Kind, config: JobConfig) -> str:
    if kind == "input":
        return "the input" if len(config.inputs) == 1 else "an input"
    return {"changelog": "the changelog", "output": "an output"}.get(kind, "the topic of dead letters")
