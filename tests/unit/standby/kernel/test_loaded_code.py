"""Code of several jobs and revisions is loaded on one thread, whatever cannot be delivered now."""

from __future__ import annotations

from queue import SimpleQueue

import msgspec
import pytest

from standby.errors import StandfastError, Transient
from standby.kernel.loaded_code import LoadedCode
from standby.shared.wire import JobDefinition
from tests.fakes.clock import held
from tests.meanwhile import Hold
from tests.patience import PATIENCE_SECONDS

LOST = JobDefinition("a", "run", {}, "changelog", "group", 1, revision=1, code="lost")
NEWER = msgspec.structs.replace(LOST, revision=2, code="c0de")
OTHER = msgspec.structs.replace(NEWER, name="b")


class Lab:
    """The conductor's side, and what was loaded; the loading of one job can be held."""

    def __init__(self) -> None:
        self.clock = held()
        self.tried: list[JobDefinition] = []
        self.hold = Hold()
        self.is_held = False
        self._ended = SimpleQueue[tuple[JobDefinition, StandfastError | None]]()
        self.codes = LoadedCode(self._load, lambda *ended: self._ended.put(ended), self.clock.monotonic)

    def _load(self, definition: JobDefinition) -> None:
        self.tried.append(definition)
        if self.is_held:
            self.hold()
        if definition.code == "lost":
            raise Transient("no candidate has it")

    def take_end(self) -> None:
        self.codes.ended(*self._ended.get(timeout=PATIENCE_SECONDS))

    def try_(self, definition: JobDefinition) -> bool:
        """Make one attempt; return whether the code is loaded."""
        assert not self.codes.is_loaded(definition)
        self.take_end()
        return self.codes.is_loaded(definition)


def test_code_that_cannot_be_delivered_is_tried_ever_less_often_and_holds_up_nothing_else() -> None:
    lab = Lab()
    assert not lab.try_(LOST)
    assert lab.try_(OTHER)
    for pause in (0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0):
        lab.clock.advance(pause - 0.01)
        assert not lab.codes.is_loaded(LOST)
        lab.clock.advance(0.02)
        assert not lab.try_(LOST)
    assert lab.try_(NEWER), "at once"
    assert lab.tried == [LOST, OTHER, *[LOST] * 7, NEWER]
    assert lab.codes.revisions == {"a": 2, "b": 2}
    lab.codes.close()


@pytest.mark.parametrize("back", [False, True])
def test_of_several_definitions_of_a_job_that_wait_the_last_is_loaded(back: bool) -> None:
    lab = Lab()
    lab.is_held = True
    assert not lab.codes.is_loaded(OTHER)
    lab.hold.await_reached()
    lab.is_held = False
    first = msgspec.structs.replace(NEWER, run="before")
    wanted = first if back else NEWER
    for each in (first, NEWER, wanted):
        assert not lab.codes.is_loaded(each)
    lab.hold.let_go()
    lab.take_end()
    lab.take_end()
    assert lab.codes.is_loaded(wanted) if back else lab.try_(wanted)
    assert lab.tried == [OTHER, wanted]
    lab.codes.close()


def test_no_attempt_begins_for_a_job_that_is_not_assigned_any_more() -> None:
    """Its code would be final for the process, and keep the code of the job's next run out."""
    lab = Lab()
    lab.is_held = True
    assert not lab.codes.is_loaded(OTHER)
    lab.hold.await_reached()
    assert not lab.codes.is_loaded(NEWER)
    lab.codes.keep({OTHER.name})
    lab.hold.let_go()
    lab.take_end()
    lab.take_end()
    assert lab.tried == [OTHER]
    lab.codes.close()
