"""Signals that reach a command while it creates things, and while it removes them again."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from appmaster.cli import main as command_line
from appmaster.cli.main import main
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.undo import EndedBySignal, Undo

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _by_default() -> Iterator[None]:
    """Have the signals do what they do to a command, whatever runs the tests: a background job ignores SIGINT."""
    usual: dict[signal.Signals, Any] = dict.fromkeys(SIGNALS, signal.SIG_DFL)
    usual[signal.SIGINT] = signal.default_int_handler
    before = {each: signal.signal(each, handler) for each, handler in usual.items()}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def send(*numbers: signal.Signals) -> None:
    for each in numbers:
        os.kill(os.getpid(), each)


def fail(error: BaseException, **steps: Callable[[], None]) -> None:
    """Fail by an error, with these steps to be undone."""
    with Undo(Progress()) as undo:
        for what, step in steps.items():
            undo.on_failure(what, step)
        raise error


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_that_ends_a_command_undoes_it_and_is_its_status(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    removed: list[str] = []

    def run(_: argparse.Namespace) -> int:
        with Undo(Progress()) as undo:
            undo.on_failure("the first", lambda: removed.append("first"))
            send(number)
        return 0

    parser = argparse.ArgumentParser()
    parser.set_defaults(run=run)
    monkeypatch.setattr(command_line, "build_parser", lambda: parser)
    assert main([]) == 128 + number
    assert removed == ["first"]
    assert capsys.readouterr().err.endswith(f"standfast: ended by {number.name}\n")
    assert [signal.getsignal(each) for each in SIGNALS] == [signal.SIG_DFL] * 2


def test_further_signals_do_not_stop_the_undoing(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (EndedBySignal(signal.SIGTERM), KeyboardInterrupt(), ValueError("why")):
        removed: list[str] = []

        def remove(into: list[str] = removed) -> None:
            send(signal.SIGTERM, signal.SIGHUP, signal.SIGTERM)
            into.append("it")

        with pytest.raises(type(error)):
            fail(error, it=remove)
        assert removed == ["it"]
    assert "not removed" not in capsys.readouterr().err


def test_ctrl_c_stops_the_undoing_says_what_stays_and_keeps_the_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    removed: list[str] = []
    with pytest.raises(ValueError, match="why"):
        fail(
            ValueError("why"),
            tree=lambda: removed.append("tree"),
            topics=lambda: send(signal.SIGINT),
            applications=lambda: removed.append("applications"),
        )
    assert removed == ["applications"]
    assert "not removed: topics, tree: interrupted" in capsys.readouterr().err


def test_signal_that_is_ignored_or_handled_stays_so() -> None:
    received: list[int] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    with Undo(Progress()) as undo:
        undo.on_failure("it", received.clear)
        send(signal.SIGHUP, signal.SIGTERM)
    assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_command_on_another_thread_is_undone_without_signals() -> None:
    removed: list[str] = []

    def run() -> None:
        with suppress(ValueError):
            fail(ValueError("why"), it=lambda: removed.append("it"))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert removed == ["it"]
