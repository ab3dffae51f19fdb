"""What `make test` says of what pytest found: which modules are repeated, and what is red."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event

import pytest

from tests import phases
from tests.patience import PATIENCE_SECONDS
from tests.phases import (
    ALL,
    GATE,
    MOST_UNSTEADY,
    Failure,
    Outcome,
    Phase,
    Verdict,
    judge,
    read,
    run_pytest,
    tell,
)

FAST = Phase("fast", ("tests/unit",), "not soak")
SERVERS = Phase("servers", ("tests/system/lone",), "not soak", is_repeated=True)

#: A whole phase, or a module that is repeated → what pytest finds in it.
Found = Mapping[str, Outcome]


def failed(*modules: str, passed: int = 10) -> Outcome:
    return Outcome(1, passed, 0, tuple(Failure(each, f"{each}::test", f"why {each}") for each in modules))


PASSED = Outcome(0, 1)


def judged(found: Found, *phases: Phase) -> tuple[Verdict, list[tuple[str, ...]]]:
    """Return the verdict, and the folders or modules of each run of pytest."""
    runs: list[tuple[str, ...]] = []

    def run(phase: Phase) -> Outcome:
        runs.append(phase.folders)
        return found.get(phase.folders[0], PASSED)

    return judge(phases, run), runs


def test_all_phases_run_in_their_order_whatever_fails_and_a_module_without_servers_is_not_repeated() -> None:
    verdict, runs = judged({"tests/unit": failed("tests/unit/test_a.py")}, FAST, SERVERS)
    assert runs == [FAST.folders, SERVERS.folders]
    assert not verdict.is_green
    assert [each.case for each in verdict.failures] == ["tests/unit/test_a.py::test"]


def test_phases_without_servers_run_one_after_the_other_beside_those_on_servers() -> None:
    # Passed when as many phases are running as it has parties.
    both_run, beside_ended = Barrier(2), Barrier(2)
    begun: list[str] = []

    def run(phase: Phase) -> Outcome:
        begun.append(phase.name)
        if phase.name in ("servers", "fast"):
            both_run.wait(PATIENCE_SECONDS)
        if phase.name in ("servers", "more"):
            beside_ended.wait(PATIENCE_SECONDS)
        return Outcome(0, len(phase.name))

    fast, more = (replace(FAST, name=name, is_beside=True) for name in ("fast", "more"))
    verdict = judge((fast, more, SERVERS), run)
    assert sorted(begun[:2]) == ["fast", "servers"]
    assert begun[2:] == ["more"]
    assert [(name, outcome.passed) for name, outcome in verdict.outcomes] == [
        ("fast", 4),
        ("more", 4),
        ("servers", 7),
    ]


def test_an_interrupt_begins_no_other_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    fast_runs, is_shut = Event(), Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            is_shut.set()
            super().shutdown(wait)

    def run(phase: Phase) -> Outcome:
        begun.append(phase.name)
        if phase.is_beside:
            fast_runs.set()
            assert is_shut.wait(PATIENCE_SECONDS)
            return PASSED
        assert fast_runs.wait(PATIENCE_SECONDS)
        raise KeyboardInterrupt

    monkeypatch.setattr(phases, "ThreadPoolExecutor", Pool)
    fast, more = (replace(FAST, name=name, is_beside=True) for name in ("fast", "more"))
    with pytest.raises(KeyboardInterrupt):
        judge((fast, more, SERVERS), run)
    assert sorted(begun) == ["fast", "servers"]


def test_what_fails_in_a_phase_beside_others_is_reported() -> None:
    found = {"tests/unit": failed("a.py"), "tests/system/lone": PASSED}
    verdict, _ = judged(found, replace(FAST, is_beside=True), SERVERS)
    assert [each.case for each in verdict.failures] == ["a.py::test"]


def test_a_module_on_servers_that_passes_when_it_is_repeated_is_unsteady_and_reported_with_its_first_failure() -> (
    None
):
    verdict, runs = judged({"tests/system/lone": failed("a.py")}, SERVERS, FAST)
    assert runs == [SERVERS.folders, FAST.folders, ("a.py",)], "at the end, alone"
    assert verdict.is_green
    said = tell(verdict).splitlines()
    assert "UNSTEADY a.py::test: passed when it was repeated alone. The first time:" in said
    assert "    why a.py" in said
    assert said[-1] == "12 passed, 0 failed, 0 skipped"


def test_a_second_failure_is_red_and_a_repetition_that_finds_nothing_to_run_mends_nothing() -> None:
    for again in (failed("a.py", passed=0), Outcome(5)):
        verdict, _ = judged({"tests/system/lone": failed("a.py"), "a.py": again}, SERVERS)
        assert not verdict.is_green
        assert verdict.unsteady == []
        assert tell(verdict).splitlines()[-1] == "10 passed, 1 failed, 0 skipped"


def test_more_unsteady_modules_of_all_phases_than_may_be_are_red_and_not_repeated() -> None:
    other = Phase("other", ("tests/system/yarn",), "not soak", is_repeated=True)
    modules = [f"{number}.py" for number in range(MOST_UNSTEADY)]
    found = {"tests/system/lone": failed(*modules), "tests/system/yarn": failed("more.py")}
    verdict, runs = judged(found, SERVERS, other)
    assert runs == [SERVERS.folders, other.folders]
    assert [each.module for each in verdict.failures] == [*modules, "more.py"]


def test_a_phase_of_which_pytest_did_not_come_to_the_end_is_red_and_one_with_nothing_to_run_is_not() -> None:
    for outcome in (Outcome(-11, 5), Outcome(2), Outcome(3), Outcome(1, 5)):
        verdict, _ = judged({"tests/unit": outcome}, FAST)
        assert not verdict.is_green, outcome
        assert any(line.startswith("PHASE ENDED EARLY fast") for line in tell(verdict).splitlines())
    assert judged({"tests/unit": Outcome(5)}, FAST)[0].is_green


def test_acceptance_cases_run_in_every_folder_of_the_gate() -> None:
    for gate in GATE:
        selected = {each.select for each in ALL if each.folders == gate.folders}
        assert selected in ({"not soak"}, {"not acceptance and not soak", "acceptance and not soak"})


def test_only_phases_on_real_servers_are_repeated_and_none_on_servers_runs_beside_another() -> None:
    assert {each.name for each in GATE if each.is_repeated} == {"lone", "yarn"}
    assert {each.name for each in ALL if each.is_beside} == {"fast", "tools", "fast, acceptance"}


def test_what_a_phase_beside_others_printed_is_shown_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_one.py").write_text(
        "import os\ndef test_one():\n    print('niceness', os.nice(0))\n    assert False\n", encoding="utf-8"
    )
    monkeypatch.setattr("tests.phases.REPORTS", tmp_path)
    beside = Phase("beside", (str(tmp_path),), "not soak", is_beside=True)
    outcome = run_pytest(beside, ["-p", "no:cacheprovider"])
    assert [each.case.rpartition("::")[2] for each in outcome.failures] == ["test_one"]
    shown = capfd.readouterr().out
    assert "======== beside ========" in shown
    assert "niceness 19" in shown


REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.a" name="test_one[x]" file="tests/a.py" />
<testcase classname="tests.a" name="test_two" file="tests/a.py">
<failure message="assert 1 == 2">the trace</failure></testcase>
<testcase classname="tests.a" name="test_two" file="tests/a.py"><error message="teardown">later</error></testcase>
<testcase classname="tests.b" name="test_three" file="tests/b.py"><skipped message="no" /></testcase>
</testsuite></testsuites>
"""


def test_pytests_report_is_read(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT, encoding="utf-8")
    found = read(report, 1)
    assert (found.exit_code, found.passed, found.skipped) == (1, 1, 1)
    assert found.failures == (
        Failure("tests/a.py", "tests/a.py::test_two", "assert 1 == 2\nthe trace"),
        Failure("tests/a.py", "tests/a.py::test_two", "teardown\nlater"),
    )
    assert found.modules == ("tests/a.py",)
    assert not read(tmp_path / "absent.xml", 1).is_judged, "without a report it is unknown what was found"
