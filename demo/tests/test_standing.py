"""What may be killed, and when the job is whole."""

from __future__ import annotations

import pytest

from demo.standing import (
    Status,
    active_on,
    is_spread,
    is_warm,
    parse,
    shared_hosts,
    victim_host,
    victim_process,
    what_is_missing,
)
from demo.tests.statuses import status, task
from standby.errors import Unavailable


def whole(master: str = "h1") -> Status:
    """Tasks 0 and 1 active on h2, 2 on h3; standbys on h1 and h2."""
    return parse(
        status(
            task(0, [(0, "h2", "c2"), (1, "h1", "c1")]),
            task(1, [(0, "h2", "c2"), (1, "h1", "c1")]),
            task(2, [(0, "h3", "c3"), (1, "h2", "c4")]),
            master=master,
        )
    )


def test_a_whole_job_lacks_nothing_and_what_is_missing_is_said() -> None:
    assert what_is_missing(whole(), tasks=3, copies=2) == ""
    assert is_warm(whole())
    places = [(0, "h2", "c2"), (1, "h1", "c1")]
    draining = task(0, places)
    draining["replicas"][0]["phase"] = "draining"
    for tasks, words in (
        ([], "0 of 1 tasks known"),
        ([task(0, [places[0], (1, None, None)], in_sync=[0])], "1 of 2 replicas placed"),
        ([task(0, places, active=None)], "0 of 1 tasks active"),
        ([draining], "0 of 1 tasks active"),
        ([task(0, places, in_sync=[0])], "1 of 2 replicas in sync"),
    ):
        assert what_is_missing(parse(status(*tasks)), tasks=1, copies=2) == words


def test_a_process_on_the_master_s_host_is_killed_first() -> None:
    victim = victim_process(whole(master="h3"))
    assert victim is not None
    assert victim.container == "c3"
    other = victim_process(whole(master="h9"))
    assert other is not None
    assert other.container == "c2"
    assert victim_process(whole(), avoid=["c2", "c3"]) is None


def test_the_lost_host_is_never_the_master_s_and_spares_tasks_where_it_can() -> None:
    assert victim_host(whole(master="h2")) == "h3"
    assert victim_host(whole(master="h1"), avoid=[2]) == "h2"
    assert victim_host(whole(master="h1"), avoid=[0, 1]) == "h3"
    assert victim_host(whole(master="h3"), avoid=[0, 1]) == "h2"
    assert victim_host(parse(status())) is None


def test_a_host_with_another_cell_s_master_is_lost_only_without_a_choice() -> None:
    assert victim_host(whole(master="h1"), masters=["h1", "h3"]) == "h2"
    assert victim_host(whole(master="h3"), masters=["h2", "h3"]) == "h2"


def test_the_actives_of_a_container_and_of_a_host() -> None:
    assert active_on(whole(), container="c2") == (0, 1)
    assert active_on(whole(), host="h3") == (2,)
    assert active_on(whole(), host="h1") == ()


def test_copies_on_one_host_are_a_violation() -> None:
    assert shared_hosts(whole()) == ()
    assert shared_hosts(parse(status(task(7, [(0, "h2", "c2"), (1, "h2", "c5")])))) == (
        "task 7: copies [0, 1] on h2",
    )
    gone = parse(status(task(7, [(0, "h2", "c2"), (1, "h2", None)])))
    assert shared_hosts(gone) == ()


def test_a_status_of_another_shape_is_an_error() -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        parse({"tasks": [{"epoch": "x"}]})


def test_actives_are_spread_when_the_leader_says_so_and_an_older_leader_says_nothing() -> None:
    assert is_spread(whole())
    job = {
        "name": "flights",
        "run": "r1",
        "spread": {"hosts": {"h1": 2, "h2": 0}, "is_even": False, "why": "calm"},
    }
    uneven = parse({**status(), "jobs": [job]})
    assert not is_spread(uneven)
    assert uneven.jobs[0].spread.text == "h1 2, h2 0"
