"""The simulator finds planted bugs: each is caught by the law that it breaks, within a bounded number of stories."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import Failure, run_seed

#: Planted bug → the laws that may catch it, and the stories in which one of them must.
CAUGHT_BY: dict[str, tuple[tuple[str, ...], range]] = {
    "no-epoch-check": (("no_write_of_a_deposed_leader",), range(480, 520)),
    "order-before-record": (("orders_only_from_acknowledged_records",), range(20)),
    "own-pause-is-their-silence": (("silence_is_the_others_fault",), range(40)),
    "planned-stop-is-a-failure": (("planned_stops_are_no_failures",), range(60)),
    "no-check-of-committed-epoch": (("no_older_epoch_after_a_newer_claim",), range(40, 100)),
    "drain-to-stable-end": (("state_has_all_before",), range(370, 400)),
    "no-same-host-check": (("copies_on_different_hosts",), range(40)),
    "no-resend": (("whole_at_the_end",), range(60)),
    "promotion-keeps-epoch": (("new_active_new_epoch",), range(40)),
    "store-before-commit": (("state_has_all_before",), range(40)),
    "no-fence": (
        ("no_older_epoch_after_a_newer_claim", "every_record_once", "state_has_all_before"),
        range(40),
    ),
    "input-from-memory": (("every_record_once", "state_has_all_before"), range(40)),
}


def caught(laws: tuple[str, ...], seeds: range) -> Failure | None:
    for seed in seeds:
        failure = run_seed(seed)
        if failure is not None and failure.law.startswith(laws):
            return failure
    return None


def test_every_planted_bug_has_its_law() -> None:
    assert CAUGHT_BY.keys() == MUTATIONS.keys()


@pytest.mark.simulation
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_planted_bug_is_caught(name: str) -> None:
    laws, seeds = CAUGHT_BY[name]
    with MUTATIONS[name]():
        assert caught(laws, seeds) is not None, f"{name}: none of {laws} caught it in {seeds}"


@pytest.mark.simulation
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_without_the_bug_that_law_holds(name: str) -> None:
    laws, seeds = CAUGHT_BY[name]
    assert caught(laws, seeds[:20]) is None
