"""Finds a job's functions by name, with precise errors when they cannot be used.

Used by `standfast submit`, with the same result as in a container (:func:`job_code`), and in the container, where
the job's modules are in `code/` on `sys.path`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import math
import sys
import sysconfig
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from standby.adapters.spark import sessionless
from standby.code.archives import import_paths
from standby.code.lack import is_lack
from standby.code.reserved import shipped_name
from standby.config import JobConfig
from standby.errors import BadConfiguration, Transient
from standby.feed import process_wide
from standby.shared.errortext import summary_of, text_of

_LOG: Final = logging.getLogger(__name__)

#: How long a command waits for the import of a module, at most, seconds: as long as `submit` may take.
IMPORT_SECONDS: Final = 300.0

#: How many causes of a failed import are looked at, at most: a job's own errors may be each other's.
_MOST_CAUSES: Final = 20

#: What to do about a module that does not exist.
_REMEDY: Final = "list its file in job.modules, or install its package into the job's Python environment"

#: Error texts of functions that can be called on the main thread only.
_ONLY_ON_MAIN: Final = ("only works in main thread", "no current event loop in thread")


def transform_of(config: JobConfig, within_seconds: float = math.inf) -> Callable[[Any], Any] | None:
    """Return the function that `task.transform` names, or None when there is none. Raises like `resolve`."""
    if not config.transform:
        return None
    return resolve("task.transform", config.transform, ("rows",), within_seconds)


def step_of(config: JobConfig, within_seconds: float = math.inf) -> Callable[[Any, Any, Any], Any]:
    """Return the function that `task.step` names. Raises like `resolve`."""
    return resolve("task.step", config.step, ("rows", "state", "out"), within_seconds)


def check_starts_no_spark(config: JobConfig) -> None:
    """Raise `BadConfiguration` when the import of the job's modules has started Spark.

    Called by commands, which do not start Spark themselves; in a container the feed detects it.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if config.feed == "spark" and getattr(context, "_gateway", None) is not None:
        raise BadConfiguration(sessionless.STARTED)


def resolve(
    key: str,
    name: str,
    parameters: Sequence[str],
    within_seconds: float = math.inf,
    remedy: str = _REMEDY,
) -> Callable[..., Any]:
    """Return the function called ``name`` (`module:function`), which must accept ``parameters``.

    ``remedy`` says what to do if its module, or one that this imports, does not exist.

    Raises `BadConfiguration`, naming ``key``, when the module does not exist or its import raises, when it has no
    such name, or when that is not callable with this number of positional arguments. Also when the import has not
    ended after ``within_seconds`` or, in a command, after `IMPORT_SECONDS`. Raises `Transient` when the import fails
    for what the machine lacks, such as file descriptors, or because a service does not answer.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise BadConfiguration(f"{key}: {name!r} is not of the form module:function")
    module = _imported(key, module_name, within_seconds, remedy)
    function = getattr(module, function_name, None)
    if function is None:
        raise BadConfiguration(f"{key}: module {module_name} has no function {function_name!r}")
    if not callable(function):
        raise BadConfiguration(f"{key}: {name} is a {type(function).__name__}, not a function")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise BadConfiguration(
            f"{key}: {name} is async; it is called from a thread and must be a plain function"
        )
    try:
        inspect.signature(function).bind(*parameters)
    except TypeError:
        raise BadConfiguration(
            f"{key}: {name}{inspect.signature(function)} cannot be called with "
            f"{len(parameters)} positional arguments ({', '.join(parameters)})"
        ) from None
    except ValueError:
        # Some builtins have no signature; the first call will show whether it fits.
        pass
    return function  # type: ignore[no-any-return]


def _imported(key: str, module_name: str, within_seconds: float, remedy: str) -> Any:
    # What a module prints is not a part of a command's result, which is JSON, for example.
    with process_wide.kept() as changes, contextlib.redirect_stdout(sys.stderr):
        # A KeyboardInterrupt raised here comes from the user; one raised by the module is returned as `error`.
        module, error = _import_on_a_thread(key, module_name, within_seconds)
    if error is not None:
        if (lack := _lack(error)) is not None:
            said = (
                f"importing {module_name} has failed on this host, and may succeed later: {summary_of(lack)}"
            )
            raise Transient(f"{key}: {said}") from error
        raise BadConfiguration(f"{key}: {_failure(module_name, error, remedy)}") from error
    for each in changes:
        said = f"{key}: importing {module_name} {each.description}"
        if each.setting.is_refused:
            raise BadConfiguration(said)
        # Printed by a command, logged by a container.
        _LOG.warning("%s", said)
    return module


def _lack(error: BaseException) -> BaseException | None:
    """Return what tells that an import failed for a reason outside of the job's code; None: nothing does."""
    each: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if each is None:
            break
        if is_lack(each):
            return each
        each = each.__cause__ or each.__context__
    return _unread_archive() if isinstance(error, ModuleNotFoundError) else None


