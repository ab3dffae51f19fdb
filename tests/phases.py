"""Runs the suite in phases: ``python -m tests.phases gate`` (or ``all``, ``soak``).

Phases on servers run one after the other. Those without servers run one after the other beside them, at a lower
priority: servers leave a third to a half of two cores idle. docs/testing.md says what each phase is for. A module on
real servers that fails is run once more at the end, alone and on fresh servers. If it passes then, it is reported as
unsteady. More than two such modules, or a second failure, make the run red.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).parents[1]
REPORTS: Final = ROOT / "build" / "tests"

#: How many modules may pass only on repetition.
MOST_UNSTEADY: Final = 2

_GATE: Final = "not acceptance and not soak"
_ACCEPTANCE: Final = "acceptance and not soak"
_ALL: Final = "not soak"
_TEXT_LINES: Final = 20

#: The lowest: what runs on servers is subject to real time-outs, and what runs without them is not.
_LOW_PRIORITY: Final = ("nice", "-n", "19")

#: pytest's exit codes for "a test failed" and "no test was selected".
_FAILED: Final = 1
_NONE: Final = 5


@dataclass(frozen=True, slots=True)
class Phase:
    """One run of pytest."""

    name: str
    folders: tuple[str, ...]
    select: str
    """Which tests of the folders, by their markers."""
    workers: int = 1
    is_repeated: bool = False
    """Whether a failed module is run once more: only on real servers."""
    is_beside: bool = False
    """Whether it needs no servers, and runs beside those that do at a lower priority."""
    environment: Mapping[str, str] = field(default_factory=dict)


_FAST: Final = ("tests/simulation", "tests/property", "tests/unit", "tests/scenarios")
_CONTRACTS: Final = ("tests/contracts",)
_LONE: Final = ("tests/system/lone",)
_YARN: Final = ("tests/system/yarn",)
#: Tests of code that is not part of the product are next to that code.
_TOOLS: Final = ("benchmarks/tests", "demo/tests")

#: For two cores: tests of replicas in memory wait half of their time, and a third process saves a fifth.
_WORKERS: Final = 3

GATE: Final = (
    Phase("fast", _FAST, _GATE, workers=_WORKERS, is_beside=True),
    Phase("contracts", _CONTRACTS, _GATE),
    Phase("lone", _LONE, _GATE, is_repeated=True),
    Phase("yarn", _YARN, _GATE, is_repeated=True),
)
#: The gate's phases with all acceptance cases: in one process, so that servers and JVMs are started once. Only the fast
#: ones stay apart: Spark's JVMs would be beside tests in memory, which wait for nothing.
ALL: Final = (
    GATE[0],
    Phase("tools", _TOOLS, _ALL, workers=_WORKERS, is_beside=True),
    Phase("fast, acceptance", _FAST, _ACCEPTANCE, workers=_WORKERS, is_beside=True),
    *(replace(each, select=_ALL) for each in GATE[1:]),
)
_RANDOM: Final = {"STANDFAST_HYPOTHESIS": "explore", "STANDFAST_SEED": "fresh"}
SOAK: Final = (
    Phase("fresh examples", _FAST, _ALL, workers=_WORKERS, environment=_RANDOM),
    Phase("soak", ("tests",), "soak", environment=_RANDOM),
)
SUITES: Final[Mapping[str, tuple[Phase, ...]]] = {"gate": GATE, "all": ALL, "soak": SOAK}


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed, or the set-up or tear-down around it."""

    module: str
    case: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of pytest."""

    exit_code: int
    passed: int = 0
    skipped: int = 0
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules with failures, in the order in which they failed."""
        return tuple(dict.fromkeys(each.module for each in self.failures))

    @property
    def is_judged(self) -> bool:
        """Whether pytest came to its end; otherwise the result is incomplete."""
        return self.exit_code in (0, _NONE) or (self.exit_code == _FAILED and bool(self.failures))


#: Runs the tests of a phase and returns the result. Called on a thread of its own for the phases beside others.
Run = Callable[[Phase], Outcome]


@dataclass(slots=True)
class Verdict:
    """The result of a suite."""

    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    unsteady: list[Failure] = field(default_factory=list)
    """The first failures of modules that passed on repetition."""
    failures: list[Failure] = field(default_factory=list)
    ended_early: list[str] = field(default_factory=list)
    """Phases in which pytest did not come to its end."""

    @property
    def is_green(self) -> bool:
        """Whether the suite passed."""
        return not self.failures and not self.ended_early

    @property
    def passed(self) -> int:
        """How many cases passed, repetitions not counted."""
        return sum(each.passed for _, each in self.outcomes) + len({each.case for each in self.unsteady})

    @property
    def skipped(self) -> int:
        """How many cases were skipped."""
        return sum(each.skipped for _, each in self.outcomes)


