"""What a value of the planner's state has when nothing is told: nothing, with few exceptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import pytest

from appmaster.planning.state import (
    actions,
    attempts,
    counters,
    events,
    job,
    model,
    progress,
    reasons,
    troubles,
    view,
)
from appmaster.planning.state.grouping import balanced
from locality.fit import ANY

#: The types of values. The constants of a policy are no defaults.
KINDS: Final = [
    each
    for module in (actions, attempts, counters, events, job, model, progress, reasons, troubles, view)
    for each in vars(module).values()
    if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__ == module.__name__
    if each is not job.PlannerPolicy
]

#: Type → its fields that are something if they are not told.
TOLD: Final[Mapping[type[Any], Mapping[str, object]]] = {
    actions.WriteRecords: {"facts": actions.Facts()},
    actions.RequestContainer: {"cell": 1, "demand": ANY},
    counters.Counter: {"is_shown_from_start": True},
    events.JobLoaded: {"revision": 1, "is_wanted": True},
    events.ContainerExpected: {"cell": 1},
    events.ContainerRegistered: {"cell": 1},
    events.PortProbed: {"is_answered": True, "is_running": True},
    job.Job: {"revision": 1, "is_wanted": True, "state": job.JobState.DEPLOYING},
    model.JobSpec: {"grouper": balanced},
    model.JobModel: {"version": 1, "znode": -1},
    view.Container: {"cell": 1},
    view.ContainerRequest: {"cell": 1},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
def test_what_is_not_told_is_nothing(kind: type[Any]) -> None:
    told = {
        each.name: each.default
        for each in dataclasses.fields(kind)
        if each.default is not dataclasses.MISSING and each.default
    }
    assert told == TOLD.get(kind, {})
