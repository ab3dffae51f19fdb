"""docs/failover-scenarios.md: each failure in combination with what is under way, from tests/scenarios/failover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from tests.scenarios.left_out import LEFT_OUT
from tests.scenarios.plays import HELD_UP_MS
from tests.scenarios.table import scenarios
from tests.scenarios.words import STEPS, Flight, LeftOut, Scenario, Trigger

_HEAD: Final = """\
# Failover scenarios

For operators and developers: what follows when a failure coincides with another operation, under each policy.
[failover.md](failover.md) explains the policies and the rules. `python -m docs.generate` writes this page from the
files in `tests/scenarios/failover`; a test plays each of them.

Unless stated otherwise, a task has one standby and there are enough hosts. The operation in progress is held up for
{held} seconds after the failure, so that it does not end by itself. An empty last column means that nothing is
counted.

The steps stand for entries of the [event log](events.md), in the order in which they are written:
"""


def page() -> str:
    """Return the whole page, Markdown."""
    rows = scenarios()
    parts = (
        [_HEAD.format(held=HELD_UP_MS // 1_000)],
        _words(),
        *(["", *_scenarios(each, rows)] for each in Flight),
        ["", *_left_out(), ""],
    )
    return "\n".join(line for part in parts for line in part)


def _words() -> Iterator[str]:
    yield ", ".join(f"*{word}* `{event}`" for word, event in STEPS.items()) + "."


def _scenarios(flight: Flight, rows: Sequence[Scenario]) -> Iterator[str]:
    yield f"## {flight.value}"
    yield ""
    yield "| failure | policy | what follows | counted |"
    yield "|---|---|---|---|"
    triggers = list(Trigger)
    ordered = sorted(
        (each for each in rows if each.flight is flight), key=lambda row: triggers.index(row.trigger)
    )
    for trigger, of_trigger in groupby(ordered, key=lambda row: row.trigger):
        for at, row in enumerate(of_trigger):
            yield _row("" if at else trigger.value, row)


def _row(trigger: str, row: Scenario) -> str:
    steps = " → ".join(row.story.steps) or "nothing: everything continues"
    counted = ", ".join(each.value for each in row.story.counted)
    return f"| {trigger} | {row.under.value} | {steps} | {counted} |"


def _left_out() -> Iterator[str]:
    yield "## Left out"
    yield ""
    yield "Combinations that cannot occur; a test shows that they cannot. The first line that matches applies."
    yield ""
    yield "| failure | while | policy | why it cannot occur |"
    yield "|---|---|---|---|"
    for each in LEFT_OUT:
        yield (
            f"| {_names(each.triggers, len(Trigger))} | {_flights(each)} "
            f"| {', '.join(under.value for under in each.under)} | {each.why} |"
        )


def _names(triggers: tuple[Trigger, ...], every: int) -> str:
    return "anything" if len(triggers) == every else "; ".join(each.value for each in triggers)


def _flights(left: LeftOut) -> str:
    missing = [each for each in Flight if each not in left.flights]
    if len(missing) < len(left.flights):
        return "all but: " + "; ".join(_short(each) for each in missing)
    return "; ".join(_short(each) for each in left.flights)


def _short(flight: Flight) -> str:
    return flight.value.split(":", 1)[0].split(",", 1)[0].lower()
