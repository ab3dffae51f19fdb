"""Compares everything that a run left in Kafka with the batch model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from demo.compare import Comparison, Record, StateComparison, compare, compare_state
from demo.topics import Stamped, read_committed
from examples.flights.model import Expected, expected
from examples.flights.replay import INPUT_TOPIC, OUTPUT_TOPICS
from standby.replica.store.keys import is_own, split

#: The time-out for reading one topic.
READ_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True)
class Verification:
    """The result, and the times of all records for gaps and picture."""

    records_in: int
    outputs: Comparison
    state: StateComparison
    input_times: Mapping[int, Sequence[int]]
    """Input partition → LogAppendTime of its records, Unix milliseconds, ascending."""
    output_times: Mapping[int, Sequence[int]]
    """Input partition → LogAppendTime of its task's outputs, Unix milliseconds, ascending."""

    @property
    def is_exact(self) -> bool:
        """Whether outputs and state match the model record for record."""
        return self.outputs.is_exact and self.state.mismatched == 0

    def findings(self) -> str:
        """Return a text of what is wrong; empty if nothing is."""
        if self.is_exact:
            return ""
        found = self.outputs
        summary = (
            f"{found.expected} outputs owed, {found.seen} seen: {found.lost} lost, {found.duplicated} duplicated, "
            f"{found.mismatched} mismatched, {found.misordered} out of order; "
            f"{self.state.mismatched} of {self.state.keys} state keys wrong"
        )
        return "\n".join((summary, *found.examples, *self.state.examples))


def verify(bootstrap: str, changelog: str) -> Verification:
    """Return how outputs and changelog differ from the model of the committed input.

    ``changelog`` is the name of the job's changelog topic. Raises `Unavailable` if a topic cannot be
    read to its end.
    """
    inputs = list(read_committed(bootstrap, INPUT_TOPIC, READ_SECONDS))
    # A task's changes come from the input partition with its number, and a key has one partition.
    task_of = {record.key: record.partition for record in inputs}
    model = expected((record.key, record.value or b"") for record in inputs)
    input_times = _times((record.partition, record.timestamp_ms) for record in inputs)
    records_in = len(inputs)
    del inputs
    stamps: list[tuple[int, int]] = []

    def seen() -> Iterator[Record]:
        for topic in OUTPUT_TOPICS:
            for record in read_committed(bootstrap, topic, READ_SECONDS):
                stamps.append((task_of.get(record.key, -1), record.timestamp_ms))
                yield _record(topic, record)

    outputs = compare(_owed(model), seen())
    state = compare_state(model.state, _state(read_committed(bootstrap, changelog, READ_SECONDS)))
    return Verification(records_in, outputs, state, input_times, _times(iter(stamps)))


def _owed(model: Expected) -> Iterator[Record]:
    for topic, pairs in model.outputs.items():
        for key, value in pairs:
            yield Record(topic, value["flight"], key, value)


def _record(topic: str, record: Stamped) -> Record:
    """Return the output as a record; one that cannot be parsed keeps its bytes, and matches nothing."""
    try:
        value: dict[str, Any] = json.loads(record.value or b"")
        return Record(topic, str(value["flight"]), record.key, value)
    except (ValueError, KeyError, TypeError):
        return Record(topic, repr(record.value), record.key, {})


def _state(changes: Iterator[Stamped]) -> dict[str, dict[bytes, dict[str, Any]]]:
    """Return the state after all changes: the compacted view of the changelog."""
    stores: dict[str, dict[bytes, dict[str, Any]]] = {}
    for change in changes:
        if is_own(change.key):
            continue
        store, key = split(change.key)
        if change.value is None:
            stores.setdefault(store, {}).pop(key, None)
        else:
            stores.setdefault(store, {})[key] = json.loads(change.value)
    return stores


def _times(pairs: Iterator[tuple[int, int]]) -> dict[int, list[int]]:
    times: dict[int, list[int]] = {}
    for partition, stamp in pairs:
        times.setdefault(partition, []).append(stamp)
    for each in times.values():
        each.sort()
    return times
