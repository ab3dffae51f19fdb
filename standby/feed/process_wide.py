"""Detects and reverts process-wide settings that a job's module changes while it is imported.

Most threads of a container are standfast's own. A default socket time-out, set for the job's own requests, would end
every longer call into Spark's JVM; a locale changes how C libraries parse numbers. So such a change is reverted
after the import and reported, by `standfast submit` and in the container's log.
"""

from __future__ import annotations

import contextlib
import locale
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Variables that are read when Spark's JVM starts, which may be before or after the module is imported.
_VARIABLES: Final = (
    "JAVA_HOME",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "HADOOP_CONF_DIR",
    "SPARK_LOCAL_DIRS",
)

_OUR_LOGGERS: Final = ("standby", "appmaster", "locality")


@dataclass(frozen=True, slots=True)
class Setting:
    """A process-wide setting."""

    name: str
    read: Callable[[], Any]
    """Returns the current value, which can be compared."""
    advice: str
    """What a job should do instead."""
    restore: Callable[[Any], None] | None = None
    """Restores a value that ``read`` returned; None: the module's value is kept."""
    is_changed: Callable[[Any, Any], bool] = lambda before, after: bool(before != after)
    is_refused: bool = False
    """Whether a module that changes it is refused."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that job code has changed."""

    setting: Setting
    before: Any
    after: Any

    @property
    def description(self) -> str:
        """The change, how it was handled, and what to do instead."""
        # Only simple values are shown; the representation of handlers, for example, is useless.
        values = (
            f" from {self.before!r} to {self.after!r}"
            if isinstance(self.before, int | float | str | None)
            and isinstance(self.after, int | float | str | None)
            else ""
        )
        what = f"changes {self.setting.name}{values}"
        if self.setting.is_refused:
            return f"{what}: {self.setting.advice}"
        became = "is kept" if self.setting.restore is None else "is reverted"
        return f"{what}; this affects the whole process and {became}: {self.setting.advice}"


def _umask() -> int | None:
    # os.umask() cannot read the value without changing it for every thread.
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return None


def _set_umask(before: int | None) -> None:
    if before is not None:
        os.umask(before)


def _directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a Path would not make it shorter
    except OSError:
        return ""


def _go_to(directory: str) -> None:
    with contextlib.suppress(OSError):
        os.chdir(directory)


def _error_filters() -> tuple[Any, ...]:
    """Return the filters that turn warnings of any module into errors."""
    return tuple(
        each for each in warnings.filters if each[0] == "error" and each[1] is None and each[3] is None
    )


def _keep_error_filters(before: tuple[Any, ...]) -> None:
    added = [each for each in _error_filters() if each not in before]
    warnings.filters[:] = [each for each in warnings.filters if each not in added]  # type: ignore[index]


