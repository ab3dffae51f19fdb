"""Fixtures of the planner's tests."""

from __future__ import annotations

import pytest

from appmaster.planning.state.view import ClusterView
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.views import with_three_processors, with_two_standbys


@pytest.fixture(scope="module")
def whole() -> ClusterView:
    """A processor of two tasks: copy 0 is active on h1; copies 1 and 2, on h2 and h3, could take over for a while."""
    return with_two_standbys()


@pytest.fixture(scope="module")
def mixed() -> ClusterView:
    """A mixed job of three tasks: c4, c5 and c6 on h1, h2 and h3 each have an active, and the next one its standby."""
    return deployed(tasks=3, containers=3, is_mixed=True, hosts=("h1", "h2", "h3", "h4")).view


@pytest.fixture(scope="module")
def three() -> ClusterView:
    """Processors 0, 1 and 2 of two tasks each: actives on h1, h2 and h3, standbys on h4, h5 and h6."""
    return with_three_processors()


@pytest.fixture(scope="module")
def mixed_pair() -> ClusterView:
    """A mixed job of two tasks with a standby each, in two containers: c3 on h1 and c4 on h2."""
    return deployed(tasks=2, containers=2, is_mixed=True, hosts=("h1", "h2")).view
