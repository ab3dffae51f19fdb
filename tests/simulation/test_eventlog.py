"""What leaders tell in some stories is what is kept of them."""

from __future__ import annotations

import pytest

from tests.simulation.eventlog import FOLDER, SEEDS, path, told


@pytest.mark.parametrize("seed", SEEDS)
def test_the_event_log_is_the_one_that_is_kept(seed: int) -> None:
    kept = path(seed).read_text(encoding="utf-8")
    assert told(seed).splitlines() == kept.splitlines(), "meant? python -m tests.simulation.rewrite"


def test_a_file_is_kept_for_each_seed_and_no_other() -> None:
    assert set(FOLDER.iterdir()) == {path(seed) for seed in SEEDS}
