"""Where a command's output goes: a reader that has gone is no failure, and an output that is closed takes nothing."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from appmaster.cli import main as command_line
from appmaster.cli.main import main
from appmaster.cli.shared.output import Progress, print_table
from appmaster.cli.shared.undo import Undo
from standby.errors import BadConfiguration
from tests.patience import PATIENCE_SECONDS

#: More than a pipe, and a stream's buffer, take without a reader.
MANY = [f"{each:0100}" for each in range(1_000)]


def as_table(_: argparse.Namespace) -> int:
    print_table(["N"], [[each] for each in MANY])
    return 0


def line_by_line(_: argparse.Namespace) -> int:
    for each in MANY:
        print(each, flush=True)
    return 0


def in_one_line(_: argparse.Namespace) -> int:
    print("one")
    return 0


def refused_by_a_server(_: argparse.Namespace) -> int:
    raise BrokenPipeError(32, "Broken pipe")


Command = Callable[[argparse.Namespace], int]
Give = Callable[[Command], None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Return what makes a function the one command that there is."""

    def made(run: Command) -> None:
        parser = argparse.ArgumentParser()
        parser.set_defaults(run=run)
        monkeypatch.setattr(command_line, "build_parser", lambda: parser)

    return made


@contextmanager
def read_by_one_who_goes(most: int, name: str = "stdout") -> Iterator[None]:
    """Have an output that is a pipe of which somebody reads so much, and goes: as ``| head`` does."""
    reading, writing = os.pipe()

    def read() -> None:
        if most:
            os.read(reading, most)
        os.close(reading)

    reader = threading.Thread(target=read)
    reader.start()
    if not most:
        reader.join(PATIENCE_SECONDS)
    before, pipe = getattr(sys, name), os.fdopen(writing, "w")
    setattr(sys, name, pipe)
    try:
        yield
    finally:
        setattr(sys, name, before)
        with suppress(BrokenPipeError):
            pipe.close()
    reader.join(PATIENCE_SECONDS)


@contextmanager
def closed(name: str) -> Iterator[None]:
    """Have an output that is closed, as ``>&-`` leaves it."""
    before = getattr(sys, name)
    setattr(sys, name, None)
    try:
        yield
    finally:
        opened = getattr(sys, name)
        setattr(sys, name, before)
        if opened is not None:
            opened.close()


@pytest.mark.parametrize("most", [0, 10])
@pytest.mark.parametrize("run", [as_table, line_by_line, in_one_line])
def test_reader_that_has_gone_is_no_failure(
    give: Give, run: Command, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    give(run)
    with read_by_one_who_goes(most):
        assert main([]) == 0
    assert capsys.readouterr().err == ""


def test_pipe_of_somebody_else_that_breaks_is_one(give: Give, capsys: pytest.CaptureFixture[str]) -> None:
    give(refused_by_a_server)
    assert main([]) == 3
    assert "BrokenPipeError" in capsys.readouterr().err


@pytest.mark.parametrize("run", [as_table, in_one_line])
def test_output_that_is_closed_takes_nothing(give: Give, run: Command) -> None:
    give(run)
    with closed("stdout"):
        assert main([]) == 0


def test_progress_is_not_among_the_results_where_the_error_output_is_closed(
    give: Give, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: argparse.Namespace) -> int:
        Progress().say("half of it")
        print("[]")
        return 0

    give(run)
    with closed("stderr"):
        assert main([]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_what_was_made_is_undone_although_its_output_is_closed() -> None:
    undone: list[str] = []

    def unfinished() -> None:
        with Undo(Progress()) as undo:
            undo.on_failure("the first", lambda: undone.append("the first"))
            undo.on_failure("the second", lambda: undone.append("the second"))
            # As Ctrl-C does to a command and to the `tee` behind it.
            raise KeyboardInterrupt

    with read_by_one_who_goes(0, "stderr"), pytest.raises(KeyboardInterrupt):
        unfinished()
    assert undone == ["the second", "the first"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(BadConfiguration("no such job"), 2), (KeyboardInterrupt(), 130), (OSError(28, "full"), 3)],
)
def test_a_command_ends_with_its_status_although_its_output_is_closed(
    give: Give, error: BaseException, status: int
) -> None:
    def run(_: argparse.Namespace) -> int:
        Progress().say("it begins")
        raise error

    give(run)
    with read_by_one_who_goes(0, "stderr"):
        assert main([]) == status


class Ended(BaseException):
    """The end of the process."""


def test_the_process_ends_with_its_command(
    give: Give, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def end(status: int) -> None:
        raise Ended(status)

    def refused(_: argparse.Namespace) -> int:
        raise BadConfiguration("it is wrong")

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(sys, "argv", ["standfast"])
    for run, status, said in (
        (in_one_line, 0, ("one\n", "")),
        (refused, 2, ("", "standfast: it is wrong\n")),
    ):
        give(run)
        with pytest.raises(Ended) as ended:
            command_line.command_line()
        assert ended.value.args == (status,)
        assert capfd.readouterr() == said