def _is_more(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    return any(each not in before for each in after)


def _is_less(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    return _is_more(after, before)


def _root_handlers() -> tuple[logging.Handler, ...]:
    return tuple(logging.root.handlers)


def _bring_back_handlers(before: tuple[logging.Handler, ...]) -> None:
    for each in before:
        logging.root.addHandler(each)


def _disabled() -> tuple[str, ...]:
    return tuple(
        sorted(
            name
            for name, each in logging.root.manager.loggerDict.items()
            if name.partition(".")[0] in _OUR_LOGGERS and isinstance(each, logging.Logger) and each.disabled
        )
    )


def _enable_all_but(before: tuple[str, ...]) -> None:
    for name in _disabled():
        if name not in before:
            logging.getLogger(name).disabled = False


def _set_locale(before: str) -> None:
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, before)


def _stop_alarm(before: bool) -> None:
    if not before:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _set_stack_size(before: int) -> None:
    threading.stack_size(before)


def _variable(name: str) -> Setting:
    return Setting(
        f"the environment variable {name}",
        lambda: os.environ.get(name),
        "whether Spark's JVM gets it depends on which comes first; set it on the hosts",
    )


def _library() -> tuple[object, ...]:
    return (socket.socket, threading.Thread, time.sleep, select.select)


_LIBRARY: Final = _library()

SETTINGS: Final = (
    Setting(
        "the default time-out of sockets (socket.setdefaulttimeout)",
        socket.getdefaulttimeout,
        "give each connection or request its own time-out",
        socket.setdefaulttimeout,
    ),
    Setting(
        "the locale (locale.setlocale)",
        lambda: locale.setlocale(locale.LC_ALL),
        "use a formatting function that is given a locale",
        _set_locale,
    ),
    Setting(
        "the working directory (os.chdir)",
        _directory,
        "open files by their whole path, as beside __file__",
        _go_to,
    ),
    Setting("the umask (os.umask)", _umask, "set the mode of each file (os.chmod)", _set_umask),
    Setting(
        # Raising it is harmless.
        "the recursion limit (sys.setrecursionlimit)",
        sys.getrecursionlimit,
        "no limit below the usual one is possible",
        sys.setrecursionlimit,
        lambda before, after: bool(after < before),
    ),
    Setting(
        "the switch interval of threads (sys.setswitchinterval)",
        sys.getswitchinterval,
        "standfast's own threads have to answer in time",
        sys.setswitchinterval,
    ),
    Setting(
        "the stack size of new threads (threading.stack_size)",
        threading.stack_size,
        "set it around the start of a thread of your own, and set it back",
        _set_stack_size,
    ),
    Setting(
        "the warnings that are errors (warnings.simplefilter)",
        _error_filters,
        "give warnings.filterwarnings a module",
        _keep_error_filters,
        _is_more,
    ),
    Setting(
        "the level of the root logger",
        lambda: logging.root.level,
        "set the level of a logger of your own",
        logging.root.setLevel,
    ),
    Setting(
        "the handlers of the root logger, some of which it takes away",
        _root_handlers,
        "add handlers to a logger of your own",
        _bring_back_handlers,
        _is_less,
    ),
    Setting(
        "which messages are logged at all (logging.disable)",
        lambda: logging.root.manager.disable,
        "set the level of a logger of your own",
        logging.disable,
    ),
    Setting(
        "standfast's loggers, some of which it disables",
        _disabled,
        "give logging.config disable_existing_loggers=False",
        _enable_all_but,
        _is_more,
    ),
    Setting(
        "the alarm of the process (signal.alarm, signal.setitimer)",
        lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "it would end the process; use threading.Timer",
        _stop_alarm,
    ),
    Setting(
        "the standard library (as gevent.monkey.patch_all or eventlet.monkey_patch does)",
        _library,
        "standfast's own threads and connections would use the replacement; remove it",
        # Compared with the original library: a module that was refused may be imported again.
        is_changed=lambda _, after: bool(after != _LIBRARY),
        is_refused=True,
    ),
    *map(_variable, _VARIABLES),
)

#: Held during a comparison, so that a change by one module is not attributed to another.
_GUARD: Final = threading.RLock()


@contextlib.contextmanager
def kept() -> Iterator[list[SettingChange]]:
    """Run a block of job code, and revert its changes of `SETTINGS`; the list contains them afterwards."""
    changes: list[SettingChange] = []
    with _GUARD, _with_a_handler():
        before = [each.read() for each in SETTINGS]
        try:
            yield changes
        finally:
            for setting, value in zip(SETTINGS, before, strict=True):
                after = setting.read()
                if setting.is_changed(value, after):
                    changes.append(SettingChange(setting, value, after))
                    if setting.restore is not None:
                        setting.restore(value)


@contextlib.contextmanager
def _with_a_handler() -> Iterator[None]:
    """Add a handler to the root logger, as in a container, where logging.basicConfig has no effect."""
    handler = logging.lastResort
    if logging.root.handlers or handler is None:
        yield
        return
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
