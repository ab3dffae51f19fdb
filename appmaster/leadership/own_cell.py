"""A candidate's own cell: its record in ZooKeeper, which the candidate completes and watches.

The submit creates the record. The record decides whether this application, and this attempt of it, belongs to the cell
at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from appmaster.leadership.port_probe import host_of, refuses
from appmaster.leadership.ports import OwnCellRecords, Registry
from appmaster.leadership.yarn_ids import number_of
from appmaster.records import CellRecord
from appmaster.supervisor import MADE_WAY, SUPERSEDED
from standby.errors import StandfastError, Transient
from standby.shared.clock import Clock

_log = logging.getLogger(__name__)

#: How long the submit may take to record the application that it has submitted, seconds.
_RECORDED_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05

#: Last attempts that are never given up voluntarily: they are kept for real losses.
_KEPT_ATTEMPTS: Final = 2


class Superseded(StandfastError):
    """This application, or this attempt of it, does not belong to its cell (any more): it ends with its containers."""

    exit_status = SUPERSEDED


class MadeWay(StandfastError):
    """This attempt started on the host of another cell's master, and ends so that one starts on another host."""

    exit_status = MADE_WAY


@dataclass(frozen=True)
class Attempt:
    """The attempt of a cell's application to which a candidate belongs."""

    cell: int
    application: str
    attempt: str
    address: str
    """``host:port`` of its Skein AM."""
    most: int
    """How many attempts YARN makes of the application; 1: not known."""


def enter(cells: OwnCellRecords, registry: Registry, mine: Attempt, clock: Clock) -> None:
    """Complete the record of this candidate's cell with the attempt, and with the address of its Skein AM.

    Waits until the record names this application. Two submits never make one cell twice: the one that lost its claim
    ends here, and so does what is left of an attempt once the next one has begun. Raises `Superseded` in these cases,
    and `MadeWay` for an attempt that is to be made on another host.
    """
    present = _recorded(cells, mine, clock)
    if present.attempt != mine.attempt:
        # Nothing runs in this attempt yet. A candidate that is restarted within it stays: it has containers then.
        other = cell_sharing_host(
            mine,
            {
                number: each
                for number, each in cells.read_each().items()
                if isinstance(each, CellRecord)  # the record of another cell may be invalid
            },
            lambda: (each.record.host for each in registry.registrations()),
        )
        if other is not None:
            raise MadeWay(
                f"cell {other} has its master on this host, too, and the host's loss would end both; "
                f"attempt {number_of(mine.attempt)} of {mine.most} of cell {mine.cell} ends, so that the next one may "
                "start elsewhere"
            )

    def complete(present: CellRecord) -> CellRecord | None:
        # YARN numbers attempts upwards, padded to a fixed length.
        if present.application != mine.application or present.attempt > mine.attempt:
            return None
        return msgspec.structs.replace(present, attempt=mine.attempt, address=mine.address)

    if not cells.change(mine.cell, complete):
        raise Superseded(f"cell {mine.cell} has a later attempt than {mine.attempt}")


def cell_sharing_host(
    mine: Attempt,
    cells: Mapping[int, CellRecord],
    alive: Callable[[], Iterable[str]],
    is_dead: Callable[[str], bool] = refuses,
) -> int | None:
    """Return the cell whose host a new attempt shares, if it is worth another attempt to avoid that; else None.

    The loss of a host with two masters ends two cells at once, and YARN goes by the hosts that are wished for a master
    only while one has room. But an attempt that has just begun can be given up cheaply: it costs one of YARN's
    attempts, and a few seconds. The first attempt is left to the submit's judgement, and the last ones are kept.
    ``alive`` gives the hosts on which containers run, and is asked last: if there is no other host, the next attempt
    would start on this one again. ``is_dead`` returns whether an AM's port refuses.
    """
    number = number_of(mine.attempt)
    host = host_of(mine.address)
    if number < 2 or mine.most - number < _KEPT_ATTEMPTS:
        return None
    for cell, record in sorted(cells.items()):
        is_here = cell != mine.cell and record.address and host_of(record.address) == host
        if is_here and not is_dead(record.address):
            return cell if set(alive()) - {host} else None
    return None


def watch(
    cells: OwnCellRecords,
    mine: Attempt,
    later: Callable[[Callable[[], None]], None],
    resign: Callable[[str], None],
) -> None:
    """Have this candidate resign when its cell's record names another attempt; ``later`` runs calls that may block."""

    def look() -> None:
        try:
            present = cells.read(mine.cell, lambda: later(look))
        except Transient as error:
            # There is no watch from now on: another leader's fence, or the next start's first read, has that effect.
            _log.warning("the cell's record could not be read: %s", error)
            return
        if present is not None and present.attempt != mine.attempt:
            resign(f"cell {mine.cell} is {present.attempt or present.application} now")

    look()


def _recorded(cells: OwnCellRecords, mine: Attempt, clock: Clock) -> CellRecord:
    """Return the cell's record once it names this application; raises `Superseded` if it does not in time."""
    deadline = clock.monotonic() + _RECORDED_SECONDS
    while True:
        found = cells.read(mine.cell)
        if found is not None and found.application == mine.application:
            return found
        if found is not None and found.application:
            raise Superseded(f"cell {mine.cell} is application {found.application}, not {mine.application}")
        if clock.monotonic() > deadline:
            raise Superseded(
                f"{mine.application} was not recorded as cell {mine.cell}; its submit has failed"
            )
        clock.sleep(_LOOK_SECONDS)
