"""What a container's log tells of its end, where nobody knew a port to ask its witness at.

A container's port is known once it has registered. Of one that ended before, what its witness wrote into the log is all
that is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from standby.process.witness import AS_ASKED, BEGUN, WRITES
from standby.shared.wire import decode_end


@dataclass(frozen=True, slots=True)
class LastWords:
    """What is known of the end of a container that never registered."""

    is_from_outside: bool = False
    """Whether YARN, the host's kernel or a person ended it. False also where nothing is known: what cannot even be
    started has no witness."""
    text: str = ""
    """The last line of its own, and how it ended; for people."""


def last_words(lines: Iterable[str]) -> LastWords:
    """Return what the last lines of a container's log say."""
    own, said = "", ""
    for line in lines:
        # What the process wrote last may lack its end of line.
        before, is_of_witness, rest = line.partition(WRITES.decode())
        own = before.strip() or own
        if is_of_witness:
            said = rest.partition(": ")[2].strip()
    is_from_outside, verdict = _judged(said)
    return LastWords(is_from_outside, "; ".join(each for each in (own, verdict) if each))


def _judged(said: str) -> tuple[bool, str]:
    """Return whether a process was ended from outside by what its witness said last, and that in words."""
    if said == BEGUN.decode():
        return True, "it was ended together with its witness"
    if said == AS_ASKED.decode():
        return True, "it was asked to end"
    end = decode_end(said.encode())
    return (False, "") if end is None else (end.is_from_outside, str(end))
