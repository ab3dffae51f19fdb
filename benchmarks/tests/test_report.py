"""What a benchmark leaves behind, however it ends."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contest import Failed
from benchmarks.report import Report
from demo.interrupt import Interrupted
from standby.errors import Unavailable


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "new" / "it.json"


@pytest.fixture
def report(output: Path) -> Report:
    return Report(output, "It", (("wall", "wall, ms", 1_000.0),), argparse.Namespace(rounds=2, output=output))


def hurt() -> None:
    raise Failed("it hurts")


def content(output: Path) -> Any:
    return json.loads(output.read_text(encoding="utf-8"))


def test_every_answer_is_in_the_file_as_soon_as_it_is_there(report: Report, output: Path) -> None:
    report.case("one", ("a", "b")).add("a", {"wall": 1.0})
    assert content(output)["results"]["one"]["rounds"] == {"a": [{"wall": 1.0}], "b": []}
    report.case("two", ("a",)).add("a", {"wall": 3.0})
    results = content(output)["results"]
    assert [results[case]["medians"]["a"]["wall"]["median"] for case in ("one", "two")] == [1.0, 3.0]
    assert content(output)["is_complete"] is False


def test_a_whole_run_says_so_with_settings_picture_and_table(
    report: Report, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.skip("c", "not here")

    def measure() -> None:
        found = report.case("one", ("a",))
        found.add("a", {"wall": 1.0})
        found.add("a", {"wall": 0.5})

    assert report.carry_out(measure) == 0
    found = content(output)
    assert found["is_complete"] is True
    assert found["settings"] == {"rounds": "2"}
    assert found["skipped"] == {"c": "not here"} == report.skipped
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in output.parent.iterdir() if path.suffix not in (".json", ".png")] == []
    assert "wall, ms 750.00 (500.00–1000.00)" in capsys.readouterr().out


def test_a_failure_of_one_is_reported_by_the_exit_status(
    report: Report, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure() -> None:
        found = report.case("one", ("a", "b"))
        with found.attempt("one, a"):
            hurt()
        with found.attempt("one, b"):
            found.add("b", {"wall": 1.0})

    assert report.carry_out(measure) == 1
    assert content(output)["is_complete"] is True
    assert content(output)["results"]["one"]["failures"] == ["one, a: it hurts"]
    assert "failed: one, a: it hurts" in capsys.readouterr().out


def test_what_ends_a_run_early_takes_nothing_away(report: Report, output: Path) -> None:
    def measure() -> None:
        report.case("one", ("a",)).add("a", {"wall": 1.0})
        raise Interrupted(signal.SIGTERM)

    assert report.carry_out(measure) == 143
    assert content(output)["is_complete"] is False
    assert content(output)["results"]["one"]["rounds"] == {"a": [{"wall": 1.0}]}
    assert output.with_suffix(".png").exists()


def test_a_run_that_found_nothing_leaves_no_file(report: Report, output: Path) -> None:
    def measure() -> None:
        raise Unavailable("no broker")

    assert report.carry_out(measure) == Unavailable("").exit_status
    assert not output.exists()
