"""How often and over what a transform is rehearsed, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from standby.errors import Transient
from standby.feed.warmup import FEWEST, HUNG_SECONDS, KEEP_SECONDS, MOST, WarmUp
from tests.fakes.clock import held
from tests.fakes.feed_rows import rows
from tests.patience import PATIENCE_SECONDS

ROW = rows((0, 0))


class Stage:
    """Where a warm-up takes place: its clock, its input, and the rehearsals that it makes."""

    def __init__(self) -> None:
        self.clock = held()
        #: What was rehearsed, one for each run.
        self.rehearsed: list[pa.Table | None] = []
        self.recent: pa.Table | None = ROW
        self.is_away = False
        self.reads = 0
        #: Called by each rehearsal.
        self.on_rehearse: Callable[[], None] = lambda: None
        self.interrupted = threading.Event()
        self.warm_up = WarmUp(self._rehearse, self.interrupted.set, self.clock)

    def run(self) -> int:
        """Run the warm-up; return how many rehearsals it made."""
        before = len(self.rehearsed)
        self.warm_up.run(self._recent)
        return len(self.rehearsed) - before

    def _recent(self) -> pa.Table | None:
        self.reads += 1
        if self.is_away:
            raise Transient("no broker")
        return self.recent

    def _rehearse(self, rows: pa.Table | None) -> None:
        self.rehearsed.append(rows)
        self.on_rehearse()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_first_run_rehearses_several_times_and_later_ones_once_in_a_while(stage: Stage) -> None:
    assert not stage.warm_up.is_done
    assert (stage.run(), stage.warm_up.is_done) == (FEWEST, True)
    for passed, rehearsals in ((KEEP_SECONDS - 1, 0), (1, 1), (0, 0)):
        stage.clock.advance(passed)
        assert stage.run() == rehearsals, passed
    assert all(each is ROW for each in stage.rehearsed)
    assert stage.reads == 1, "the rows are kept"


def test_rows_that_are_large_are_read_again_for_each_rehearsal(stage: Stage) -> None:
    stage.recent = ROW.take([0] * (1 << 20))
    stage.run()
    stage.clock.advance(KEEP_SECONDS)
    assert (stage.run(), stage.reads) == (1, 2)


def test_an_empty_input_is_replaced_by_synthetic_rows_until_it_has_records(stage: Stage) -> None:
    stage.recent = None
    assert stage.run() == FEWEST
    assert (stage.warm_up.is_done, stage.warm_up.seconds) == (True, None), (
        "a batch of real rows may take longer"
    )
    stage.clock.advance(KEEP_SECONDS)
    assert stage.run() == 1
    assert stage.run() == 0, "nothing new without rows"
    stage.recent = ROW
    assert stage.run() == FEWEST, "the first rows do not wait for the next turn"
    assert stage.warm_up.seconds is not None
    assert [each is ROW for each in stage.rehearsed] == [False] * (FEWEST + 1) + [True] * FEWEST


def test_a_cancel_counts_for_the_run_that_it_meets_or_else_for_the_next_one(stage: Stage) -> None:
    stage.warm_up.cancel()
    assert stage.run() == 0
    stage.on_rehearse = stage.warm_up.cancel
    assert stage.run() == 1
    assert not stage.warm_up.is_done
    assert stage.warm_up.seconds is None, "it may have been interrupted"
    stage.on_rehearse = lambda: None
    assert stage.run() == FEWEST


def test_a_rehearsal_that_hangs_is_ended_and_is_the_last_one(stage: Stage) -> None:
    def hang() -> None:
        stage.clock.advance(HUNG_SECONDS)
        assert stage.interrupted.wait(PATIENCE_SECONDS)

    stage.on_rehearse = hang
    assert (stage.run(), stage.warm_up.is_done, stage.warm_up.seconds) == (1, False, None)
    # Its rows may still be the last ones, and Spark cannot end each function that hangs.
    stage.clock.advance(HUNG_SECONDS)
    assert stage.run() == 0
    stage.warm_up.count_batch()
    assert stage.warm_up.is_done


def test_a_rehearsal_that_is_slow_is_not_ended(stage: Stage) -> None:
    stage.on_rehearse = lambda: stage.clock.advance(HUNG_SECONDS - 1)
    assert (stage.run(), stage.warm_up.is_done, stage.interrupted.is_set()) == (FEWEST, True, False)


def test_a_real_batch_warms_as_well(stage: Stage) -> None:
    stage.warm_up.cancel()
    stage.warm_up.count_batch()
    assert stage.warm_up.is_done
    assert stage.run() == 0
    stage.clock.advance(KEEP_SECONDS)
    assert stage.run() == 1


def test_an_input_that_cannot_be_read_is_an_error_and_is_tried_again(stage: Stage) -> None:
    stage.is_away = True
    with pytest.raises(Transient):
        stage.run()
    assert not stage.warm_up.is_done
    stage.is_away = False
    assert stage.run() == FEWEST


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param([4, 4, 4, 4, 4, 4, 4], FEWEST, id="they do not change"),
        pytest.param([8, 8, 8, 4, 4, 4, 2, 2, 2, 2, 2], 10, id="they settle later"),
        pytest.param([1, 1, 1, 9, 1, 9, 9, 9], FEWEST, id="only some are slow, as on a busy machine"),
        pytest.param([0.5**each for each in range(MOST + 1)], MOST, id="they never settle"),
    ],
)
def test_a_transform_is_rehearsed_until_it_is_no_quicker_any_more(
    stage: Stage, times: list[float], expected: int
) -> None:
    left = iter(times)
    stage.on_rehearse = lambda: stage.clock.advance(next(left))
    assert stage.run() == expected
    assert stage.warm_up.seconds == pytest.approx(times[expected - 1])
