"""docs/lifecycle.md: the table of a replica's lifecycle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from standby.replica.lifecycle import ENDED, MOVES, ORDERS, RUNNING, Effect, Signal
from standby.shared.model import Phase

_HEAD: Final = """\
# The life of a replica

For people who change the container or want to interpret a replica's phase: every phase, and what leads from one to the
next. `python -m docs.generate` writes this page from the table `MOVES` in `standby/replica/lifecycle.py`. The table has
a row for every pair of phase and signal; pairs that are not shown change nothing.
"""


def page() -> str:
    """Return the whole page, Markdown with a Mermaid diagram."""
    return "\n".join((_HEAD, *_diagram(), "", *_table(), "", *_words(), ""))


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> opening: open"
    labels: dict[tuple[Phase, Phase], list[str]] = {}
    for (phase, signal), (after, _) in MOVES.items():
        # Moves that leave every phase alike would clutter the diagram; they are in the table.
        if after is not phase and signal not in (Signal.FAILED, Signal.REVOKE, Signal.STATE_LOST):
            labels.setdefault((phase, after), []).append(signal.value)
    for (phase, after), signals in labels.items():
        yield f"    {phase.value} --> {after.value}: {', '.join(signals)}"
    yield "    closed --> [*]"
    yield "```"


def _table() -> Iterator[str]:
    yield "| from | signal | to | effects, in order |"
    yield "|---|---|---|---|"
    for (phase, signal), (after, effects) in MOVES.items():
        if after is not phase or effects:
            owed = ", ".join(each.value for each in effects) or "–"
            yield f"| {phase.value} | {_kind(signal)} {signal.value} | {after.value} | {owed} |"


def _kind(signal: Signal) -> str:
    return "order" if signal in ORDERS else "result"


def _words() -> Iterator[str]:
    yield f"Phases in which the replica runs: {', '.join(each.value for each in RUNNING)}."
    yield f"Phases in which it has ended: {', '.join(each.value for each in ENDED)}; only an order to open leads back."
    yield f"Effects: {', '.join(each.value for each in Effect)}."
