"""The visits job against a plain computation over all views at once."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from examples.visits import visits
from standby.replica.outbox import Emitted
from tests.unit.examples.fakes import Task

MINUTE = visits.MINUTE_MS

#: Visitor, id, page, time.
View = tuple[str, str, str, int]


def run(views: Sequence[View], size: int) -> list[Emitted]:
    """Return the outputs of a task after batches of ``size`` views."""
    task, found = Task(visits.visits, ("seen", "visits"), "visits", "late-views"), list[Emitted]()
    for start in range(0, len(views), size):
        visitors, names, pages, times = zip(*views[start : start + size], strict=True)
        columns = {
            "key": pa.array([each.encode() for each in visitors], pa.binary()),
            "value": pa.array([each.encode() for each in names], pa.binary()),
            "id": list(names),
            "page": list(pages),
            "at": pa.array(times, pa.timestamp("ms", "UTC")),
        }
        found += task.run(pa.table(columns))
    return found


def visits_of(views: Sequence[View]) -> set[tuple[str, int, int, int]]:
    """Return (visitor, from, to, views) of all visits, by looking at everything at once."""
    times: dict[str, set[tuple[int, str]]] = {}
    for visitor, name, _, at in views:
        times.setdefault(visitor, set()).add((at, name))
    found = set()
    for visitor, seen in times.items():
        visit: list[int] = []
        for at, _ in [*sorted(seen), (10**15, "")]:
            if visit and at - visit[-1] > 30 * MINUTE:
                found.add((visitor, visit[0], visit[-1], len(visit)))
                visit = []
            visit.append(at)
    return found


def told(records: Sequence[Emitted]) -> list[tuple[str, int, int, int]]:
    bodies: list[tuple[str, Any]] = [
        ((each.key or b"").decode(), json.loads(each.value or b""))
        for each in records
        if each.topic == "visits"
    ]
    for _, body in bodies:
        assert sum(body["visit"]["pages"].values()) == body["visit"]["views"]
    return [(visitor, body["from_ms"], body["to_ms"], body["visit"]["views"]) for visitor, body in bodies]


def test_each_visit_is_emitted_once_whatever_the_batches() -> None:
    draw = random.Random(7)
    views: list[View] = []
    for number in range(900):
        at = number * MINUTE // 2 - draw.randrange(MINUTE // 2)
        visitor = draw.choice("abcdefghijklmnopqrstuvwxyz")
        views.append((visitor, f"v{number}", draw.choice(["/", "/cart"]), at))
        if draw.random() < 0.2:
            views.append(views[-1])
    # A row much later closes everything; its own visit stays open.
    views.append(("last", "last", "/", 10**9))
    whole = run(views, len(views))
    assert not [each for each in whole if each.topic == "late-views"]
    found = told(whole)
    assert len(found) == len(set(found)) > 100
    assert set(found) == visits_of(views[:-1])
    for size in (1, 17, 400):
        assert run(views, size) == whole


def test_a_late_view_is_sent_on_as_it_was() -> None:
    views = [
        ("a", "v1", "/", 0),
        ("b", "v2", "/", 2 * MINUTE),
        ("a", "v3", "/", MINUTE - 1),
        ("a", "v4", "/", 10**9),
    ]
    assert [(each.topic, each.key, each.value) for each in run(views, 4) if each.topic == "late-views"] == [
        ("late-views", b"a", b"v3")
    ]
