"""What `events` and `containers` show of a cluster with several jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from appmaster.cli.main import build_parser
from appmaster.cli.reading import observe
from standby.config import parse
from standby.errors import Unavailable
from tests.unit.appmaster.changes.test_operations import CONFIG


def test_events_of_a_job_are_its_own_and_its_clusters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries: list[dict[str, Any]] = [
        {"kind": kind, "job": job} for kind in ("asked", "replica_failed") for job in ("j", "k", None)
    ]
    entries.append({"kind": "application_ended", "job": "k", "data": {"application": "application_1"}})
    record = SimpleNamespace(definition=SimpleNamespace(config=CONFIG))
    monkeypatch.setattr(observe, "open_client", nullcontext)
    monkeypatch.setattr(observe, "record_of", lambda *_: record)
    monkeypatch.setattr(observe, "applications_of", lambda _: (None, []))
    monkeypatch.setattr(observe, "read_events", lambda *_, **__: iter(entries))
    for more, jobs in (
        ((), ["j", None, "j", None, "k"]),
        (("--kind", "asked"), ["j", None]),
        (("--all",), ["j", "k", None, "j", "k", None, "k"]),
    ):
        assert observe._events(build_parser().parse_args(["events", "j", "--json", *more])) == 0
        assert [json.loads(each)["job"] for each in capsys.readouterr().out.splitlines()] == jobs


@pytest.mark.parametrize("lines", ["0", "-5", "many", "1.5"])
def test_logs_have_one_line_or_more(lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["logs", "j", "--lines", lines])
    assert f"--lines: {lines!r} is not a whole number from 1" in capsys.readouterr().err
    assert build_parser().parse_args(["logs", "j", "--lines", "5"]).lines == 5


def test_history_of_a_job_is_what_can_be_read_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def entries(*_: object, **__: object) -> Iterator[dict[str, Any]]:
        yield {"container": "c1", "host": "h1", "job": "j", "data": None}
        raise Unavailable("it has no leader")

    monkeypatch.setattr(observe, "read_events", entries)
    found = observe._past(build_parser().parse_args(["logs", "j"]), parse(CONFIG))
    assert found.hosts == {"c1": "h1"}


def container(number: int, host: str, state: str, group: str | None = None) -> dict[str, Any]:
    shown = {
        "container": f"c{number}",
        "host": host,
        "pid": number,
        "state": state,
        "slot": None,
        "revisions": {},
        "warm": True,
        "rss_bytes": 0,
        "reason": "",
    }
    return shown if group is None else {**shown, "group": group, "attributes": {"zone": "a"}}


def test_containers_are_chosen_by_host_and_state_and_show_what_they_offer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*more: str) -> str:
        assert observe._containers(build_parser().parse_args(["containers", "j", *more])) == 0
        return capsys.readouterr().out

    found = [container(1, "h1", "live"), container(2, "h2", "live"), container(3, "h2", "suspect")]
    monkeypatch.setattr(observe, "_snapshot", lambda _: {"containers": found})
    for more, numbers in (
        ((), "c1 c2 c3"),
        (("--host", "h2"), "c2 c3"),
        (("--host", "h2", "--state", "live"), "c2"),
        (("--host", "h1", "--host", "h2", "--state", "live", "--state", "broken"), "c1 c2"),
    ):
        assert " ".join(each["container"] for each in json.loads(shown("--json", *more))) == numbers
    assert "GROUP" not in shown()
    found.append(container(4, "h4", "live", "gpu"))
    said = shown("--host", "h4")
    assert "GROUP" in said
    assert "zone=a" in said
    with pytest.raises(SystemExit, match=r"^2$"):
        shown("--state", "dead")
