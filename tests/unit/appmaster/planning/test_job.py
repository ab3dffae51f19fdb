"""What a job's state says of it, and how long it waits after failures."""

from __future__ import annotations

from typing import Any

import pytest

from appmaster.planning.state.job import Lack, OnExhausted, PlannerPolicy
from appmaster.planning.state.reasons import FailureReason, Reason
from appmaster.planning.state.view import ClusterView
from tests.unit.appmaster.planning.views import PROCESSOR, changed, of_job, of_processor

FAILED = Reason(FailureReason.POISON)


@pytest.mark.parametrize(
    ("before", "expected"), [(0, 500), (1, 1_000), (4, 8_000), (5, 15_000), (1_000_000, 15_000)]
)
def test_the_wait_after_failures_is_doubled_each_time_up_to_a_limit(before: int, expected: int) -> None:
    policy = PlannerPolicy(retry_backoff_ms=500, retry_backoff_max_ms=15_000)
    assert policy.backoff_ms(before) == expected


def test_a_policy_promotes_warm_standbys_and_fails_the_job_on_errors_if_nothing_else_is_told() -> None:
    policy = PlannerPolicy()
    assert not policy.restarts
    assert policy.has_warm_standbys
    assert policy.fails_on_error
    assert policy.on_exhausted is OnExhausted.FAIL


def test_a_lack_names_its_processor() -> None:
    assert str(Lack(PROCESSOR, "no standby")) == "job/main:0: no standby"


def test_a_job_is_led_while_it_is_wanted_and_has_not_failed_and_over_once_it_is_fenced(
    whole: ClusterView,
) -> None:
    cases: tuple[tuple[dict[str, Any], bool, bool], ...] = (
        ({}, True, False),
        ({"is_wanted": False}, False, False),
        ({"failure": FAILED}, False, False),
        ({"is_wanted": False, "is_fenced": True}, False, True),
        ({"failure": FAILED, "is_fenced": True}, False, True),
        ({"is_fenced": True}, True, False),
    )
    for changes, is_led, is_over in cases:
        job = changed(whole, of_job(**changes)).jobs["job"]
        assert (job.is_led, job.is_over) == (is_led, is_over), changes


def test_code_is_refused_once_as_many_containers_as_copies_and_at_least_two_could_not_use_it(
    whole: ClusterView,
) -> None:
    for copies, least in (((0,), 2), ((0, 1, 2), 3)):
        for refused in (least - 1, least, least + 1):
            view = changed(whole, of_processor(copies=copies), of_job(refused=refused))
            assert view.jobs["job"].is_refused is (refused >= least), (copies, refused)
