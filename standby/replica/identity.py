"""Which topics belong to a run: a topic is its id, not its name (rule `topic-id`). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standby.errors import BadConfiguration
from standby.shared.model import TopicIdentity


class TopicChanged(BadConfiguration):
    """A topic was deleted and created again under its name: offsets and state of the run mean nothing in it."""


@dataclass(frozen=True, slots=True)
class RunTopics:
    """The topics that state and offsets of a run rest on."""

    job: str
    changelog: str
    inputs: Sequence[str]
    recorded: Mapping[str, TopicIdentity]
    """Topic → what the run has recorded of it."""

    def of(self, topic: str) -> TopicIdentity:
        """Return what the run has recorded of a topic."""
        return self.recorded.get(topic, TopicIdentity())

    @property
    def names(self) -> tuple[str, ...]:
        """Changelog and inputs."""
        return (self.changelog, *self.inputs)

    @property
    def generation(self) -> int:
        """How often a topic that was made again has been accepted."""
        return max((each.generation for each in self.recorded.values()), default=0)

    def check(self, known: Mapping[str, str], found: Mapping[str, str]) -> None:
        """Raise `TopicChanged` for a topic that is found under another id than the known one.

        What is known of one only counts as the same.
        """
        for topic, topic_id in found.items():
            if known.get(topic, topic_id) != topic_id:
                raise TopicChanged(changed(self, topic, known[topic], topic_id))


def changed(run: RunTopics, topic: str, known: str, found: str) -> str:
    """Return what to tell of a topic of a run, its changelog or an input, that is found under another id."""
    ids = f"{topic} was deleted and created again (its id was {known}, and is {found})"
    how = f"`standfast kill {run.job}` if it runs, then `standfast topics {run.job} --accept {topic}"
    if topic in run.inputs:
        return (
            f"topic made again: input {ids}: the committed offsets mean nothing in it. To read the present one: {how} "
            "--from earliest` (or latest), and submit the job again"
        )
    return (
        f"topic made again: changelog {ids}: the state that the job has committed is not in it. Local state is left as "
        f"it is. To go on with what the present one holds: {how}`, and submit the job again"
    )
