"""The picture is drawn, of whatever a run was, and its curves say what they seem to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot as plt

from demo.picture import Stretch, Timeline, draw, rates_at
from demo.run import assemble
from demo.standing import parse
from demo.tests.statuses import status, task
from demo.tests.test_report import BEGUN, failover, verification
from demo.watch import Sample


def sample_timeline(*stretches: Stretch) -> Timeline:
    both = parse(status(task(0, [(0, "h2", "c2")]), task(1, [(0, "h3", "c3")])))
    samples = [
        Sample(BEGUN - 500 + 250 * each, both, is_fresh=True, input_end=0, output_end=0) for each in range(8)
    ]
    _, timeline = assemble([failover(), failover("host", (1,))], verification(), samples, stretches)
    return timeline


def test_a_rate_is_that_of_the_second_before() -> None:
    # A batch of 100 every 250 ms for two seconds, none for one, and all that was missed at once.
    seconds = [batch / 4 for batch in range(1, 9) for _ in range(100)] + [3.0] * 400
    assert rates_at(seconds, [1.0, 1.1, 2.0, 2.5, 2.9, 2.99, 3.0, 3.5, 4.0]).tolist() == [
        *(400, 400, 400),
        *(200, 100, 100),
        *(400, 400, 0),
    ]


def test_the_picture_is_drawn_of_a_run_and_of_nothing(tmp_path: Path) -> None:
    stretches = (Stretch(BEGUN - 400, "slow"), Stretch(BEGUN + 600, "fast"))
    for timeline in (sample_timeline(*stretches), Timeline({}, {}, [], [], [])):
        picture = tmp_path / "build" / "timeline.png"
        draw(timeline, picture)
        assert picture.read_bytes().startswith(b"\x89PNG")
        picture.unlink()


def test_each_stretch_has_axes_of_its_own_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(plt, "close", drawn.append)
    slow, fast = Stretch(0, "slow"), Stretch(10_000, "fast")
    came = [*range(0, 10_000, 10), *range(10_000, 20_000)]
    draw(Timeline({0: came}, {0: came}, [], [], [], (slow, fast)), tmp_path / "timeline.png")
    (figure,) = drawn
    monkeypatch.undo()
    plt.close(figure)
    rates = {axes.get_title("right"): axes for axes in figure.axes if axes.get_title("right")}
    assert rates["slow"].get_xlim() == (0, 10)
    assert rates["slow"].get_ylim()[1] < 200
    assert rates["fast"].get_xlim()[0] == 10
    assert 1_000 < rates["fast"].get_ylim()[1] < 2_000
