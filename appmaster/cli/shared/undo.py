"""What a command has created so far, and how to remove it if the command fails."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from appmaster.cli.shared.foreign import translated
from appmaster.cli.shared.output import Progress


class Undo:
    """Steps that undo a failed command, the last one first; a context manager around what may fail.

    A step is registered before the action that it undoes, because an interrupted action may have been completed. So
    every step has to skip what does not exist.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._steps: list[tuple[str, Callable[[], object]]] = []
        self._undone_by: type[BaseException] = BaseException

    def on_failure(self, what: str, step: Callable[[], object]) -> None:
        """Have ``step`` called if the command fails; ``what`` it removes is named if it fails, too."""
        self._steps.append((what, step))

    def only_for(self, error: type[BaseException]) -> None:
        """From now on, undo only for ``error``: after any other error what was created may be in use."""
        self._undone_by = error

    def __enter__(self) -> Undo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not isinstance(error, self._undone_by):
            return
        if self._steps:
            self._progress.say("it failed; removing what it has created")
        while self._steps:
            what, step = self._steps.pop()
            try:
                step()
            except Exception as raised:
                failure = translated(raised)
                if failure is None:
                    raise
                # What was created before may be in use by what could not be removed.
                stays = ", ".join([what, *(each for each, _ in reversed(self._steps))])
                self._progress.say(f"not removed: {stays}: {failure}")
                return
