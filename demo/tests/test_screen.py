"""What is shown: plain lines without a terminal, the whole view with one."""

from __future__ import annotations

import io

from rich.console import Console

from demo.screen import Screen, input_lag, plain, rates, tasks_table
from demo.standing import parse
from demo.tests.statuses import status, task
from demo.watch import Sample

STATUS = parse(
    status(
        task(0, [(0, "h2", "c2"), (1, "h1", "c1")]), task(1, [(0, "h3", "c3"), (1, None, None)], in_sync=[0])
    )
)


def sample(at_ms: int, input_end: int, output_end: int) -> Sample:
    return Sample(at_ms, STATUS, is_fresh=True, input_end=input_end, output_end=output_end)


def test_rates_are_taken_over_the_last_samples() -> None:
    samples = tuple(sample(500 * each, 1_000 * each, 900 * each) for each in range(20))
    assert rates(samples) == (2_000, 1_800)
    assert rates(samples[:1]) == (0, 0)
    assert rates(()) == (0, 0)


def test_the_plain_line_says_how_things_stand() -> None:
    line = plain(sample(0, 10, 10), 1_234, (99.6, 0))
    assert line == (
        "  1,234 sent, in 100/s, out 0/s, 8 waiting; 2 of 2 tasks active, 3 of 4 replicas in sync"
    )
    assert input_lag(STATUS) == 8


def test_the_table_shows_who_is_where() -> None:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(tasks_table(STATUS))
    text = console.export_text()
    assert "h1 (master)" in text
    assert "#0 active" in text
    assert "#1 tailing" in text


def test_without_a_terminal_every_line_is_printed_with_its_time() -> None:
    out = io.StringIO()
    now = iter([0.0, 0.0, 1.5])
    with Screen(Console(file=out, width=200), clock=lambda: next(now)) as screen:
        screen.say("kill -9 [17]")
        screen.say("  ")
    assert out.getvalue() == "    1.5 s  kill -9 [17]\n"


def test_with_a_terminal_the_view_is_live() -> None:
    out = io.StringIO()
    with Screen(Console(file=out, width=120, height=40, force_terminal=True)) as screen:
        screen.phase("losing a host")
    assert "standfast demo" in out.getvalue()
    assert "losing a host" in out.getvalue()
