"""A look at a host before a submit: what it finds there, and what a submit makes of each end of it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from appmaster.changes.operations import CurrentJob
from appmaster.cli.launch import on_host, probe
from appmaster.cli.launch.probe import ProbeTime
from appmaster.cli.launch.starting import TargetCluster
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress
from appmaster.records import JobRecord
from standby.errors import BadConfiguration, Unavailable
from standby.shared.wire import JobDefinition
from tests.fakes.applications import Applications
from tests.fakes.clock import WaitClock
from tests.fakes.jobs import job_config
from tests.patience import PATIENCE_SECONDS

CONFIG = job_config(job__python="/opt/a b/python")
FOUND = {"host": "h1", "python": "3.11.2", "standfast": "1", "wrong": []}


def host(state: str, final_status: str = "UNDEFINED", diagnostics: str = "") -> Applications:
    """Return a cluster in which the probe's application comes to the given end at once."""
    return Applications(final_status, diagnostics, application_1=state)


Ask = Callable[[Applications], str]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return what is said when a host of a cluster is looked at."""

    def look(yarn: Applications) -> str:
        check_host(yarn, WaitClock(), Progress())
        return capsys.readouterr().err

    return look


def check_host(yarn: Applications, clock: WaitClock, progress: Progress) -> None:
    with ThreadPoolExecutor(max_workers=1) as background, probe.HostProbe(background) as probing:
        probing.begin(CONFIG, yarn, Deadline(60.0, clock), progress)
        probing.finish()
        probing.finish()


def test_host_in_order_is_named_with_its_versions(ask: Ask) -> None:
    yarn = host("FINISHED", "SUCCEEDED", json.dumps(FOUND))
    assert "on host h1: Python 3.11.2, standfast 1" in ask(yarn)
    (probed,) = yarn.submitted
    assert probed.master.script == "exec '/opt/a b/python' on_host.py question.json"


def test_everything_that_is_wrong_there_is_named(ask: Ask) -> None:
    wrong = json.dumps({**FOUND, "wrong": ["job.python: one", "job.state.dir: two"]})
    with pytest.raises(BadConfiguration) as raised:
        ask(host("FINISHED", "SUCCEEDED", wrong))
    assert str(raised.value) == "job.python: one (on host h1)\njob.state.dir: two (on host h1)"


def test_interpreter_that_does_not_run_is_not_taken_for_an_application_that_fails(ask: Ask) -> None:
    told = r"/opt/a b/python cannot be used:\n .* on h1 .* exit code 127"
    with pytest.raises(BadConfiguration, match=told):
        ask(host("FINISHED", "FAILED", "Application driver failed with exit code 127"))
    with pytest.raises(Unavailable, match="no disk"):
        ask(host("FAILED", diagnostics="no disk"))


def test_full_cluster_an_ended_application_and_a_silent_host_are_no_hindrance(ask: Ask) -> None:
    full = host("ACCEPTED", diagnostics="Queue's AM resource limit exceeded.")
    told = ask(full)
    assert "could not be checked: after 30 s " in told
    assert "no container for application_1 (ACCEPTED: Queue's AM resource limit exceeded.)" in told
    assert full.killed, "it must not take a place later"
    assert "could not be checked" in ask(host("KILLED"))

    def interrupt() -> None:
        raise KeyboardInterrupt

    full = host("ACCEPTED")
    with pytest.raises(KeyboardInterrupt):
        check_host(full, WaitClock(interrupt), Progress(is_quiet=True))
    assert full.killed
    assert "application_1 runs on h1 and has not answered" in ask(host("RUNNING"))


@pytest.mark.parametrize(
    ("is_wanted", "is_new", "applications", "is_check", "when"),
    [
        (None, True, (), False, ProbeTime.BESIDE),
        (None, True, (), True, ProbeTime.FIRST),
        (None, True, ("ends",), False, ProbeTime.FIRST),
        (None, False, (), False, ProbeTime.NEVER),
        (True, False, (), False, ProbeTime.FIRST),
        (True, False, ("runs",), False, ProbeTime.FIRST),
        (True, True, (), False, ProbeTime.BESIDE),
        (False, True, (), True, ProbeTime.NEVER),
    ],
)
def test_what_cannot_be_undone_waits_for_the_probe(
    *, is_wanted: bool | None, is_new: bool, applications: tuple[str, ...], is_check: bool, when: ProbeTime
) -> None:
    definition = JobDefinition(name="j", run="r", config={}, changelog="c", group="g", tasks=1)
    present = None if is_new else CurrentJob(JobRecord(definition))
    for has_others in (False, True):
        cluster = TargetCluster(applications, present, has_others=has_others, settings={})
        found = probe.probe_time(is_wanted, cluster, is_check=is_check)
        assert found is (ProbeTime.NEVER if has_others else when)


def test_probe_is_ended_at_once_when_what_the_submit_does_beside_it_fails() -> None:
    yarn, waits, has_failed = host("ACCEPTED"), Event(), Event()

    def pause() -> None:
        waits.set()
        assert has_failed.wait(PATIENCE_SECONDS)

    clock = WaitClock(pause)
    with ThreadPoolExecutor(max_workers=1) as background:
        with probe.HostProbe(background) as probing:
            probing.begin(CONFIG, yarn, Deadline(60.0, clock), Progress(is_quiet=True))
            assert yarn.submitted, "it is submitted before anything else can be"
            assert waits.wait(PATIENCE_SECONDS)
        has_failed.set()
    assert yarn.killed
    assert clock.waits == 1


def question(**more: Any) -> dict[str, Any]:
    usual = {"standfast": on_host.version(), "modules": ["standby.api"], "needs_java": False}
    return {**usual, "state_dirs": [], **more}


def test_look_leaves_no_directory_and_names_who_else_could_put_state_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    asked = question(state_dirs=[str(tmp_path / "there" / "a" / "b"), str(tmp_path / "c")])
    assert on_host.inspect_host(asked)["wrong"] == []
    assert [each.name for each in tmp_path.rglob("*")] == ["there"]
    (tmp_path / "there").chmod(0o777)
    [wrong] = on_host.inspect_host(question(state_dirs=[str(tmp_path / "there" / "state")]))["wrong"]
    assert wrong.startswith(f"job.state.dir: {tmp_path}/there can be written by other users")


def test_look_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    asked = question(
        standfast="0.0.9",
        modules=["standby.absent"],
        needs_java=True,
        state_dirs=[str(tmp_path / "file" / "state")],
    )
    named = (
        "cannot import standby.absent",
        "this command is of 0.0.9",
        "job.state.dir: ",
        "there is no java",
    )
    for said, part in zip(on_host.inspect_host(asked)["wrong"], named, strict=True):
        assert part in said


def test_java_has_to_run_and_to_be_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for said, status, told in (
        ("    java.specification.version = 1.8", 0, "is Java 8; Spark needs 17"),
        ("    java.specification.version = 11", 0, "is Java 11; Spark needs 17"),
        ("Could not reserve enough space", 1, "ends with status 1: Could not reserve enough space"),
        ("    java.specification.version = 21", 0, ""),
    ):
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {status}\n", encoding="utf-8")
        java.chmod(0o755)
        wrong = on_host.inspect_host(question(needs_java=True))["wrong"]
        assert len(wrong) == bool(told), said
        assert all(told in each for each in wrong), said


def test_look_tells_its_master_past_a_proxy_of_the_host(tmp_path: Path) -> None:
    library = """
    import json, os
    class ApplicationClient:
        @classmethod
        def from_current(cls):
            print(json.dumps([each for each in os.environ if "proxy" in each.lower()]))
            return cls()
        def shutdown(self, status, diagnostics):
            pass
    """
    (tmp_path / "skein.py").write_text(textwrap.dedent(library), encoding="utf-8")
    asked = tmp_path / "question.json"
    asked.write_text(json.dumps(question(modules=[])), encoding="utf-8")
    proxies = {"http_proxy": "http://p:1", "HTTPS_PROXY": "http://p:1"}
    said = subprocess.check_output(
        [sys.executable, on_host.__file__, str(asked)],
        env={"PYTHONPATH": str(tmp_path), "LANG": "C.UTF-8", **proxies},
        text=True,
    )
    assert said.splitlines()[-1] == "[]"
