"""Runs the contestants of a benchmark, each in a separate process, round by round."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rounds import BadAnswer, answer_of, figures, order
from standby.errors import StandfastError

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One contestant: a program that does what is measured."""

    name: str
    command: Sequence[str]
    """The command; all its input is in the arguments, and it writes one JSON line (`benchmarks.rounds.answer_of`)."""
    prepare: Callable[[], None] = lambda: None
    """Called before each of its rounds, outside the measurement, for example to create an empty directory."""
    environment: Mapping[str, str] = field(default_factory=dict)


class Failed(Exception):
    """A contestant did not finish; the message has the reason."""


def run(contestant: Contestant, timeout_seconds: float, log: Path) -> dict[str, Any]:
    """Return the contestant's answer; its standard error is appended to ``log``. Raises `Failed`.

    All processes left in its session are killed at the end, or when it exceeds its time.
    """
    contestant.prepare()
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with log.open("ab") as errors:
        process = subprocess.Popen(
            list(contestant.command),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **contestant.environment},
        )
        try:
            text, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"not done within {timeout_seconds:.0f} s") from error
        finally:
            _kill_session(process)
    try:
        answer = answer_of(text)
    except BadAnswer as error:
        raise Failed(f"{error}, exit status {process.returncode}; see {log}") from error
    if process.returncode != 0:
        raise Failed(f"exit status {process.returncode}; see {log}")
    return {**answer, "process_seconds": time.monotonic() - begin}


def _kill_session(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@dataclass(slots=True)
class Results:
    """The results of a contest."""

    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Contestant → its answer in each round that it finished."""
    failures: list[str] = field(default_factory=list)
    changed: Callable[[], None] = lambda: None
    """Called when there is a new result."""

    def add(self, name: str, answer: Mapping[str, Any]) -> None:
        """Add a contestant's answer of one round."""
        self.answers[name].append(dict(answer))
        self.changed()

    def amend(self, name: str, more: Mapping[str, Any]) -> None:
        """Add to each answer of a contestant the values that belong to all of them together."""
        for each in self.answers[name]:
            each.update(more)
        self.changed()

    @contextlib.contextmanager
    def attempt(self, title: str) -> Iterator[None]:
        """Record any error of the block as a failure of ``title``, so that the others continue."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a run of hours does not end for one contestant
            if not isinstance(error, (Failed, StandfastError)):
                say(traceback.format_exc())
            self.failures.append(f"{title}: {_reason(error)}")
            say(f"failed: {self.failures[-1]}")
            self.changed()

    def as_json(self) -> dict[str, Any]:
        """Return the medians and ranges, every single answer, and the failures."""
        return {
            "medians": {
                name: {what: found.as_json() for what, found in figures(each).items()}
                for name, each in self.answers.items()
            },
            "rounds": self.answers,
            "failures": self.failures,
        }


def _reason(error: BaseException) -> str:
    """Return the error with its causes: stopping a contestant that has failed may fail as well."""
    text = str(error) if isinstance(error, (Failed, StandfastError)) else f"{type(error).__name__}: {error}"
    earlier = None if error.__suppress_context__ else error.__context__
    return text if earlier is None else f"{text}, after: {_reason(earlier)}"


def compete(
    results: Results,
    contestants: Sequence[Contestant],
    rounds: int,
    timeout_seconds: float,
    logs: Path,
    label: str,
    check: Callable[[Mapping[str, Any]], str | None] = lambda _: None,
) -> None:
    """Run all rounds; ``check`` returns what is wrong with an answer, which then does not count."""
    for turn in range(rounds):
        for each in order(contestants, turn):
            with results.attempt(f"{label}, round {turn + 1}, {each.name}"):
                found = run(each, timeout_seconds, logs / f"{each.name.replace(' ', '-')}.log")
                wrong = check(found)
                if wrong is not None:
                    raise Failed(wrong)
                results.add(each.name, found)
                say(f"{label}, round {turn + 1} of {rounds}, {each.name}: {_short(found)}")


def say(text: str) -> None:
    """Print the progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _short(found: Mapping[str, Any]) -> str:
    shown = [f"{name} {value:,.2f}" for name, value in found.items() if isinstance(value, float)]
    return ", ".join(shown[:6])
