"""Hold points: a deployed process stops where a test says, is found there, and goes on when it is let go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appmaster.effects import ASSIGNING, REQUESTED, WRITING, WRITTEN
from tests.held import HoldPoints, reach
from tests.patience import PATIENCE_SECONDS
from tests.unit.appmaster.test_effects import Lab

POINT = "leader: records written, not announced"


def test_only_who_comes_to_a_held_point_stops_and_only_until_it_is_let_go(tmp_path: Path) -> None:
    points, passed = HoldPoints(tmp_path / "points"), threading.Event()

    def come() -> None:
        reach(tmp_path / "points", "another: point")
        reach(tmp_path / "points", POINT)
        passed.set()

    come()
    assert passed.is_set(), "nothing is held"
    passed.clear()
    comes = threading.Thread(target=come)
    with points.held(POINT) as point:
        assert point.reached == set()
        comes.start()
        assert point.wait() == {os.getpid()}
        assert not passed.is_set()
    comes.join(PATIENCE_SECONDS)
    assert passed.is_set()
    with points.held(POINT) as point:
        assert point.reached == set(), "what came the last time is forgotten"


def test_its_python_runs_whatever_else_it_is_given(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:])", encoding="utf-8")
    command = [str(HoldPoints(tmp_path / "points").python), str(script), "a", "b c"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    assert said.stdout == "['a', 'b c']\n"


@pytest.mark.parametrize(("module", "misses"), [("standby", "CONTAINER_ID"), ("appmaster", "cluster")])
def test_its_python_runs_the_entry_points_of_the_product(tmp_path: Path, module: str, misses: str) -> None:
    """Which here have nothing that they could run on, and say so as they do without it."""
    directory = tmp_path / "empty"
    directory.mkdir()

    def end(*python: str) -> tuple[int, bool]:
        done = subprocess.run(
            [*python, "-m", module],
            cwd=directory,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return done.returncode, misses in done.stdout + done.stderr

    held = end(str(HoldPoints(tmp_path / "points").python))
    assert held == end(sys.executable)
    assert held[0] != 0
    assert held[1]


def test_a_leader_passes_its_points_on_both_sides_of_what_is_seen_outside() -> None:
    lab = Lab()
    lab.run(8_000)
    seen: list[tuple[str, int, int]] = []

    def look(point: str) -> None:
        seen.append((point, max(each.record.epoch for each in lab.versions.values()), len(lab.waiting)))

    lab.effects.probe = look
    before, asked = max(each.record.epoch for each in lab.versions.values()), len(lab.waiting)
    lab.kill(lab.active_process(0).skein_id)
    lab.run(8_000)
    failover = [(point, epoch) for point, epoch, _ in seen if point in (WRITING, WRITTEN, ASSIGNING)]
    assert failover[:3] == [(WRITING, before), (WRITTEN, before + 1), (ASSIGNING, before + 1)]
    assert (REQUESTED, asked + 1) in {(point, waiting) for point, _, waiting in seen}
