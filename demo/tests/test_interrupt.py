"""A signal ends the demo as a signal, whatever becomes of the exception on its way."""

from __future__ import annotations

import signal

import pytest

from demo.interrupt import Interrupted, Interrupts


def fail_in_a_library() -> None:
    try:
        signal.raise_signal(signal.SIGTERM)
    except Interrupted as error:
        raise SystemError("returned a result with an exception set") from error


def interrupt_twice() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.raise_signal(signal.SIGTERM)


def test_what_a_library_makes_of_the_interruption_is_its_cause() -> None:
    with pytest.raises(Interrupted) as caught, Interrupts():
        fail_in_a_library()
    assert caught.value.exit_status == 143
    assert isinstance(caught.value.__cause__, SystemError)


def test_only_the_first_signal_raises() -> None:
    with pytest.raises(Interrupted) as caught, Interrupts():
        interrupt_twice()
    assert caught.value.exit_status == 130
    assert caught.value.__cause__ is None


def test_errors_without_a_signal_are_left_as_they_are() -> None:
    with pytest.raises(ValueError, match="wrong"), Interrupts():
        raise ValueError("wrong")


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