def _unread_archive() -> OSError | None:
    """Return why an archive on the import path cannot be opened now, if it cannot.

    An import passes over such an archive without a word, and so do all further ones until the caches are dropped.
    """
    for path in sys.path:
        if Path(path).suffix and Path(path).is_file():
            try:
                Path(path).open("rb").close()
            except OSError as error:
                if is_lack(error):
                    return error
    return None


def _failure(module_name: str, error: BaseException, remedy: str) -> str:
    """Return the message for a module whose import raised ``error``."""
    if isinstance(error, ModuleNotFoundError):
        missing = error.name or ""
        is_itself = module_name == missing or module_name.startswith(f"{missing}.")
        what = (
            f"there is no module {missing!r}"
            if is_itself
            else (f"module {module_name} imports {missing!r}, which does not exist")
        )
        return f"{what}; {remedy}"
    hint = sessionless.session_hint(error)
    if hint is None and any(each in text_of(error) for each in _ONLY_ON_MAIN):
        hint = "a container imports modules on a thread other than the main one, where this is impossible"
    return f"importing {module_name} raised {summary_of(error)}{_place(error)}{f': {hint}' if hint else ''}"


def _import_on_a_thread(
    key: str, module_name: str, within_seconds: float
) -> tuple[Any, BaseException | None]:
    """Return the module, or the error of its import; imported on a thread other than main, as in a container.

    Raises `BadConfiguration` when the import has not ended in time; its thread does not keep the process from ending.
    """
    done: Future[Any] = Future()

    def run() -> None:
        try:
            # Archives that an earlier import could not open, for lack of descriptors, are tried again.
            importlib.invalidate_caches()
            done.set_result(importlib.import_module(module_name))
        except BaseException as error:  # noqa: BLE001 - job code's, of any kind
            done.set_exception(error)

    if threading.current_thread() is threading.main_thread() or within_seconds < math.inf:
        # The import may hang; a daemon thread lets an interrupt end the command.
        importing = threading.Thread(target=run, name="import", daemon=True)
        importing.start()
        seconds = min(within_seconds, IMPORT_SECONDS)
        importing.join(seconds)
        if not done.done():
            raise BadConfiguration(
                f"{key}: importing {module_name} has not ended within {seconds:.3g} s{_position(importing)}: "
                "what takes long, or waits, belongs into the functions"
            )
    else:
        run()
    error = done.exception()
    return (None, error) if error is not None else (done.result(), None)


def _position(thread: threading.Thread) -> str:
    """Return the file and line of user code that ``thread`` runs now; empty if unknown."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - there is no public function
    return _line_of_user_code(traceback.extract_stack(frame)) if frame is not None else ""


def is_interrupt(error: BaseException) -> bool:
    """Return whether ``error`` is the user's interrupt of a command, not an error of the job's code.

    Only a command calls job code on its main thread.
    """
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _place(error: BaseException) -> str:
    """Return the file and line of user code where ``error`` occurred; empty if unknown."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name}, line {error.lineno})"
    return _line_of_user_code(traceback.extract_tb(error.__traceback__))


def _line_of_user_code(stack: traceback.StackSummary) -> str:
    frames = [
        frame
        for frame in stack
        if not frame.filename.startswith("<")
        and Path(frame.filename) not in (Path(__file__), Path(importlib.__file__))
    ]
    # Prefer the caller of a library to the library itself; but a job's code may be installed like a library.
    frames = [frame for frame in frames if not _is_library(Path(frame.filename))] or frames
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _is_library(file: Path) -> bool:
    places = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return "pyspark" in file.parts or any(file.is_relative_to(each) for each in places)


@contextlib.contextmanager
def job_code(job_directory: Path, modules: Sequence[str]) -> Iterator[Path]:
    """Yield a directory with exactly ``modules``, as a container's `code/`; it is first on `sys.path` meanwhile.

    ``modules`` are paths relative to ``job_directory`` (`job.modules`). A module next to the job file that
    the job does not list is not found here, because it would not be found in a container either.
    Afterwards, modules imported from there are removed from `sys.modules`. Raises `BadConfiguration` for a missing
    file, and for two files of the same name.
    """
    with tempfile.TemporaryDirectory(prefix="standfast-code-") as name:
        directory = Path(name)
        for module in modules:
            path = job_directory / module
            if not path.exists():
                raise BadConfiguration(f"job.modules: there is no {path.absolute()}")
            link = directory / shipped_name(job_directory, module)
            if link.is_symlink():
                raise BadConfiguration(
                    f"job.modules: two files are called {link.name}; containers get them in one directory"
                )
            link.symlink_to(path.resolve())
        shown = import_paths(directory)
        sys.path[:0] = shown
        importlib.invalidate_caches()
        try:
            yield directory
        finally:
            sys.path[:] = [each for each in sys.path if each not in shown]
            # A copy, because an import that ran out of time may go on in its thread.
            for loaded, content in sys.modules.copy().items():
                if _is_from(content, directory):
                    sys.modules.pop(loaded, None)


def _is_from(module: object, directory: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and directory in Path(file).parents
