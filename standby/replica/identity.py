"""Identifies the topics of a run: a topic is its id, not its name (rule `topic-id`). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standby.errors import BadConfiguration
from standby.shared.model import TopicIdentity


class TopicChanged(BadConfiguration):
    """A topic was deleted and created again with the same name: the run's offsets and state are invalid in it."""


@dataclass(frozen=True, slots=True)
class RunTopics:
    """The topics that the state and offsets of a run depend on."""

    job: str
    changelog: str
    inputs: Sequence[str]
    recorded: Mapping[str, TopicIdentity]
    """Topic → the identity that the run has recorded."""

    def of(self, topic: str) -> TopicIdentity:
        """Return the recorded identity of a topic; an empty one when there is none."""
        return self.recorded.get(topic, TopicIdentity())

    @property
    def names(self) -> tuple[str, ...]:
        """Changelog and inputs."""
        return (self.changelog, *self.inputs)

    @property
    def generation(self) -> int:
        """How often a recreated topic has been accepted."""
        return max((each.generation for each in self.recorded.values()), default=0)

    def check(self, found: Mapping[str, str]) -> None:
        """Raise `TopicChanged` for a topic whose found id differs from the recorded one.

        A topic without a recorded id, such as an output that is created later, counts as unchanged.
        """
        for topic, topic_id in found.items():
            recorded = self.of(topic).id
            if recorded and recorded != topic_id:
                raise TopicChanged(changed(self, topic, recorded, topic_id))


def changed(run: RunTopics, topic: str, known: str, found: str) -> str:
    """Return the message for a changelog or input of a run that has another id now."""
    ids = f"{topic} was deleted and created again (its id was {known}, and is {found})"
    how = f"`standfast kill {run.job}` if it runs, then `standfast topics {run.job} --accept {topic}"
    if topic in run.inputs:
        return (
            f"topic made again: input {ids}: the committed offsets are invalid in it. To read the present topic: {how} "
            "--from earliest` (or latest), and submit the job again"
        )
    return (
        f"topic made again: changelog {ids}: the state that the job has committed is not in it. Local state is left "
        f"unchanged. To continue with the content of the present topic: {how}`, and submit the job again"
    )
