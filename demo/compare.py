"""Record-by-record comparison of a job's outputs with the expected ones. Pure.

"Exact" means: every expected record was seen once, with its value, under its key and in its topic; the
records of each key were seen in order; and no other record was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

#: How many findings of each kind are kept for display.
EXAMPLES: Final = 5


class Record(NamedTuple):
    """One output record."""

    topic: str
    identity: str
    """The identity of the record's fact: a second record with the same identity is a duplicate."""
    key: bytes
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of the comparison; the counts are numbers of records."""

    expected: int
    seen: int
    lost: int
    duplicated: int
    mismatched: int
    """Seen with an expected identity but another value or key, or with an identity that is not expected."""
    misordered: int
    """Seen out of order among the records of their key."""
    examples: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether nothing was lost, duplicated, wrong or out of order."""
        return not (self.lost or self.duplicated or self.mismatched or self.misordered)


@dataclass(slots=True)
class _Findings:
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, kind: str, what: object, count: int = 1) -> None:
        if self.counts[kind] < EXAMPLES:
            self.examples.append(f"{kind}: {what}")
        self.counts[kind] += count


def compare(expected: Iterable[Record], seen: Iterable[Record]) -> Comparison:
    """Return how ``seen`` differs from ``expected``, both in the order of each key's records."""
    owed = {(record.topic, record.identity): record for record in expected}
    findings = _Findings()
    times: Counter[tuple[str, str]] = Counter()
    places = {name: place for place, name in enumerate(owed)}
    last_of_key: dict[tuple[str, bytes], int] = {}
    count = 0
    for record in seen:
        count += 1
        name = (record.topic, record.identity)
        times[name] += 1
        model = owed.get(name)
        if times[name] > 1:
            findings.add("duplicated", record)
        elif model is None:
            findings.add("mismatched", f"{record}, which is not expected")
        elif model != record:
            findings.add("mismatched", f"{record} instead of {model}")
        if model is not None and times[name] == 1:
            last = last_of_key.get((record.topic, record.key), -1)
            if places[name] < last:
                findings.add("misordered", record)
            last_of_key[record.topic, record.key] = max(last, places[name])
    for name, model in owed.items():
        if name not in times:
            findings.add("lost", model)
    counts = findings.counts
    return Comparison(
        expected=len(owed),
        seen=count,
        lost=counts["lost"],
        duplicated=counts["duplicated"],
        mismatched=counts["mismatched"],
        misordered=counts["misordered"],
        examples=tuple(findings.examples),
    )


@dataclass(frozen=True, slots=True)
class StateComparison:
    """How the final state differs from the model's; the counts are numbers of keys of all stores."""

    keys: int
    """Keys that the model has."""
    mismatched: int
    """Keys with another value, missing keys, and keys that must not exist."""
    examples: tuple[str, ...] = ()


#: Store → key → value.
Stores = Mapping[str, Mapping[bytes, Mapping[str, Any]]]


def compare_state(expected: Stores, seen: Stores) -> StateComparison:
    """Return how ``seen`` differs from ``expected``."""
    differences = list(_differences(expected, seen))
    return StateComparison(
        keys=sum(map(len, expected.values())),
        mismatched=len(differences),
        examples=tuple(differences[:EXAMPLES]),
    )


def _differences(expected: Stores, seen: Stores) -> Iterator[str]:
    for store in sorted({*expected, *seen}):
        want, have = expected.get(store, {}), seen.get(store, {})
        for key in sorted({*want, *have}):
            if want.get(key) != have.get(key):
                yield f"state {store}/{key!r}: {have.get(key)} instead of {want.get(key)}"
