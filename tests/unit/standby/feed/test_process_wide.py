"""What a job's module changes for the whole process ends with its import, and is reported with its name."""

from __future__ import annotations

import locale
import logging
import os
import re
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from standby.errors import BadConfiguration
from standby.feed.functions import job_code, resolve
from standby.feed.process_wide import SETTINGS
from tests.cases import case


def _umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


#: What a module does, what is read afterwards, and what is reported.
UNDONE: dict[str, tuple[str, Callable[[], Any], str]] = {
    "socket": ("import socket; socket.setdefaulttimeout(3)", socket.getdefaulttimeout, "from None to 3.0"),
    "locale": (
        "import locale; locale.setlocale(locale.LC_ALL, 'C' if locale.setlocale(locale.LC_ALL) != 'C' else 'C.UTF-8')",
        lambda: locale.setlocale(locale.LC_ALL),
        r"locale\.setlocale",
    ),
    "directory": ("import os; os.chdir('/')", os.getcwd, "to '/'"),
    "umask": ("import os; os.umask(0o177)", _umask, "to 127"),
    "recursion": ("import sys; sys.setrecursionlimit(200)", sys.getrecursionlimit, "to 200"),
    "switches": ("import sys; sys.setswitchinterval(1)", sys.getswitchinterval, r"to 1\.0"),
    "stacks": ("import threading; threading.stack_size(1 << 16)", threading.stack_size, "to 65536"),
    "warnings": (
        "import warnings; warnings.simplefilter('error')",
        lambda: [each for each in warnings.filters if each[0] == "error" and each[1] is each[3] is None],
        r"warnings\.filterwarnings a module",
    ),
    "level": ("import logging; logging.getLogger().setLevel(1)", lambda: logging.root.level, "to 1"),
    "handlers": (
        "import logging; logging.root.handlers.clear()",
        lambda: list(logging.root.handlers),
        "handlers of the root logger",
    ),
    "disabling": (
        "import logging; logging.disable(logging.CRITICAL)",
        lambda: logging.root.manager.disable,
        r"logging\.disable",
    ),
    "loggers": (
        "import logging.config; logging.config.dictConfig({'version': 1})",
        lambda: logging.getLogger("standby.feed.functions").disabled,
        "disable_existing_loggers=False",
    ),
    "alarm": (
        "import signal; signal.setitimer(signal.ITIMER_REAL, 36000)",
        lambda: signal.getitimer(signal.ITIMER_REAL),
        r"threading\.Timer",
    ),
}

#: What is left to a job.
LEFT = (
    "import sys; sys.setrecursionlimit(sys.getrecursionlimit() + 100)",
    "import warnings; warnings.filterwarnings('ignore')",
    "import warnings; warnings.filterwarnings('error', module='wide_job')",
    "import logging; logging.basicConfig(level=logging.DEBUG)",
    "import logging; logging.getLogger('wide_job').setLevel(logging.DEBUG)",
    "import os; os.environ['WIDE_JOB'] = '1'",
    "import sys; sys.path.append('/nowhere')",
)


@pytest.fixture(autouse=True)
def _nothing_leaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WIDE_JOB", "")
    path, limit = list(sys.path), sys.getrecursionlimit()
    # What looks for tests that hang may use it.
    alarm = signal.setitimer(signal.ITIMER_REAL, 0)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        before = [each.read() for each in SETTINGS]
        yield
        sys.path[:] = path
        sys.setrecursionlimit(limit)
        assert [each.read() for each in SETTINGS] == before
    signal.setitimer(signal.ITIMER_REAL, *alarm)


def imported(directory: Path, line: str) -> None:
    (directory / "wide_job.py").write_text(f"{line}\ndef step(rows, state, out): ...\n", encoding="utf-8")
    with job_code(directory, ["wide_job.py"]):
        resolve("task.step", "wide_job:step", ("rows", "state", "out"))


def test_what_reaches_other_threads_is_taken_back_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for kind, (line, read, said) in UNDONE.items():
        before = read()
        imported(tmp_path, line)
        assert read() == before, kind
        (told,) = [each.getMessage() for each in caplog.records]
        assert told.startswith("task.step: importing wide_job changes "), kind
        assert "is reverted" in told, kind
        assert re.search(said, told), told
        caplog.clear()


def test_what_is_the_jobs_own_affair_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for line in LEFT:
        imported(tmp_path, line)
        assert not caplog.records, line


def test_what_a_module_changed_that_then_raised_is_taken_back_too(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="raised ValueError: later"):
        imported(tmp_path, "import socket; socket.setdefaulttimeout(3); raise ValueError('later')")
    assert socket.getdefaulttimeout() is None


def test_what_goes_on_the_main_thread_only_is_refused_as_in_a_container(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    said = r"wide_job\.py, line 1.*: a container imports modules on a thread"
    for line in (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "import asyncio; asyncio.get_event_loop()",
    ):
        with case(line), pytest.raises(BadConfiguration, match=said):
            imported(tmp_path, line)
    # Many libraries look where they are first.
    is_main = "threading.current_thread() is threading.main_thread()"
    imported(
        tmp_path, f"import signal, threading; {is_main} and signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_replaced_standard_library_is_refused_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "Thread", threading.Thread)
    for _ in range(2):
        with pytest.raises(BadConfiguration, match=r"changes the standard library .*monkey"):
            imported(tmp_path, "import threading; threading.Thread = type('Green', (threading.Thread,), {})")
    monkeypatch.undo()


def test_a_variable_that_the_jvm_may_or_may_not_see_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/before")
    imported(tmp_path, "import os; os.environ['JAVA_HOME'] = '/after'")
    (told,) = [each.getMessage() for each in caplog.records]
    assert "JAVA_HOME from '/before' to '/after'; this affects the whole process and is kept" in told
    monkeypatch.undo()


def test_logging_of_a_command_is_set_up_as_little_as_in_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has a handler, so that logging.basicConfig does nothing there."""
    monkeypatch.setattr(logging.root, "handlers", [])
    level = logging.root.level
    imported(tmp_path, "import logging; logging.basicConfig(level=1)")
    assert (logging.root.handlers, logging.root.level) == ([], level)
    monkeypatch.undo()
