"""Text of an exception that a job's code may have raised: bounded, valid UTF-8, and never raising itself. Pure.

A job may raise exceptions of any kind: ``__str__`` may raise, and the text may be enormous or contain lone
surrogates, which no JSON encoder accepts. All text of exceptions that is logged, sent, or stored is created here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from traceback import StackSummary, TracebackException
from typing import Final

#: Maximum length of an exception's message, in characters.
MESSAGE_CHARACTERS: Final = 500

#: Maximum length of a replica's detail: where something failed, and an exception's message.
DETAIL_CHARACTERS: Final = 2_000

#: Maximum length of a traceback, which is sent with each report, and recorded.
TRACEBACK_CHARACTERS: Final = 4_000

#: Maximum length of a traceback in a container's log.
LOG_CHARACTERS: Final = 64_000

#: Maximum length of a frame or a message within a traceback.
_PIECE_CHARACTERS: Final = 1_000

#: Maximum number of causes of an exception; further ones are omitted.
_MOST_CAUSES: Final = 20

#: What comes before the exception of the JVM in the text of py4j's and pyspark's exceptions: the call's name, which is
#: a number of an object in the JVM, or nothing.
_OF_JAVA: Final = re.compile(
    r"(?:An error occurred while calling \S+\.(?: Trace:)?\n(?:: )?|\s*JVM stacktrace:\n)"
)

#: What Spark says of a job's failure where it only waits for the result, and what comes before the failure itself.
_AWAITED: Final = "Exception thrown in awaitResult:"
_CAUSE: Final = "Caused by: "

#: Spark's exception for one in a Python worker ends with the worker's traceback.
_TRACEBACK: Final = "Traceback (most recent call last):"

_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"]*)", line \d+')
_JAVA_FRAME: Final = re.compile(r"\s+at [\w.$/]+\(")

#: Directories of code that is not the job's; the rest of a traceback is the job's code, or is called by it.
_OURS: Final = str(Path(__file__).parents[1])
_NOT_THE_JOBS: Final = re.compile(r"[/\\](pyspark|py4j|importlib)[/\\]|^<frozen importlib|pyspark\.zip[/\\]")


def kind_of(error: BaseException) -> str:
    """Return the name of the exception's type."""
    try:
        return clean(type(error).__name__, MESSAGE_CHARACTERS)
    except BaseException:  # noqa: BLE001 - a metaclass of the job's own
        return "Exception"


def text_of(error: BaseException) -> str:
    """Return the exception's text, at most `LOG_CHARACTERS`; a note if its ``__str__`` raises."""
    try:
        return clean(str(error), LOG_CHARACTERS)
    except BaseException as failure:  # noqa: BLE001 - the job's own __str__
        return f"(no text: __str__ raised {kind_of(failure)})"


def first_line(error: BaseException, most: int = DETAIL_CHARACTERS) -> str:
    """Return the first non-empty line of the exception's text that tells something, or the name of its type."""
    text = text_of(error)
    before = _OF_JAVA.match(text)
    lines = [line.strip() for line in text[before.end() if before else 0 :].splitlines()]
    found = next((line for line in lines if line), kind_of(error))
    if found.endswith(_AWAITED):
        found = next((line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)), found)
    return found[:most]


def summary_of(error: BaseException) -> str:
    """Return the exception's type and first line, as in the last line of a traceback.

    For an exception in a Python worker of Spark, those of the original.
    """
    if quoted := worker_summary(error):
        return quoted
    line = first_line(error, MESSAGE_CHARACTERS)
    kind = kind_of(error)
    return kind if line == kind else f"{kind}: {line}"


def clean(text: str, most: int) -> str:
    """Return at most ``most`` characters of ``text``, each lone surrogate as its escape."""
    # Call only methods of str itself: a subclass may override them.
    kept = str.__getitem__(text, slice(most))
    return str.encode(kept, "utf-8", "backslashreplace").decode()[:most]


def worker_traceback(error: BaseException) -> str:
    """Return the traceback of a Python worker that a Spark exception quotes; empty if there is none."""
    _, found, frames = text_of(error).partition(_TRACEBACK)
    return found + frames


def worker_summary(error: BaseException) -> str:
    """Return the type and the first line of the exception that `worker_traceback` is of; empty if there is none."""
    lines = worker_traceback(error).splitlines()[1:]
    return next((line[:MESSAGE_CHARACTERS] for line in lines if line and not line.startswith(" ")), "")


def traceback_of(error: BaseException) -> str:
    """Return the exception's traceback with the frames of the job's code, and of the code that it calls.

    Frames of standfast, Spark and Java are omitted. For an exception in a Python worker of Spark, the worker's
    traceback is shown instead of the driver's.
    """
    try:
        is_sparks = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
        quoted = worker_traceback(error) if is_sparks else ""
        pieces = _quoted(quoted) if quoted else _formatted(error, _is_jobs)
        return _cut(pieces, TRACEBACK_CHARACTERS)
    except BaseException:  # noqa: BLE001 - whatever an exception of the job does when it is inspected
        return summary_of(error)


def full_traceback(error: BaseException) -> str:
    """Return the exception's traceback with all frames, for a log."""
    try:
        return _cut(_formatted(error, lambda _: True), LOG_CHARACTERS)
    except BaseException:  # noqa: BLE001 - as above
        return summary_of(error)


def _is_jobs(file: str) -> bool:
    return not file.startswith(_OURS) and not _NOT_THE_JOBS.search(file)


def _formatted(error: BaseException, is_shown: Callable[[str], bool]) -> Iterator[str]:
    """Yield the pieces of a traceback with the frames of files that ``is_shown`` selects."""
    whole = TracebackException.from_exception(error)
    waiting, seen = [whole], 0
    while waiting and seen < _MOST_CAUSES:
        each, seen = waiting.pop(), seen + 1
        each.stack = StackSummary.from_list([frame for frame in each.stack if is_shown(frame.filename)])
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        # Exception groups, from Python 3.11 on.
        waiting += getattr(each, "exceptions", None) or []
    yield from whole.format()


def _quoted(text: str) -> Iterator[str]:
    """Yield the lines of a traceback text, without frames that are not the job's."""
    is_shown = True
    for line in text.splitlines(keepends=True):
        frame = _FRAME.match(line)
        if frame is not None:
            is_shown = _is_jobs(frame["file"])
        elif not line[:1].isspace():
            is_shown = True
        if is_shown:
            yield line


def _cut(pieces: Iterable[str], most: int) -> str:
    """Return the pieces as one text; the middle of a text that is too long is omitted."""
    text = "".join(
        f"{piece[:_PIECE_CHARACTERS].rstrip()} …\n" if len(piece) > _PIECE_CHARACTERS else piece
        for piece in pieces
    )
    lines = [line for line in text.splitlines() if not _JAVA_FRAME.match(line)]
    whole = clean("\n".join(lines).strip(), max(len(text), most))
    if len(whole) <= most:
        return whole
    gap = "\n  […]\n"
    head = (most - len(gap)) // 4
    return whole[:head] + gap + whole[len(gap) + head - most :]
