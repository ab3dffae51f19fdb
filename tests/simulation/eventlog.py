"""The event logs of some stories, stored as text in tests/simulation/eventlogs: one file for each seed.

::

    candidate-1 leads
      model_changed job version=1 processors=2 tasks=3 copies=2
    FAULT kill container
      container_lost job#1 in c1.1_9 on h2 [port-refused] role=standby actives=0 replicas=2

An entry has its kind, its subject (`job#copy` or `task#copy`, `in` a container, `on` a host, `at` an epoch), the kind
of its reason in brackets, and its data. Times and the texts of reasons are omitted, and a status that differs in them
alone from the one before. A fault is listed where it began.

``python -m tests.simulation.rewrite`` regenerates the files; every difference must be intended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from appmaster.eventlog.entries import DecisionData, EntryKind, LogEntry
from appmaster.planning.state.reasons import Reason
from tests.simulation.faults import suffer
from tests.simulation.world import World

FOLDER: Final = Path(__file__).parent / "eventlogs"

#: Of the first 400, those that tell most: between them almost every kind of entry, with almost every kind of reason,
#: outcome and rule, that those 400 have. Each has one that no other of them has.
SEEDS: Final = (2, 13, 16, 22, 88, 145, 164, 232, 301, 323, 351, 360)


def path(seed: int) -> Path:
    return FOLDER / f"seed-{seed}.txt"


def told(seed: int) -> str:
    """Return the event log of a seed as text; raises what the story ends with, if it breaks an invariant."""
    world = World(seed)
    suffer(world)
    world.settle()
    return "".join(f"{each}\n" for each in _lines(world))


def _lines(world: World) -> Iterator[str]:
    leader = status = ""
    for each in world.log:
        if isinstance(each, str):
            yield f"FAULT {each}"
            continue
        if each.leader != leader:
            leader = each.leader
            yield f"{leader} leads"
        shown = line(each.entry)
        if shown == status:
            continue
        if each.entry.kind is EntryKind.JOB_STATUS:
            status = shown
        yield f"  {shown}"


def line(entry: LogEntry) -> str:
    about = str(entry.task or entry.job or "")
    parts = [
        entry.kind.value,
        about if entry.copy is None else f"{about}#{entry.copy}",
        f"in {entry.container}" if entry.container else "",
        f"on {entry.host}" if entry.host else "",
        f"at {entry.task_epoch}" if entry.task_epoch is not None else "",
        f"[{entry.reason.kind.value}]" if isinstance(entry.reason, Reason) else "",
        *(f"{name}={_plain(value)}" for name, value in _data(entry).items() if not name.endswith("_ms")),
    ]
    return " ".join(filter(None, parts))


def _data(entry: LogEntry) -> dict[str, Any]:
    data = entry.data
    if isinstance(entry.details, DecisionData) and entry.details.facts.without is not None:
        data["without"] = entry.details.facts.without.kind.value
    return data


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        # Of a failover that is over: its tasks; all else is times.
        return ",".join(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return repr(value) if " " in str(value) else str(value)
