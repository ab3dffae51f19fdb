"""What is shown of a job while there is no leader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.api.client import ClusterClient
from appmaster.cli.reading.leaderless import Running, state, status_text
from appmaster.cli.reading.observe import applications_of
from appmaster.planning.state.job import JobState
from appmaster.records import CellRecord
from standby.errors import Unavailable
from tests.fakes.applications import Applications

LASTING = (JobState.FAILED, JobState.UNDEPLOYED)


@pytest.mark.parametrize("recorded", [each for each in JobState if each not in LASTING])
def test_status_of_the_last_leader_is_shown_as_such_unless_nothing_runs(recorded: JobState) -> None:
    for running in (Running.YES, Running.UNKNOWN):
        status = state(recorded.value, running)
        assert status == recorded.value
        assert status_text(status, is_led=False) == f"{recorded.value} when a leader last looked"
        assert status_text(status, is_led=True) == recorded.value
    assert status_text(state(recorded.value, Running.NO), is_led=False) == "ended"


def test_what_lasts_needs_no_leader_and_what_none_has_seen_is_submitted() -> None:
    for running in Running:
        for recorded in LASTING:
            assert status_text(state(recorded.value, running), is_led=False) == recorded.value
        assert status_text(state("", running), is_led=False) == "submitted"


class Cluster:
    """A cluster's client and YARN, in which applications are in the states given; None: YARN cannot be asked."""

    cluster = "c"

    def __init__(self, states: dict[str, str] | None, *, answers: bool = False) -> None:
        self._yarn = None if states is None else Applications("FAILED", "its code fails", **states)
        self._answers = answers
        cells = {number: CellRecord(each) for number, each in enumerate(states or (), 1)}
        self.zookeeper = SimpleNamespace(
            cells=SimpleNamespace(read_all=lambda: cells, read_each=lambda: cells)
        )

    def info(self) -> dict[str, Any]:
        if not self._answers:
            raise Unavailable("no candidate answers")
        return {}

    @contextmanager
    def driver(self) -> Iterator[Any]:
        if self._yarn is None:
            raise Unavailable("YARN is away")
        yield self._yarn


def test_candidates_and_yarn_say_whether_anything_runs() -> None:
    for cluster, running, ends in (
        (Cluster({"a1": "RUNNING"}, answers=True), Running.YES, 0),
        (Cluster({"a1": "RUNNING", "a2": "ACCEPTED"}), Running.YES, 0),
        (Cluster({"a1": "RUNNING", "a2": "FINISHED"}), Running.YES, 1),
        (Cluster({"a1": "FAILED", "a2": "KILLED"}), Running.NO, 2),
        (Cluster({}), Running.NO, 0),
        (Cluster(None), Running.UNKNOWN, 0),
    ):
        found, ended = applications_of(cast("ClusterClient", cluster), cluster.driver)
        assert (found, len(ended)) == (running, ends)
