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

from tests.scenarios.words import STEPS, Counted, Flight, Scenario, Story, Trigger, Under

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
    """Return every scenario; raises `ValueError` with file and line for invalid text."""
    found = [each for flight in Flight for each in parse(path(flight).read_text(encoding="utf-8"), flight)]
    order = list(Under)
    return tuple(sorted(found, key=lambda each: order.index(each.under)))


def parse(text: str, flight: Flight) -> Iterator[Scenario]:
    """Yield the scenarios in a file's text; raises like `scenarios`."""
    title, *rest = text.splitlines()
    if title != flight.value:
        raise ValueError(f"{path(flight)}:1: {title!r} where {flight.value!r} belongs")
    lines = iter(enumerate(rest, 2))
    for number, line in lines:
        if not line:
            continue
        paragraph = [line]
        for _, more in lines:
            if not more:
                break
            paragraph.append(more)
        try:
            yield _scenario(flight, paragraph)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path(flight)}:{number}: {error}") from error


def _scenario(flight: Flight, paragraph: list[str]) -> Scenario:
    head, dashes, told, *more = paragraph
    match = _HEAD.fullmatch(head)
    if (
        match is None
        or dashes != _DASHES
        or len(more) > 1
        or any(not each.startswith(_COUNTED) for each in more)
    ):
        raise ValueError(f"not `when TRIGGER [POLICY]`, {_DASHES}, steps, `{_COUNTED}…`")
    steps = () if told == _NOTHING else tuple(told.split())
    unknown = [each for each in steps if each not in STEPS]
    if unknown:
        raise ValueError(f"no such step: {', '.join(unknown)}; there are {', '.join(STEPS)}")
    counted = tuple(Counted(each) for line in more for each in line.removeprefix(_COUNTED).split(_BETWEEN))
    return Scenario(flight, Trigger(match["trigger"]), Under(match["under"]), Story(steps, counted))


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
