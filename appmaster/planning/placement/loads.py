"""How many actives and copies each container holds, with what the turn has decided so far. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

from appmaster.planning.state.view import ClusterView


class ContainerLoad(NamedTuple):
    """What is placed in a container."""

    actives: int = 0
    copies: int = 0
    """All copies, the actives among them."""

    def plus(self, actives: int, copies: int) -> ContainerLoad:
        """Return the load with so many more."""
        return ContainerLoad(self.actives + actives, self.copies + copies)


class Loads:
    """The load of each container."""

    def __init__(self, view: ClusterView) -> None:
        self._view: Final = view

    def of(self, container: str) -> ContainerLoad:
        """Return what is placed in a container, including what the turn has added (`add`).

        An active that is being handed over also counts where it goes.
        """
        return self._found.get(container, ContainerLoad())

    def add(self, container: str, *, actives: int = 0, copies: int = 0) -> None:
        """Add what the turn places in a container."""
        self._found[container] = self.of(container).plus(actives, copies)

    @cached_property
    def _found(self) -> dict[str, ContainerLoad]:
        view = self._view
        found = {
            each: ContainerLoad(
                sum(view.records[task].record.active == copy for task, copy in held.items()), len(held)
            )
            for each, held in view.assigned.items()
        }
        for decision in view.writing.values():
            container = view.bindings.get(decision)
            if container is not None:
                # A placement that is being written counts; otherwise two would go where there is room for one.
                found[container] = found.get(container, ContainerLoad()).plus(0, 1)
        for processor, handover in view.handovers.items():
            # Otherwise all hand-overs would go where there are the fewest actives before them.
            actives = len(view.job_tasks(processor))
            found[handover.to] = found.get(handover.to, ContainerLoad()).plus(actives, 0)
        return found
