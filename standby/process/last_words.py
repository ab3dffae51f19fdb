"""Finds in a container's log how it ended, if the port of its witness is not known.

A container's port is known once it has registered. For a container that ended earlier, the witness's lines in the
log are the only information.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from standby.process.witness import AS_ASKED, BEGUN, WRITES
from standby.shared.wire import decode_end


@dataclass(frozen=True, slots=True)
class LastWords:
    """The end of a container that never registered."""

    is_from_outside: bool = False
    """Whether YARN, the host's kernel or a person ended it; False if unknown (a process that fails to start has no
    witness)."""
    text: str = ""
    """Its own last line, and how it ended; for people."""


def last_words(lines: Iterable[str]) -> LastWords:
    """Return what the last lines of a container's log report."""
    own, said = "", ""
    for line in lines:
        # The process's last output may lack a line end.
        before, is_of_witness, rest = line.partition(WRITES.decode())
        own = before.strip() or own
        if is_of_witness:
            said = rest.partition(": ")[2].strip()
    is_from_outside, verdict = _judged(said)
    return LastWords(is_from_outside, "; ".join(each for each in (own, verdict) if each))


def _judged(said: str) -> tuple[bool, str]:
    """Return whether a process was ended from outside, and how, judging by its witness's last line."""
    if said == BEGUN.decode():
        return True, "it was ended together with its witness"
    if said == AS_ASKED.decode():
        return True, "it was asked to end"
    end = decode_end(said.encode())
    return (False, "") if end is None else (end.is_from_outside, str(end))
