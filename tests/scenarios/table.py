"""Reads and writes the failover scenarios: a text file for each operation in progress, a paragraph for each trigger.

::

    Failover ordered: recorded, not carried out yet

    when the active's process dies [promote]
    ----
    lost ask bind begun without ask bind done
    counted: active failure, without standby: no other copy lives

Above the dashes is the trigger, below them are its consequences: the steps in the order of the entries, as words of
`tests.scenarios.words.STEPS`, and what is counted. An empty line ends the paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.scenarios.words import Counted, Flight, Scenario, Story, Trigger, Under

FOLDER: Final = Path(__file__).parent / "failover"

_HEAD: Final = re.compile(r"when (?P<trigger>.+) \[(?P<under>[^]]+)\]")
_DASHES: Final = "----"
_COUNTED: Final = "counted: "
_NOTHING: Final = "nothing: all goes on"
#: The names of counters contain commas and colons.
_BETWEEN: Final = "; "


def path(flight: Flight) -> Path:
    return FOLDER / f"{flight.name.lower().replace('_', '-')}.txt"


def scenarios() -> tuple[Scenario, ...]:
    """Return every scenario."""
    found = [each for flight in Flight for each in parse(path(flight).read_text(encoding="utf-8"), flight)]
    order = list(Under)
    return tuple(sorted(found, key=lambda each: order.index(each.under)))


def parse(text: str, flight: Flight) -> Iterator[Scenario]:
    """Yield the scenarios in a file's text, which `render` writes again if it is valid."""
    _, *paragraphs = text.split("\n\n")
    for each in paragraphs:
        head, _, told, *more = each.splitlines()
        match = _HEAD.fullmatch(head)
        assert match is not None, f"{path(flight)}: {head}"
        steps = () if told == _NOTHING else tuple(told.split())
        counted = tuple(
            Counted(name) for line in more for name in line.removeprefix(_COUNTED).split(_BETWEEN)
        )
        yield Scenario(flight, Trigger(match["trigger"]), Under(match["under"]), Story(steps, counted))


def render(flight: Flight, rows: Iterable[Scenario]) -> str:
    """Return the text of a file with these scenarios, by trigger."""
    triggers, policies = list(Trigger), list(Under)
    ordered = sorted(rows, key=lambda row: (triggers.index(row.trigger), policies.index(row.under)))
    return f"{flight.value}\n" + "".join(f"\n{paragraph(each)}" for each in ordered)


def paragraph(row: Scenario) -> str:
    steps = " ".join(row.story.steps) or _NOTHING
    counted = _BETWEEN.join(each.value for each in row.story.counted)
    lines = [f"when {row.trigger.value} [{row.under.value}]", _DASHES, steps]
    return "\n".join([*lines, *([_COUNTED + counted] if counted else []), ""])
