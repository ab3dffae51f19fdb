"""Runs the contestants of a benchmark, each a process of its own, round by round."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rounds import BadAnswer, answer_of, figures, order

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do what is measured."""

    name: str
    command: Sequence[str]
    """What to run; it is told everything by its arguments, and writes one JSON line (`benchmarks.rounds.answer_of`)."""
    prepare: Callable[[], None] = lambda: None
    """Called before each of its rounds, outside of what is measured: an empty directory, for example."""
    environment: Mapping[str, str] = field(default_factory=dict)


class Failed(Exception):
    """A contestant did not finish, and says why."""


def run(contestant: Contestant, timeout_seconds: float, log: Path) -> dict[str, Any]:
    """Return what the contestant says; its standard error is appended to ``log``. Raises `Failed`.

    Whatever it leaves running in its session is killed, and so is all of it when it overruns.
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
    """What came of a contest."""

    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Contestant → its answer in each round that it finished."""
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the medians and ranges, every single answer, and what failed."""
        return {
            "medians": {
                name: {what: found.as_json() for what, found in figures(each).items()}
                for name, each in self.answers.items()
            },
            "rounds": self.answers,
            "failures": self.failures,
        }


def compete(
    contestants: Sequence[Contestant],
    rounds: int,
    timeout_seconds: float,
    logs: Path,
    label: str,
    check: Callable[[Mapping[str, Any]], str | None] = lambda _: None,
) -> Results:
    """Return the results of all rounds; ``check`` says what is wrong with an answer, which then does not count."""
    results = Results({each.name: [] for each in contestants})
    for turn in range(rounds):
        for each in order(contestants, turn):
            try:
                found = run(each, timeout_seconds, logs / f"{each.name.replace(' ', '-')}.log")
                wrong = check(found)
                if wrong is not None:
                    raise Failed(wrong)
            except Failed as failure:
                results.failures.append(f"{label}, round {turn + 1}, {each.name}: {failure}")
                say(results.failures[-1])
            else:
                results.answers[each.name].append(found)
                say(f"{label}, round {turn + 1} of {rounds}, {each.name}: {_short(found)}")
    return results


def say(text: str) -> None:
    """Tell the user how things stand."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _short(found: Mapping[str, Any]) -> str:
    shown = [f"{name} {value:,.2f}" for name, value in found.items() if isinstance(value, float)]
    return ", ".join(shown[:6])
