"""Names of what a job owns: different jobs never share one, whatever their names look like."""

from __future__ import annotations

import re

import hypothesis.strategies as st
from hypothesis import given

from standby.shared import naming
from standby.shared.model import TaskId

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)


@given(a=st.tuples(NAMES, NAMES), b=st.tuples(NAMES, NAMES))
def test_different_clusters_and_jobs_never_share_a_name(a: tuple[str, str], b: tuple[str, str]) -> None:
    made = [
        (
            naming.changelog_topic(cluster, job, "main", "r1"),
            naming.consumer_group(cluster, job, "main", "r1"),
            naming.transactional_id(cluster, TaskId(job, "main", 0)),
            naming.state_path(cluster, "h", TaskId(job, "main", 0), "r1"),
        )
        for cluster, job in (a, b)
    ]
    # Kafka takes a dot and an underscore in a topic's name for the same.
    first, second = ([each.replace(".", "_") for each in names] for names in made)
    assert (a == b) == (first[0] == second[0])
    assert all((x == y) == (a == b) for x, y in zip(first, second, strict=True))


@given(name=NAMES)
def test_topics_have_names_that_kafka_allows(name: str) -> None:
    topic = naming.changelog_topic(name, name, "main", "0123456789ab")
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic)


def test_transactional_id_has_no_run_so_that_a_later_run_fences_an_earlier_one() -> None:
    assert naming.transactional_id("c", TaskId("j", "main", 3)) == "standfast__c__j__main__3"


def test_dashes_dots_and_underscores_in_job_names_stay_apart() -> None:
    topics = {naming.event_topic(each) for each in ("a-b", "a.b", "a_b", "a__b", "a_ub")}
    assert len(topics) == 5


def test_bundles_of_code_lie_below_the_cluster() -> None:
    root = naming.code_root_path("c")
    assert root == "/standfast/c/code"
    assert naming.code_path("c", "d1") == f"{root}/d1"
    assert naming.code_part_path("c", "d1", 3) == f"{root}/d1/parts/3"
    assert naming.code_complete_path("c", "d1") == f"{root}/d1/parts/complete"
    assert naming.code_source_path("c", "d1", "container_1-ab") == f"{root}/d1/container_1-ab"
