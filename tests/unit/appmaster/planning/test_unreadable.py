"""A job that a new leader cannot read: its containers go on as they are, until it can be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appmaster.driver import is_finished
from appmaster.planning.fold.apply import apply
from appmaster.planning.plan import plan
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import Action, ReleaseContainer, SendAssignment, SendExit
from appmaster.planning.state.job import Job, JobState
from appmaster.planning.state.view import ClusterView


def unread(view: ClusterView, *others: Job) -> ClusterView:
    """Return what a new leader knows that has heard the containers and cannot read their job."""
    containers = {
        each.id: replace(each, slot=None, sent=0, sent_digest="", applied=0)
        for each in view.containers.values()
    }
    assert all(each.statuses and each.revisions == {"job": 1} for each in containers.values())
    jobs = {each.name: each for each in others}
    fresh = ClusterView(epoch=2, now_ms=view.now_ms, jobs=jobs, containers=containers)
    return apply(fresh, happened.JobsUnreadable(frozenset({"job"})))


def other(view: ClusterView, *, is_wanted: bool) -> Job:
    job = view.jobs["job"]
    state = JobState.DEPLOYING if is_wanted else JobState.UNDEPLOYED
    model = replace(job.model, job="other", processors={})
    return replace(job, name="other", model=model, is_wanted=is_wanted, is_fenced=not is_wanted, state=state)


def said(view: ClusterView) -> list[Action]:
    """Return what containers are told, and which are given back."""
    return [each for each in plan(view) if isinstance(each, (ReleaseContainer, SendAssignment, SendExit))]


@pytest.mark.parametrize("wanted", [(), (True,), (False,), (True, False)])
def test_containers_of_a_job_that_cannot_be_read_go_on(whole: ClusterView, wanted: tuple[bool, ...]) -> None:
    others = (replace(other(whole, is_wanted=each), name=f"j{at}") for at, each in enumerate(wanted))
    assert said(unread(whole, *others)) == []


def test_they_are_given_back_once_the_job_is_gone(whole: ClusterView) -> None:
    view = apply(unread(whole), happened.JobsUnreadable(frozenset()))
    released = {each.container for each in said(view) if isinstance(each, ReleaseContainer)}
    assert released == view.containers.keys()


def test_they_go_on_when_it_can_be_read(whole: ClusterView) -> None:
    job = whole.jobs["job"]
    view = apply(unread(whole), happened.JobLoaded("job", "run1", job.spec, job.model, job.policy))
    assert said(view) == [], "its records are not known yet"
    view = apply(view, happened.RecordsLoaded(tuple(whole.records.values())))
    view = apply(view, happened.JobsUnreadable(frozenset()))
    sent = {each.container: each.replicas for each in said(view) if isinstance(each, SendAssignment)}
    assert sent.keys() == view.containers.keys()
    assert all(sent.values())


def test_a_job_that_cannot_be_read_keeps_no_cluster_from_ending(whole: ClusterView) -> None:
    view = unread(whole, other(whole, is_wanted=False))
    assert is_finished(view)
    assert not is_finished(replace(view, unreadable=frozenset()))
