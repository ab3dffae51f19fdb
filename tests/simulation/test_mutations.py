"""The simulator finds planted bugs: each is caught by the invariant that it breaks, within so many stories."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import Failure, run_seed

#: Planted bug → the invariants that may catch it, and the only faults of the stories in which one of them must.
CAUGHT_BY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no-epoch-check": (("no_write_of_a_deposed_leader",), ("stop before a write", "kill a container")),
    "order-before-record": (("orders_only_from_acknowledged_records",), ()),
    "own-pause-is-their-silence": (
        ("silence_is_the_others_fault",),
        ("stop the leader", "kill a container"),
    ),
    "planned-stop-is-a-failure": (("planned_stops_are_no_failures",), ("lose a NodeManager", "upgrade")),
    "no-check-of-committed-epoch": (
        ("no_older_epoch_after_a_newer_claim",),
        ("stop before the fence", "stop before the fence", "kill a container"),
    ),
    "drain-to-stable-end": (("state_has_all_before",), ("hang a transaction", "kill a container")),
    "start-before-stop": (
        ("an_active_starts_after_the_standby_there_has_stopped",),
        ("lose a host", "stop before closing"),
    ),
    "no-same-host-check": (("copies_on_different_hosts",), ()),
    "no-lease": (
        ("no_leader_acts_on_a_lease_that_is_over",),
        ("stop the leader for long", "stop the leader for long", "kill a container"),
    ),
    "lease-of-a-session": (("acts_end_before_another_leads",), ("cut the leader off",)),
    "everybody-is-blamed": (
        ("only_what_ran_alone_is_blamed",),
        ("fault of the job's code", "kill a process"),
    ),
    "moves-to-any-copy": (("moves_between_copies_in_sync",), ("kill a container",)),
    "moves-together": (("one_move_at_a_time",), ("kill a container",)),
    "never-moves": (("whole_at_the_end: actives are at",), ("kill a container",)),
    "disks-are-not-waited-for": (("a_disk_is_waited_for",), ("slow a disk",)),
    "nothing-is-stuck": (("a_promotion_that_hangs_is_given_up",), ("hang a promotion", "kill a container")),
    "no-resend": (("whole_at_the_end",), ("break streams", "cut a host off")),
    "promotion-keeps-epoch": (("new_active_new_epoch",), ("kill a container",)),
    "store-before-commit": (("state_has_all_before",), ("lose answers of Kafka",)),
    "no-fence": (
        ("no_older_epoch_after_a_newer_claim", "every_record_once", "state_has_all_before"),
        ("stop a container", "cut a host off"),
    ),
    "feed-from-memory": (("every_record_once", "state_has_all_before"), ("kill a container",)),
    "spares-anywhere": (("spares_stand_in_on_other_hosts",), ("kill a container", "lose a host")),
    "spares-first": (("spares_delay_no_other_request",), ("kill a container", "lose a host")),
    "spares-filled-unsaid": (
        ("replacements_by_spares_are_counted", "spares_hold_nothing"),
        ("kill two containers",),
    ),
    "spares-not-made-up-for": (("whole_at_the_end",), ("kill a container",)),
    "input-from-memory": (("every_record_once", "state_has_all_before"), ("kill a container",)),
}

#: Within so many stories, with room to spare: the slowest to be caught takes 34, those not in `RARE` at most 13.
STORIES = 200


#: Of spare containers: caught in the stories of a job that has some.
OF_SPARES = frozenset(each for each in CAUGHT_BY if each.startswith("spares-"))


def told(name: str, seed: int) -> Failure | None:
    """Return what broke in the story of a seed for a planted bug, which need not be planted."""
    return run_seed(seed, only=CAUGHT_BY[name][1], has_spares=name in OF_SPARES)


def caught(name: str, stories: int) -> int | None:
    """Return the first seed whose story breaks one of a bug's invariants; None when none of so many does."""
    for seed in range(stories):
        failure = told(name, seed)
        if failure is not None and failure.invariant.startswith(CAUGHT_BY[name][0]):
            return seed
    return None


def test_every_planted_bug_has_its_invariant() -> None:
    assert CAUGHT_BY.keys() == MUTATIONS.keys()


#: It takes some thirty stories until each of these is caught.
RARE = ("no-resend", "no-same-host-check", "nothing-is-stuck")


@pytest.mark.simulation
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.acceptance] if each in RARE else [])
        for each in sorted(MUTATIONS)
    ],
)
def test_a_planted_bug_is_caught(name: str) -> None:
    invariants, _ = CAUGHT_BY[name]
    with MUTATIONS[name]():
        seed = caught(name, STORIES)
    assert seed is not None, f"{name}: none of {invariants} caught it in {STORIES} stories"
    # The same story without the bug breaks none of them.
    found = told(name, seed)
    assert found is None or not found.invariant.startswith(invariants), found
