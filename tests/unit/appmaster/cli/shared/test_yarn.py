"""What the command line takes for an answer of YARN."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest
from skein.exceptions import DriverError

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.cli.shared import yarn
from appmaster.cli.shared.deadline import Deadline
from appmaster.records import CellRecord
from standby.errors import BadConfiguration, StandfastError
from tests.fakes.applications import Applications
from tests.fakes.clock import WaitClock
from tests.patience import NEVER_SECONDS


class Yarn:
    """Skein's driver, which tells the same of an application that YARN does not know and when YARN is away."""

    def __init__(self, *, is_away: bool) -> None:
        self._is_away = is_away

    def application_report(self, application: str) -> Any:
        raise ValueError(f"Unknown ApplicationId '{application}'")

    def kill_application(self, application: str) -> None:
        self.application_report(application)

    def get_nodes(self, states: list[str]) -> list[Any]:
        if self._is_away:
            raise DriverError("Failed to get node reports, exception:\nConnection refused")
        return []


def test_application_that_yarn_has_forgotten_does_not_run() -> None:
    forgetful = Yarn(is_away=False)
    assert yarn.state(forgetful, "application_1") == "UNKNOWN"
    assert not yarn.is_running(forgetful, "application_1")
    assert yarn.master_host(forgetful, "application_1", Deadline(NEVER_SECONDS)) == ""
    yarn.kill(forgetful, "application_1")


def test_yarn_that_is_away_says_nothing_of_an_application() -> None:
    away = Yarn(is_away=True)
    assert not yarn.is_running(away, ""), "none was submitted"
    with pytest.raises(DriverError, match="Connection refused"):
        yarn.is_running(away, "application_1")
    with pytest.raises(DriverError, match="Connection refused"):
        yarn.kill(away, "application_1")


def test_a_record_that_cannot_be_read_hides_nothing_of_the_other_cells() -> None:
    invalid = BadConfiguration("/cells/1: invalid")
    for second, expected in ((CellRecord("application_2"), False), (CellRecord("", is_pool=True), True)):
        cells = SimpleNamespace(read_each=lambda second=second: {1: invalid, 2: second})
        assert yarn.is_pool(cast("ZooKeeper", SimpleNamespace(cells=cells))) is expected


def test_master_s_host_is_known_once_it_runs_and_not_waited_for_when_it_has_ended() -> None:
    for states, host, waits in (
        ("ACCEPTED RUNNING", "h1", 1),
        ("ACCEPTED FAILED", "", 1),
        # As long as one may be waited for.
        ("ACCEPTED", "", 100),
    ):
        clock = WaitClock()
        assert yarn.master_host(Applications(a=states), "a", Deadline(60.0, clock)) == host
        assert clock.waits == pytest.approx(waits, abs=1)


def test_applications_that_were_told_to_end_are_waited_for_and_named_when_they_do_not() -> None:
    clock = WaitClock()
    yarn.await_end(Applications(a="RUNNING KILLED", b="RUNNING RUNNING KILLED"), "ab", Deadline(0.0, clock))
    assert clock.waits == 2
    with pytest.raises(StandfastError, match="b still runs, although YARN was asked to end it"):
        yarn.await_end(Applications(a="KILLED", b="RUNNING"), "ab", Deadline(0.0, clock))


class Client:
    """As Skein's: every question goes through one method, and the driver ends when its input does."""

    __slots__ = ("_proc", "asked")

    def __init__(self, process: Any = None) -> None:
        self.asked: list[tuple[str, float | None]] = []
        self._proc = process

    def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        self.asked.append((method, timeout))

    def close(self) -> None:
        if self._proc is not None:
            self._proc.wait()


def test_question_ends_with_the_command_and_a_submit_does_not() -> None:
    client = yarn.answering(Client, Deadline(NEVER_SECONDS))()
    for method in ("getNodes", "submit"):
        client._call(method, None)
    (_, asked), (_, submitted) = client.asked
    assert NEVER_SECONDS / 2 < asked <= NEVER_SECONDS
    assert submitted is None
    over = yarn.answering(Client, Deadline(0.0))()
    over._call("kill", None)
    assert over.asked[0][1] > 0, "what was made is undone when the time is over"


def test_driver_that_does_not_end_with_the_command_is_ended() -> None:
    ended: list[str] = []

    def wait(timeout: float | None = None) -> None:
        if not ended:
            raise subprocess.TimeoutExpired("driver", timeout or NEVER_SECONDS)

    process = SimpleNamespace(
        stdin=SimpleNamespace(close=lambda: None), wait=wait, kill=lambda: ended.append("killed")
    )
    yarn.answering(Client, Deadline(0.0))(process).close()
    assert ended == ["killed"]
