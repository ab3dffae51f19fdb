"""How contestants are run: real processes, each of a few lines."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from benchmarks.contest import Contestant, Failed, Results, compete, run
from benchmarks.running import Running
from demo.interrupt import Interrupted
from tests.patience import PATIENCE_SECONDS, soon

ANSWER = 'print(\'{"benchmark": 1, "wall_seconds": 0.5, "checksum": "ff"}\')'


def program(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(lines)]


def fail(error: Exception) -> None:
    raise error


def test_a_contestant_says_its_figures(tmp_path: Path) -> None:
    found = run(Contestant("it", program(ANSWER)), PATIENCE_SECONDS, tmp_path / "log")
    assert found["wall_seconds"] == 0.5
    assert found["checksum"] == "ff"
    assert found["process_seconds"] > 0


def test_a_contestant_that_does_not_finish_well_has_failed_and_its_complaint_is_in_its_log(
    tmp_path: Path,
) -> None:
    reasons: dict[tuple[str, ...], str] = {
        ("pass",): "0 answers",
        (ANSWER, ANSWER): "2 answers",
        (ANSWER, "raise SystemExit(3)"): "exit status 3",
        ("import sys", "sys.exit('it hurts')"): "exit status 1; see .*log",
    }
    for lines, reason in reasons.items():
        with pytest.raises(Failed, match=reason):
            run(Contestant("it", program(*lines)), PATIENCE_SECONDS, tmp_path / "log")
    assert "it hurts" in (tmp_path / "log").read_text()


def test_one_that_overruns_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"

    def overrun(process: subprocess.Popen[str], *, timeout: float) -> None:
        soon(lambda: pid.exists() and pid.read_text(), "its child")
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", overrun)
    child = [
        "import pathlib, subprocess, sys",
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE)",
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))",
        "child.wait()",
    ]
    with pytest.raises(Failed, match="not done within"):
        run(Contestant("it", program(*child)), PATIENCE_SECONDS, tmp_path / "log")
    found = int(pid.read_text())
    if psutil.pid_exists(found):
        # Killed, and not yet reaped by its new parent.
        psutil.wait_procs([psutil.Process(found)], timeout=PATIENCE_SECONDS)
    assert not psutil.pid_exists(found)


def test_each_round_begins_with_another_one_and_is_prepared(tmp_path: Path) -> None:
    seen: list[str] = []
    contestants = [
        Contestant(name, program(ANSWER), prepare=lambda name=name: seen.append(name))  # type: ignore[misc]
        for name in ("a", "b")
    ]
    results = Results({"a": [], "b": []})
    compete(results, contestants, 2, PATIENCE_SECONDS, tmp_path, "it")
    assert seen == ["a", "b", "b", "a"]
    assert {name: len(each) for name, each in results.answers.items()} == {"a": 2, "b": 2}
    assert results.as_json()["medians"]["a"]["wall_seconds"]["median"] == 0.5


def test_whatever_stops_one_the_others_go_on_and_what_there_was_is_kept(tmp_path: Path) -> None:
    def cannot() -> None:
        raise OSError("no room")

    seen: list[tuple[int, int]] = []
    results = Results({"a": [], "b": [], "c": [], "d": []})
    results.changed = lambda: seen.append((sum(map(len, results.answers.values())), len(results.failures)))
    contestants = [
        Contestant("a", program(ANSWER)),
        Contestant("b", program(ANSWER), prepare=cannot),
        Contestant("c", program(ANSWER.replace("ff", "00"))),
        Contestant("d", program(ANSWER)),
    ]
    wrong = {"00": "00 is wrong"}
    compete(
        results, contestants, 1, PATIENCE_SECONDS, tmp_path, "it", lambda found: wrong.get(found["checksum"])
    )
    assert {name: len(each) for name, each in results.answers.items()} == {"a": 1, "b": 0, "c": 0, "d": 1}
    assert results.failures == ["it, round 1, b: OSError: no room", "it, round 1, c: 00 is wrong"]
    assert seen == [(1, 0), (1, 1), (1, 2), (2, 2)]


def test_a_failure_at_the_end_does_not_hide_the_one_before() -> None:
    results = Results({"a": []})
    with results.attempt("a"), ExitStack() as stack:
        stack.callback(fail, Failed("it does not end"))
        fail(Failed("it does not begin"))
    with results.attempt("a"):
        try:
            fail(KeyError("x"))
        except KeyError as error:
            raise Failed("no x") from error
    assert results.failures == ["a: it does not end, after: it does not begin", "a: no x"]


def test_an_interruption_is_not_a_failure() -> None:
    results = Results({"a": []})
    with pytest.raises(Interrupted), results.attempt("a"):
        raise Interrupted(signal.SIGINT)
    assert results.failures == []


def test_what_is_reported_of_all_rounds_is_in_each() -> None:
    results = Results({"a": [], "b": []})
    for wall in (1.0, 2.0):
        results.add("a", {"wall": wall})
    results.add("b", {"wall": 3.0})
    results.amend("a", {"lost": 0})
    assert results.answers == {
        "a": [{"wall": 1.0, "lost": 0}, {"wall": 2.0, "lost": 0}],
        "b": [{"wall": 3.0}],
    }


def test_a_running_process_says_that_it_is_ready_gets_lines_answers_and_ends_with_its_input(
    tmp_path: Path,
) -> None:
    lines = (
        "import sys",
        "print('ready', flush=True)",
        "for line in sys.stdin: print(line.strip()[::-1], flush=True)",
    )
    with Running(program(*lines), tmp_path / "log") as process:
        process.await_ready(PATIENCE_SECONDS)
        process.check()
        assert process.ask("abc", PATIENCE_SECONDS) == "cba"
        process.tell("one")
        process.end(PATIENCE_SECONDS)
        assert process.join(PATIENCE_SECONDS).splitlines() == ["ready", "cba", "eno"]


def test_one_that_ends_without_an_answer_has_failed(tmp_path: Path) -> None:
    lines = ("import sys", "sys.stdin.readline()")
    with (
        Running(program(*lines), tmp_path / "log") as process,
        pytest.raises(Failed, match="does not answer"),
    ):
        process.ask("abc", PATIENCE_SECONDS)


def test_a_process_that_ends_instead_has_failed(tmp_path: Path) -> None:
    with Running(program("raise SystemExit(4)"), tmp_path / "log") as process:
        with pytest.raises(Failed, match="not ready"):
            process.await_ready(PATIENCE_SECONDS)
        with pytest.raises(Failed, match="status 4"):
            process.join(PATIENCE_SECONDS)
        with pytest.raises(Failed, match="status 4"):
            process.check()
        with pytest.raises(Failed, match="does not listen"):
            process.tell("more")


def test_a_process_ends_with_its_block(tmp_path: Path) -> None:
    with Running(
        program("import sys", "print('ready', flush=True)", "sys.stdin.read()"), tmp_path / "log"
    ) as process:
        process.await_ready(PATIENCE_SECONDS)
    assert not process.is_alive