def judge(phases: Sequence[Phase], run: Run) -> Verdict:
    """Run the phases, in order and those without servers beside the others; return the result.

    Then each failed module is repeated, if its phase allows it. With more failed modules than may be unsteady the suite
    is red in any case, and nothing is repeated.
    """
    verdict = Verdict()
    repeats: list[tuple[Phase, Outcome]] = []
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")
    try:
        beside = {each.name: pool.submit(run, each) for each in phases if each.is_beside}
        ahead = {each.name: run(each) for each in phases if not each.is_beside}
        found = {**ahead, **{name: future.result() for name, future in beside.items()}}
    finally:
        # Whoever interrupts the run does not want the phases that have not begun.
        pool.shutdown(cancel_futures=True)
    for phase in phases:
        outcome = found[phase.name]
        verdict.outcomes.append((phase.name, outcome))
        if not outcome.is_judged:
            verdict.ended_early.append(phase.name)
        if phase.is_repeated and outcome.failures:
            repeats.append((phase, outcome))
        else:
            verdict.failures += outcome.failures
    if sum(len(outcome.modules) for _, outcome in repeats) > MOST_UNSTEADY:
        verdict.failures += (each for _, outcome in repeats for each in outcome.failures)
        return verdict
    for phase, outcome in repeats:
        for module in outcome.modules:
            again = run(replace(phase, name=f"{module} again", folders=(module,)))
            first = [each for each in outcome.failures if each.module == module]
            is_mended = again.exit_code == 0 and again.passed > 0
            (verdict.unsteady if is_mended else verdict.failures).extend(first)
            verdict.failures += again.failures
    return verdict


def run_pytest(phase: Phase, options: Sequence[str] = ()) -> Outcome:
    """Run the tests of a phase with pytest in a separate process, whose servers end with it.

    What a phase beside others prints is shown as a whole when it has ended.
    """
    report = _file(phase, "xml")
    report.unlink(missing_ok=True)
    workers = ["--numprocesses", str(phase.workers), "--dist", "worksteal"] if phase.workers > 1 else []
    # This family tells the file of each case.
    reporting = [f"--junitxml={report}", "-o", "junit_family=xunit1"]
    command = [sys.executable, "-m", "pytest", *phase.folders, "-m", phase.select]
    command += [*workers, *reporting, *options]
    title = f"\n======== {phase.name} ========"
    begin = time.monotonic()
    if phase.is_beside:
        printed = _file(phase, "txt")
        with printed.open("wb") as file:
            done = _run([*_LOW_PRIORITY, *command], phase, file)
        print(f"{title}\n{printed.read_text(encoding='utf-8', errors='replace')}", flush=True)
    else:
        print(title, flush=True)
        done = _run(command, phase)
    return replace(read(report, done.returncode), seconds=time.monotonic() - begin)


def _run(
    command: Sequence[str], phase: Phase, output: IO[bytes] | None = None
) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **phase.environment}
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False)


def _file(phase: Phase, suffix: str) -> Path:
    name = phase.name.replace("/", ".").replace(", ", "-").replace(" ", "-")
    return REPORTS / f"{name}.{suffix}"


def read(report: Path, exit_code: int) -> Outcome:
    """Return the result from pytest's report; without a report, only how pytest ended."""
    if not report.exists():
        return Outcome(exit_code)
    failures: list[Failure] = []
    passed = skipped = 0
    for case in ET.parse(report).iter("testcase"):
        module = case.get("file") or case.get("classname") or "?"
        found = [each for each in case if each.tag in ("failure", "error")]
        for each in found:
            text = "\n".join(filter(None, (each.get("message"), each.text)))
            failures.append(Failure(module, f"{module}::{case.get('name')}", text))
        is_skipped = any(each.tag == "skipped" for each in case)
        skipped += is_skipped
        passed += not found and not is_skipped
    return Outcome(exit_code, passed, skipped, tuple(failures))


def tell(verdict: Verdict) -> str:
    """Return the last lines of a run: times, what was unsteady and why, what failed, and the verdict."""
    lines = ["", "phase                        passed  failed  seconds"]
    for name, outcome in verdict.outcomes:
        lines.append(f"{name:28} {outcome.passed:6} {len(outcome.failures):7} {outcome.seconds:8.0f}")
    lines += [f"PHASE ENDED EARLY {name}: what pytest said stands above" for name in verdict.ended_early]
    lines += [f"FAILED {each.case}" for each in verdict.failures]
    for each in verdict.unsteady:
        lines += [f"UNSTEADY {each.case}: passed when it was repeated alone. The first time:"]
        lines += [f"    {line}" for line in each.text.splitlines()[-_TEXT_LINES:]]
    failed = len({each.case for each in verdict.failures}) + len(verdict.ended_early)
    return "\n".join((*lines, f"{verdict.passed} passed, {failed} failed, {verdict.skipped} skipped"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a suite; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.phases", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("options", nargs="*", help="after --: options of pytest, for every phase")
    parsed = parser.parse_args(arguments)
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    verdict = judge(SUITES[parsed.suite], lambda phase: run_pytest(phase, parsed.options))
    print(tell(verdict))
    return 0 if verdict.is_green and verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
