"""What happens in which order: no record of the stream is sent before the standbys are warm."""

from __future__ import annotations

import re
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from demo import run
from demo.__main__ import parse
from demo.command import ROOT
from demo.hosts import POOL, YARN
from demo.tests.test_report import failover, verification
from examples.flights.source import Raw

RECORDS = [Raw(b"N%d" % number, b"{}") for number in range(50)]


class Recorder:
    """Everything that was asked for, in its order; answers every method with None, or what was given for it."""

    def __init__(self, calls: list[str], **answers: Any) -> None:
        self._calls = calls
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        def answer(*_: object, **__: object) -> Any:
            self._calls.append(name)
            return self._answers.get(name)

        return answer


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []

    class Traffic:
        def __init__(self, _: str, records: list[Raw], rate: float) -> None:
            self.records, self.rate, self.count = records, rate, len(records)

        def start(self) -> None:
            calls.append(f"stream {len(self.records)}")

        def join(self, _: float) -> bool:
            return True

        def stop(self) -> None:
            """There is nothing to stop."""

    monkeypatch.setattr(run, "Traffic", Traffic)
    # Its records end at once.
    monkeypatch.setattr(run, "_flow", lambda *_: calls.append("flow"))
    return calls


def carry_out(calls: list[str], on: str = YARN) -> dict[str, Any]:
    scenario: Any = Recorder(
        calls,
        submit=1.0,
        wait_until_whole="a sample",
        wait_until_warm=True,
        kill_process=failover(),
        lose_host=(failover("host"), "h1"),
        verify=verification(),
        memory_bytes={},
        drain=0,
        bring_back=2_500,
        failovers_since=0,
    )
    scenario.cluster = SimpleNamespace(kafka_bootstrap="nowhere:1")
    scenario.watch = SimpleNamespace(samples=(), same_host_violations=frozenset())
    scenario.log, scenario.failovers = None, [failover()]
    data: Future[list[Raw]] = Future()
    data.set_result(RECORDS)
    screen: Any = Recorder([])
    report, timeline = run._carry_out(run.Options(rate=10, fast_rate=20, on=on), scenario, screen, data)
    assert [each.title for each in timeline.stretches][1] == "20 records a second"
    return report


def test_the_stream_begins_when_every_standby_is_warm_and_every_active_has_run_a_batch(
    calls: list[str],
) -> None:
    report = carry_out(calls)
    warm = ["submit", "wait_until_whole", "wait_until_warm", "stream 10", "drain"]
    # The calm begins with the stream, and before each failure records flow, with actives on all hosts.
    stream = ["stream 40", "calm", "flow", "kill_process", "wait_until_spread", "flow", "lose_host", "flow"]
    assert calls[:13] == [*warm, *stream]
    assert report["records_sent"] == len(RECORDS)
    assert report["first_records_seconds"] >= 0


def test_the_silent_host_of_a_pool_comes_back_and_records_flow_on(calls: list[str]) -> None:
    report = carry_out(calls, POOL)
    lost = calls.index("lose_host")
    assert calls[lost : lost + 6] == [
        *("lose_host", "flow", "memory_bytes", "bring_back", "flow", "failovers_since")
    ]
    assert (report["returned_ms"], report["failovers_after_return"]) == (2_500, 0)


def test_a_run_on_a_pool_leaves_the_other_one_s_report_alone(capsys: pytest.CaptureFixture[str]) -> None:
    (yarn, _), (pool, _) = parse([]), parse(["--on", "pool"])
    assert (yarn.on, yarn.output.name) == (YARN, "demo")
    assert (pool.on, pool.output.name) == (POOL, "demo-standalone")
    with pytest.raises(SystemExit):
        parse(["--on", "pool", "--keep"])
    assert "network of its own" in capsys.readouterr().err


def test_the_page_explains_every_field_of_the_report_and_agrees_with_the_readme(calls: list[str]) -> None:
    page = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:failovers\[\]\.|…)?(\w+)`", page))
    report = carry_out(calls, POOL)
    (described,) = report["failovers"]
    # Of the run as a whole, of a failover, and of one of its tasks.
    fields = {*report, *described, *described["per_task"]["0"]} - {"failovers"}
    assert fields - named == set()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (lasts,) = re.findall(r"about \w+ minutes", page)
    assert re.findall(r"make demo .*", readme)[0].endswith(f"in {lasts}")
