"""Problems of actives that continue to run: the job is deployed, but an operator should look at it. Pure.

Kept per container as it reports, so that no turn has to go through all replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from appmaster.planning.state.view import HOLDING, ClusterView, Container, Trouble, TroubleKind
from standby.shared.model import Phase, ReplicaId, ReplicaStatus

#: An active this far behind its input is reported as falling behind, until it is less than half as far behind.
BEHIND_MS: Final = 30_000


def troubles_of(statuses: Iterable[ReplicaStatus], before: tuple[Trouble, ...]) -> tuple[Trouble, ...]:
    """Return the troubles of a container's actives, given those they had ``before``."""
    was_behind = {each.replica for each in before if each.kind is TroubleKind.BEHIND}
    return tuple(_of(statuses, was_behind))


def _of(statuses: Iterable[ReplicaStatus], was_behind: set[ReplicaId]) -> Iterator[Trouble]:
    for each in statuses:
        if each.phase is Phase.ACTIVE and each.failures is not None:
            yield Trouble(each.replica, TroubleKind.FAILING, each.failures.reason)
        bound = BEHIND_MS // 2 if each.replica in was_behind else BEHIND_MS
        if each.input_lag_ms is not None and each.input_lag_ms >= bound:
            yield Trouble(each.replica, TroubleKind.BEHIND)


def present_troubles(view: ClusterView) -> dict[str, list[Trouble]]:
    """Return job → the troubles of its actives, by task; jobs without troubles are left out."""
    found: dict[str, list[Trouble]] = {}
    for container in view.containers.values():
        if container.troubles and container.presence in HOLDING:
            for each in container.troubles:
                if _is_active(view, container, each.replica):
                    found.setdefault(each.replica.task.job, []).append(each)
    for troubles in found.values():
        troubles.sort(key=lambda each: (each.replica, each.kind.value))
    return found


def _is_active(view: ClusterView, container: Container, replica: ReplicaId) -> bool:
    recorded = view.records.get(replica.task)
    return (
        recorded is not None
        and recorded.record.active == replica.copy
        and recorded.record.placed.get(replica.copy) == container.id
    )


def trouble_text(trouble: Trouble) -> str:
    """Return the text for the status, without figures that change by themselves, since each change is written."""
    task = trouble.replica.task
    if trouble.kind is TroubleKind.FAILING:
        return f"{task}: the job's code fails, and is tried again: {trouble.reason}"
    return f"{task}: does not keep up: more than {BEHIND_MS // 1000} s behind the end of its input"
