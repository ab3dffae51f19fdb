"""The sentences of reasons and of failed attempts to get a container."""

from __future__ import annotations

from typing import Any

import pytest

from appmaster.planning.state.events import PortProbed
from appmaster.planning.state.reasons import DecisionBasis, FailureReason, Loss, Reason, Setback, SetbackKind
from standby.shared.exits import ProcessEnd


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Reason(Loss.SILENT), "silent"),
        (Reason(Loss.YARN_COMPLETED, "exit code 1"), "yarn-completed: exit code 1"),
        (Reason(DecisionBasis.EMPTY_SLOT), "an empty slot"),
        (Reason(FailureReason.POISON, "its input is poison"), "its input is poison"),
    ],
)
def test_a_reason_is_a_kind_and_a_detail_or_a_detail_alone(reason: Reason[Any], expected: str) -> None:
    assert str(reason) == expected


@pytest.mark.parametrize(
    ("setback", "words", "figures"),
    [
        (Setback(SetbackKind.NOT_GRANTED, "h1", 5_000), "host h1 gave no container", " in 5000 ms"),
        (Setback(SetbackKind.NOT_GRANTED, None, 5_000), "no host gave a container", " in 5000 ms"),
        (Setback(SetbackKind.NOT_REGISTERED, "h1", 90_001), "its container did not register", " in 90001 ms"),
        (
            Setback(SetbackKind.OF_NO_USE, "h1", detail="h1 is full"),
            "its container was released: h1 is full",
            "",
        ),
        (Setback(SetbackKind.LOST, "h1", detail="process-ended: in vain"), "process-ended: in vain", ""),
    ],
)
def test_a_setback_is_a_sentence_and_the_time_that_it_took(
    setback: Setback, words: str, figures: str
) -> None:
    assert (setback.words, str(setback)) == (words, f"{words}{figures}")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (None, Reason(Loss.PORT_REFUSED)),
        (ProcessEnd(-9), Reason(Loss.PROCESS_ENDED, "it was ended by SIGKILL")),
    ],
)
def test_a_port_that_refuses_means_that_the_process_ended_as_its_witness_saw(
    end: ProcessEnd | None, expected: Reason[Loss]
) -> None:
    assert PortProbed("c4", 4, accepts=False, at_ms=0, end=end).loss == expected
