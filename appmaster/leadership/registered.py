"""How a new leader uses the containers' registrations in ZooKeeper until the containers have connected to it.

A cell's Skein AM lists what YARN granted it. Registrations contain more, and are there even if that AM is silent: the
address of each container, so that a dead one's port refuses at once (rule `who-is-lost`), and whether its session has
ended meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from appmaster.leadership.ports import RegisteredContainer, Registry
from appmaster.leadership.yarn_ids import attempt_of, grant_id
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.view import ClusterView, Presence
from standby.errors import Transient

_log = logging.getLogger(__name__)


def with_registered(
    found: Iterable[Event], registered: Iterable[RegisteredContainer], at_ms: int
) -> list[Event]:
    """Return what a take-over found in the cells, completed by the registrations.

    A container that its AM lists is expected at the address that it registered. For a cell that does not answer, the
    registered containers of its present attempt are expected: their own ports show whether they are alive. While they
    are, only the cell is lost (rule `lost-cell`), which is no failure yet.
    """
    events = list(found)
    by_name = {each.record.container: each for each in registered}
    for index, event in enumerate(events):
        known = by_name.pop(event.container, None) if isinstance(event, happened.ContainerExpected) else None
        if known is not None and isinstance(event, happened.ContainerExpected):
            events[index] = replace(event, host=known.record.host, incarnation=known.incarnation)
    silent = {
        each.cell: each.attempt
        for each in events
        if isinstance(each, (happened.CellLost, happened.CellAwaited))
    }
    for name, known in sorted(by_name.items()):
        record, attempt = known.record, attempt_of(name)
        if silent.get(record.cell) == attempt:
            events.append(
                happened.ContainerExpected(
                    name,
                    grant_id(attempt, record.skein_id),
                    at_ms,
                    record.cell,
                    attempt,
                    record.host,
                    known.incarnation,
                )
            )
    return events


@dataclass
class Departures:
    """Reports containers that unregister while a new leader waits for them; ends when it waits for none."""

    registry: Registry
    view: Callable[[], ClusterView]
    post: Callable[[Event], None]
    now_ms: Callable[[], int]
    later: Callable[[Callable[[], None]], None]
    """Runs calls that may block."""

    def follow(self) -> None:
        """Start, or look again; call after the take-over's first turn."""
        self.later(self._look)

    def _look(self) -> None:
        waited_for = [
            each.id
            for each in self.view().containers.values()
            if each.presence is Presence.EXPECTED and each.incarnation
        ]
        if not waited_for:
            return
        try:
            present = self.registry.container_names(self.follow)
        except Transient as error:
            # There is no watch from now on: the grace period decides about containers that do not connect.
            _log.warning("the registered containers could not be read: %s", error)
            return
        for each in waited_for:
            if each not in present:
                self.post(happened.ContainerUnregistered(each, self.now_ms()))
