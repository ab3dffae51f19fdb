"""The supervisor: a candidate's crash does not end the application, its finish does."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appmaster.supervisor import FINISHED, MADE_WAY, RESIGNED, SUPERSEDED, Lives, supervise
from standby.errors import BadConfiguration, Unavailable
from tests.interrupted import before_each_line
from tests.patience import PATIENCE_SECONDS

#: Tells which life it is and how the last one ended, in a file, and ends with that life's status of its arguments.
LIVES = """
import os, pathlib, sys
life, ended = (os.environ["STANDFAST_CANDIDATE_" + each] for each in ("LIFE", "ENDED"))
with pathlib.Path(sys.argv[1]).open("a") as told:
    print(life, ended, file=told)
sys.exit(int(sys.argv[1 + int(life)]))
"""

SHORT, GOOD = 1.0, 31.0
CRASH = 70


@pytest.fixture(autouse=True)
def who_ends_this_process() -> Iterator[None]:
    """The supervisor keeps what it does at a signal, as its process ends with it."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def waits(*lives: tuple[int, float]) -> list[float | None]:
    """Return what a candidate waits for after each life, given as its status and length."""
    known = Lives()
    return [known.wait_after(*each) for each in lives]


@pytest.mark.parametrize("status", [FINISHED, SUPERSEDED, MADE_WAY])
def test_candidate_that_is_done_ends_its_attempt_in_any_life(status: int) -> None:
    assert waits((status, GOOD)) == [None]
    assert waits((RESIGNED, SHORT), (status, SHORT)) == [0, None]


def test_bad_configuration_ends_the_attempt_only_where_nothing_runs_yet() -> None:
    bad = BadConfiguration.exit_status
    assert waits((bad, SHORT)) == [None]
    assert None not in waits((bad, GOOD))
    assert None not in waits((RESIGNED, SHORT), (bad, SHORT))


@pytest.mark.parametrize("status", [CRASH, 1, -9])
def test_crash_loop_backs_off_to_a_limit_and_never_ends_until_a_good_life_begins_anew(status: int) -> None:
    found = waits(*[(status, SHORT)] * 15, (status, GOOD), (status, SHORT))
    assert found == [0.4, 0.8, 1.6, 3.2, 6.4, *[10.0] * 10, 0.2, 0.4]


def test_server_that_is_away_is_no_crash_loop_and_a_deposed_leader_follows_at_once() -> None:
    away, resigned = (Unavailable.exit_status, SHORT), (RESIGNED, SHORT)
    assert waits(*[away] * 3, *[resigned] * 3, (CRASH, SHORT), away) == [0.2] * 3 + [0] * 3 + [0.4] * 2


def good_lives(waited: list[float]) -> Any:
    """Return a clock by which every life is a good one; what is waited for is kept, and takes nothing."""

    def pace(seconds: float) -> float:
        waited.append(seconds)
        return 0.0

    return SimpleNamespace(monotonic=itertools.count(0, GOOD).__next__, pace=pace)


def test_candidate_lives_again_and_gets_the_count_of_its_lives(tmp_path: Path) -> None:
    told = tmp_path / "told"
    statuses = [str(each) for each in (CRASH, CRASH, RESIGNED, FINISHED)]
    waited: list[float] = []
    assert supervise([sys.executable, "-c", LIVES, str(told), *statuses], good_lives(waited)) == FINISHED
    before = ["", *(f"status {each} after 31.0 s" for each in (CRASH, CRASH, RESIGNED))]
    assert told.read_text().splitlines() == [f"{life} {ended}" for life, ended in enumerate(before, 1)]
    assert waited == [0.2, 0.2, 0]


def test_host_that_can_start_no_process_for_a_while_costs_no_application(tmp_path: Path) -> None:
    program, hidden, lives = tmp_path / "python", tmp_path / "hidden", tmp_path / "lives"
    program.symlink_to(sys.executable)
    told: list[str] = []

    class Meanwhile(logging.Handler):
        """Takes the program away after its first life, and gives it back when it could not be started."""

        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.msg)
            if len(told) in (1, 2):
                first, second = (program, hidden) if len(told) == 1 else (hidden, program)
                first.rename(second)

    handler = Meanwhile()
    logging.getLogger("appmaster.supervisor").addHandler(handler)
    try:
        command = [str(program), "-c", LIVES, str(lives), str(RESIGNED), "0", str(FINISHED)]
        assert supervise(command, good_lives([])) == FINISHED
    finally:
        logging.getLogger("appmaster.supervisor").removeHandler(handler)
    assert [each[0] for each in lives.read_text().splitlines()] == ["1", "3"]
    assert [each.partition(":")[0] for each in told].count("the candidate could not be started") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_termination_is_passed_on_and_ends_it(number: signal.Signals) -> None:
    program = (
        "import sys; from appmaster.supervisor import supervise; "
        "sys.exit(supervise([sys.executable, '-c', "
        f"'import signal, sys; signal.signal({number.value}, lambda *_: sys.exit(0)); "
        "print(1, flush=True); signal.pause()']))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_termination_just_before_there_is_a_candidate_ends_it_too(number: signal.Signals) -> None:
    """It was always SIGTERM that reached the candidate then, whatever had come."""

    def begin() -> float:
        signal.raise_signal(number)
        return 0.0

    clock: Any = SimpleNamespace(monotonic=begin)
    # Python would notice SIGINT while it starts, and end with a status of its own.
    assert supervise(["sleep", f"{PATIENCE_SECONDS:.0f}"], clock) == -number


def test_termination_while_there_is_no_candidate_is_no_success() -> None:
    """After one Skein would remove the application from YARN, without another attempt."""

    def end(seconds: float) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return seconds

    clock: Any = SimpleNamespace(monotonic=lambda: 0.0, pace=end)
    assert supervise([sys.executable, "-c", f"raise SystemExit({CRASH})"], clock) == CRASH


def test_termination_at_any_moment_of_a_pause_ends_it() -> None:
    """Its handler waited for a lock that the interrupted wait held, and nothing ended it but SIGKILL."""
    with ExitStack() as pausing:

        def pace(seconds: float) -> float:
            pausing.enter_context(before_each_line(lambda _: signal.raise_signal(signal.SIGTERM)))
            return seconds

        clock: Any = SimpleNamespace(monotonic=lambda: 0.0, pace=pace)
        assert supervise([sys.executable, "-c", f"raise SystemExit({CRASH})"], clock) == CRASH


def test_candidate_does_not_live_again_once_its_application_s_master_is_gone() -> None:
    """YARN ends what is left of it, as a rule; what it forgets would be started again for ever."""
    candidate = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    supervisor = (
        "import sys; from appmaster.supervisor import supervise; "
        f"supervise([sys.executable, '-c', {candidate!r}])"
    )
    master = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {supervisor!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", master], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        process.wait()
        os.kill(pid, signal.SIGKILL)
        second_life = process.stdout.readline()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert second_life == b""
