"""Text of an exception that a job's code may have raised: bounded, encodable as UTF-8, never an error itself. Pure.

An exception of a job's own is of any kind: its ``__str__`` may raise, and its text may be enormous or hold lone
surrogates, which no JSON encoder takes. Everything that is logged, sent, or kept of one is made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from traceback import StackSummary, TracebackException
from typing import Final

#: Characters that are kept of an exception's message.
MESSAGE_CHARACTERS: Final = 500

#: Characters of what a replica says of itself: where something failed, and an exception's message.
DETAIL_CHARACTERS: Final = 2_000

#: Characters that are kept of a traceback: it is sent with each report, and recorded.
TRACEBACK_CHARACTERS: Final = 4_000

#: Characters of a traceback in a container's log.
LOG_CHARACTERS: Final = 64_000

#: One frame, or one message within a traceback, has at most so many.
_PIECE_CHARACTERS: Final = 1_000

#: How often an exception names another as its cause before the rest is left out.
_MOST_CAUSES: Final = 20

#: What Spark's own exception says of one in a Python worker ends with that one's traceback.
_TRACEBACK: Final = "Traceback (most recent call last):"

_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"]*)", line \d+')
_JAVA_FRAME: Final = re.compile(r"\s+at [\w.$/]+\(")

#: Directories of code that no author of a job has written; the rest of a traceback is hers, or is called by her code.
_OURS: Final = str(Path(__file__).parents[1])
_NOT_THE_JOBS: Final = re.compile(r"[/\\](pyspark|py4j|importlib)[/\\]|^<frozen importlib|pyspark\.zip[/\\]")


def kind_of(error: BaseException) -> str:
    """Return the name of the exception's type."""
    try:
        return clean(type(error).__name__, MESSAGE_CHARACTERS)
    except BaseException:  # noqa: BLE001 - a metaclass of the job's own
        return "Exception"


def text_of(error: BaseException, most: int = LOG_CHARACTERS) -> str:
    """Return what the exception says, at most so many characters of it; of one that fails to say it, that it does."""
    try:
        return clean(str(error), most)
    except BaseException as failure:  # noqa: BLE001 - the job's own __str__
        return f"(its text cannot be had: __str__ raised {kind_of(failure)})"


def first_line(error: BaseException, most: int = DETAIL_CHARACTERS) -> str:
    """Return the first line with text of what the exception says, else the name of its type."""
    lines = (line.strip() for line in text_of(error).splitlines())
    return next((line[:most] for line in lines if line), kind_of(error))


def told(error: BaseException) -> str:
    """Return the exception's type and first line, as the last line of a traceback has them."""
    line = first_line(error, MESSAGE_CHARACTERS)
    kind = kind_of(error)
    return kind if line == kind else f"{kind}: {line}"


def clean(text: str, most: int) -> str:
    """Return at most ``most`` characters of ``text``, each lone surrogate as its escape."""
    # Of a subclass of str nothing is called that it could have made its own.
    kept = str.__getitem__(text, slice(most))
    return str.encode(kept, "utf-8", "backslashreplace").decode()[:most]


def worker_traceback(error: BaseException) -> str:
    """Return the traceback of a Python worker that an exception of Spark's quotes; empty when it quotes none."""
    _, found, frames = text_of(error).partition(_TRACEBACK)
    return found + frames


def traceback_of(error: BaseException, most: int = TRACEBACK_CHARACTERS) -> str:
    """Return the exception's traceback with the frames of the job's code, and of what that calls.

    Frames of standfast, of Spark, and of Java are left out; what raised it within a Python worker of Spark is shown
    in place of what the driver did meanwhile.
    """
    try:
        is_sparks = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
        quoted = worker_traceback(error) if is_sparks else ""
        pieces = _quoted(quoted) if quoted else _formatted(error, _is_jobs)
        return _cut(pieces, most)
    except BaseException:  # noqa: BLE001 - whatever an exception of the job's own does when it is looked at
        return told(error)


def full_traceback(error: BaseException) -> str:
    """Return the exception's traceback with all frames, for a log."""
    try:
        return _cut(_formatted(error, lambda _: True), LOG_CHARACTERS)
    except BaseException:  # noqa: BLE001 - as above
        return told(error)


def _is_jobs(file: str) -> bool:
    return not file.startswith(_OURS) and not _NOT_THE_JOBS.search(file)


def _formatted(error: BaseException, is_shown: Callable[[str], bool]) -> Iterator[str]:
    """Yield the pieces of a traceback with the frames whose files are to be shown."""
    whole = TracebackException.from_exception(error)
    waiting, seen = [whole], 0
    while waiting and seen < _MOST_CAUSES:
        each, seen = waiting.pop(), seen + 1
        each.stack = StackSummary.from_list([frame for frame in each.stack if is_shown(frame.filename)])
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        # Of an exception group, from Python 3.11 on.
        waiting += getattr(each, "exceptions", None) or []
    yield from whole.format()


def _quoted(text: str) -> Iterator[str]:
    """Yield the lines of a traceback that is there as text only, without frames that are not the job's."""
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
    """Return the pieces as one text; of one that is too long the middle is left out: how it began and ended stays."""
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
