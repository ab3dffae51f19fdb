"""A number of seconds is found wherever a test would really wait for it, and nowhere else."""

from __future__ import annotations

import pytest

from tests import lint_patience
from tests.lint_patience import complaints, findings, left_over

REFUSED = (
    "run(command, timeout=30)",
    "admin.create_topics(topics, operation_timeout=30)",
    "job.wait(is_whole, seconds=0.5)",
    "zookeeper.connect(timeout_seconds=1)",
    "time.sleep(0.05)",
    "time.sleep(-lead if lead else 2)",
    "time.sleep(chance.uniform(0, 0.3))",
    "time.sleep(2 * 60)",
    "time.sleep(away_seconds - 4)",
    "done.wait(5)",
    "log.wait_for(lambda events: events, 5)",
    "thread.join(5)",
    "future.result(5)",
    "client.result(change, 5)",
    "producer.flush(20)",
    "lock.acquire(timeout=5)",
    "lock.acquire(True, 5)",
    "answers.get(timeout=5)",
    "process.communicate(timeout=5)",
    "consumer.poll(1.0)",
    "consumer.consume(1000, 0.2)",
    "client.list_topics(timeout=10)",
    "select.select(sockets, [], [], 1)",
    "connection.settimeout(5)",
    "socket.create_connection(address, 5)",
    "deadline = time.monotonic() + 5",
    "while time.time() - began < 5: pass",
    "assert time.perf_counter() - began > 1.4",
    "LOOK_SECONDS = 0.02",
    "LOOK_SECONDS: Final = 0.02",
    "class Lab:\n    seconds: float = 3.0",
    "def until(is_so, timeout=5): pass",
    "def until(is_so, *, patience_seconds=5): pass",
    "look = lambda seconds=3: seconds",
    "@pytest.mark.timeout(900)\ndef test_it(): pass",
)
LEFT_ALONE = (
    "run(command, timeout=PATIENCE_SECONDS)",
    "done.wait(3 * PATIENCE_SECONDS)",
    "time.sleep(2 * SESSION_MS / 1000)",
    "done.wait(0)",
    "consumer.poll(0.0)",
    "done.wait(1 / per_second)",
    "deadline = time.monotonic() + PATIENCE_SECONDS",
    "milliseconds = (time.monotonic() - began) * 1000",
    "', '.join(['a'] * 5)",
    "settings.get('appmaster.cells', 2)",
    "clock.advance(5)",
    "world.turn(10)",
    "world.now += 5",
    "now_ms = 5",
    "def settles(cluster, milliseconds=30_000): pass",
    "config = {'job.transaction.timeout.ms': '1000'}",
    "play.wait(1, lambda each: each.phase is Phase.ACTIVE)",
    "KazooClient(connect, timeout=4)",
    "lock.acquire(blocking=False)",
    "def until(is_so, seconds=PATIENCE_SECONDS): pass",
    "seconds = [0.5, 1.0]",
)


def test_a_number_of_seconds_is_refused_where_a_test_would_wait_for_it_and_nowhere_else() -> None:
    for source in REFUSED:
        assert len(complaints({"tests/unit/test_it.py": source})) == 1, source
        assert complaints({lint_patience.HOME: source}) == [], "the home of all waiting times"
    for source in LEFT_ALONE:
        assert complaints({"tests/unit/test_it.py": source}) == [], source


def test_a_finding_tells_the_line_and_whose_it_is() -> None:
    source = "import time\n\nclass Lab:\n    def wait(self):\n        time.sleep(\n            5\n        )\n"
    (found,) = findings(source)
    assert (found.line, found.within) == (6, "wait")
    assert complaints({"tests/lab.py": source}) == [
        "tests/lab.py:6: sleep waits for 5: take it from tests/patience.py"
    ]


def test_what_is_exempted_passes_and_an_exemption_that_is_not_needed_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lint_patience, "EXEMPTED", {"tests/test_it.py::test_it": "stands still"})
    needed = {"tests/test_it.py": "def test_it():\n    time.sleep(2)\n"}
    assert complaints(needed) == left_over(needed) == []
    assert left_over({"tests/test_it.py": "def test_it(): pass"}) == [
        "tests/lint_patience.py: nothing to exempt in tests/test_it.py::test_it"
    ]
