"""docs/events.md: every entry of the event log and its fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final, get_type_hints

from appmaster.eventlog.entries import CATALOGUE, DECIDED, DecisionData, Described, EntryData
from appmaster.planning.state.actions import Facts

_HEAD: Final = """\
# The event log

For operators, and for programs that read the log: every kind of entry and its fields. The event log is a Kafka topic,
`standfast__<cluster>__events`, with one JSON object per record; `standfast events JOB` shows it. This page is
generated from the catalogue in `appmaster/eventlog/entries.py`: `python -m docs.generate`. A test checks that every
entry matches it.

## The fields of every entry

A field without a value is null.

| field | meaning |
|---|---|
| `at_ms` | Unix time, milliseconds |
| `epoch` | the controller epoch |
| `kind` | the kind of the entry, see below |
| `job` | the job's name |
| `task` | `job/stage.number` |
| `copy` | number of the copy |
| `container` | YARN's id of the container |
| `host` | name of the host |
| `task_epoch` | the epoch of the task |
| `reason` | why, in words |
| `decision` | id of the decision: `<epoch>-<number>` |
| `data` | an object, as below |

## The kinds

The second column lists the fields that may be set in addition to `at_ms`, `epoch`, `kind` and `data`; the third column
lists the fields of `data`. A field marked with ° is absent if it has no value.
"""

_DATA: Final = """\
## The fields of `data`
"""


def page() -> str:
    """Return the whole page, Markdown."""
    return "\n".join((_HEAD, *_kinds(), "", _DATA, *_fields(), ""))


def _kinds() -> Iterator[str]:
    yield "| kind | about | data | meaning |"
    yield "|---|---|---|---|"
    for kind, each in CATALOGUE.items():
        about = ", ".join(f"`{name}`" for name in each.about) or "–"
        yield f"| `{kind.value}` | {about} | {_data(each)} | {each.meaning} |"


def _data(described: Described) -> str:
    if described.details is DecisionData:
        return "[of a decision](#decisions)"
    return ", ".join(name for name, _ in _all(described.details)) or "–"


def _fields() -> Iterator[str]:
    yield "### Decisions"
    yield ""
    yield "Every entry `decided_…` may have these fields."
    yield ""
    yield from _table((*_all(DecisionData), *_all(Facts)))
    seen: set[type[EntryData]] = {DecisionData, EntryData}
    for kind, each in CATALOGUE.items():
        if each.details in seen or kind in DECIDED.values():
            continue
        seen.add(each.details)
        kinds = [other.value for other, described in CATALOGUE.items() if described.details is each.details]
        yield ""
        yield f"### {', '.join(f'`{name}`' for name in kinds)}"
        yield ""
        yield from _table(_all(each.details))


def _table(fields: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "| field | meaning |"
    yield "|---|---|"
    for name, meaning in fields:
        yield f"| {name} | {meaning} |"


def _all(details: type[EntryData | Facts]) -> Iterator[tuple[str, str]]:
    """Yield name and meaning of each described field."""
    annotated = get_type_hints(details, include_extras=True)
    for each in dataclasses.fields(details):
        for meaning in getattr(annotated[each.name], "__metadata__", ()):
            optional = "°" if each.default is not dataclasses.MISSING else ""
            yield f"`{each.name.rstrip('_')}`{optional}", meaning
