"""How contestants are run: real processes, each of a few lines."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.contest import Contestant, Failed, compete, run
from benchmarks.running import Running

ANSWER = 'print(\'{"benchmark": 1, "wall_seconds": 0.5, "checksum": "ff"}\')'


def program(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(lines)]


def test_a_contestant_says_its_figures(tmp_path: Path) -> None:
    found = run(Contestant("it", program(ANSWER)), 30, tmp_path / "log")
    assert found["wall_seconds"] == 0.5
    assert found["checksum"] == "ff"
    assert found["process_seconds"] > 0


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("pass",), "0 answers"),
        ((ANSWER, ANSWER), "2 answers"),
        ((ANSWER, "raise SystemExit(3)"), "exit status 3"),
        (("import sys", "sys.exit('it hurts')"), "exit status 1"),
    ],
)
def test_a_contestant_that_does_not_finish_well_has_failed(
    tmp_path: Path, lines: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(Failed, match=reason):
        run(Contestant("it", program(*lines)), 30, tmp_path / "log")


def test_what_it_complains_of_is_in_its_log(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="log"):
        run(Contestant("it", program("import sys", "sys.exit('it hurts')")), 30, tmp_path / "log")
    assert "it hurts" in (tmp_path / "log").read_text()


def test_one_that_overruns_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    child = [
        "import pathlib, subprocess, sys",
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE)",
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))",
        "child.wait()",
    ]
    with pytest.raises(Failed, match="not done within"):
        run(Contestant("it", program(*child)), 4, tmp_path / "log")
    found = int(pid.read_text())
    if psutil.pid_exists(found):
        # Killed, and not yet buried by whoever inherited it.
        psutil.wait_procs([psutil.Process(found)], timeout=10)
    assert not psutil.pid_exists(found)


def test_each_round_begins_with_another_one_and_is_prepared(tmp_path: Path) -> None:
    seen: list[str] = []
    contestants = [
        Contestant(name, program(ANSWER), prepare=lambda name=name: seen.append(name))  # type: ignore[misc]
        for name in ("a", "b")
    ]
    results = compete(contestants, 2, 30, tmp_path, "it")
    assert seen == ["a", "b", "b", "a"]
    assert {name: len(each) for name, each in results.answers.items()} == {"a": 2, "b": 2}
    assert results.as_json()["medians"]["a"]["wall_seconds"]["median"] == 0.5


def test_a_wrong_result_does_not_count_and_is_told(tmp_path: Path) -> None:
    results = compete(
        [Contestant("it", program(ANSWER))],
        1,
        30,
        tmp_path,
        "it",
        lambda found: f"{found['checksum']} is wrong",
    )
    assert results.answers == {"it": []}
    assert len(results.failures) == 1
    assert "ff is wrong" in results.failures[0]


def test_a_running_process_says_that_it_is_ready_and_ends_with_its_input(tmp_path: Path) -> None:
    lines = ("import sys", "print('hello')", "print('ready', flush=True)", "sys.stdin.read()", "print('bye')")
    with Running(program(*lines), tmp_path / "log") as process:
        process.await_ready(30)
        process.check()
        process.end(30)
        assert process.join(1).splitlines() == ["hello", "ready", "bye"]


def test_a_process_that_ends_instead_has_failed(tmp_path: Path) -> None:
    with Running(program("raise SystemExit(4)"), tmp_path / "log") as process:
        with pytest.raises(Failed, match="not ready"):
            process.await_ready(30)
        with pytest.raises(Failed, match="status 4"):
            process.join(30)
        with pytest.raises(Failed, match="status 4"):
            process.check()


def test_a_process_ends_with_its_block(tmp_path: Path) -> None:
    with Running(
        program("import sys", "print('ready', flush=True)", "sys.stdin.read()"), tmp_path / "log"
    ) as process:
        process.await_ready(30)
    assert not process.is_alive
