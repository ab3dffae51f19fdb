"""The leader's counters and histograms: which series each has, from when on, and how finely time is divided."""

from __future__ import annotations

import itertools

import pytest

from appmaster.planning.state import counters as known
from appmaster.planning.state.counters import Counter, Histogram


def test_labels_are_those_that_dashboards_and_alerts_know() -> None:
    """They are made from the planner's types: a name that changes there changes a series."""
    assert (
        *("process-ended", "port-refused", "silent", "no-stream", "never-came", "unregistered"),
        *("yarn-completed", "replica-failed", "replica-fenced", "gone-before-takeover", "other"),
    ) == known.LOSS_REASONS
    assert known.REQUEST_KINDS == ("preferred", "named", "any", "reservation")
    assert set(known.RELEASE_REASONS) == {
        *("surplus", "same-host", "drained", "expired", "lost", "replaced", "ended", "other")
    }
    assert set(known.REQUEST_OUTCOMES) - set(known.RELEASE_REASONS) == {
        *("granted", "refused", "cancelled", "failed")
    }
    assert known.WITHOUT_REASONS == ("restoring", "no-other-copy-lives", "standby-stayed", "other")
    assert set(known.DECISION_REASONS) == {
        *("in-sync", "not-in-sync", "an-empty-slot", "the-first-of-its-tasks-copies", "no-other-copy-lives"),
        *("there-is-no-need-to-move-any-more", "the-job-is-being-undeployed", "poison", "stuck", "other"),
        "another-copy-is-on-its-host",
        "another-copy-finds-no-place",
    }
    assert (
        *("bind", "failover", "displace", "restore", "handover", "move", "moved", "stay", "drop", "raise"),
        *("claimed", "in_sync", "failures", "park", "undeploy", "other"),
    ) == known.DECISIONS


def test_every_series_is_shown_from_the_start_but_those_of_decisions() -> None:
    cases: tuple[tuple[Counter, list[tuple[str, ...]]], ...] = (
        (known.DOUBTS, [()]),
        (known.MOVES, [("a",), ("b",)]),
        (known.FAILOVERS, [("a", "promote"), ("a", "restart"), ("b", "promote"), ("b", "restart")]),
        (known.REQUESTS_MADE, [(each,) for each in known.REQUEST_KINDS]),
        (known.DECIDED, []),
    )
    for counter, expected in cases:
        assert list(counter.values(("a", "b"))) == expected, counter.name


def test_every_series_of_a_histogram_is_shown_from_the_start() -> None:
    assert list(known.HANDOVER_SECONDS.values()) == [(each,) for each in (*known.PHASES, "total")]
    assert list(known.TURN_SECONDS.values()) == [()]


@pytest.mark.parametrize("histogram", known.HISTOGRAMS, ids=lambda each: each.name)
def test_each_bucket_reaches_further_than_the_one_before_and_at_most_three_times_as_far(
    histogram: Histogram,
) -> None:
    assert histogram.buckets[0] > 0
    for shorter, longer in itertools.pairwise(histogram.buckets):
        assert shorter < longer <= 3.01 * shorter
