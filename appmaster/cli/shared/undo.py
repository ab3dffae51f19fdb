"""What a command has created so far, and how to remove it if the command fails."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final

from appmaster.cli.shared.foreign import translated
from appmaster.cli.shared.output import Progress

#: What ends a command as its caller gives it up: `timeout`, CI, a closed terminal.
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class EndedBySignal(KeyboardInterrupt):
    """A signal is to end the command, and is treated as Ctrl-C until the command line reports it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


class Undo:
    """Steps that undo a failed command, the last one first; a context manager around what may fail.

    A step is registered before the action that it undoes, because an interrupted action may have been completed. So
    every step has to skip what does not exist.

    SIGTERM and SIGHUP fail the command as Ctrl-C does, and do not stop the undoing; Ctrl-C stops it.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._steps: list[tuple[str, Callable[[], object]]] = []
        self._undone_by: type[BaseException] = BaseException
        self._replaced: list[signal.Signals] = []
        self._is_ending = False

    def on_failure(self, what: str, step: Callable[[], object]) -> None:
        """Have ``step`` called if the command fails; ``what`` it removes is named if it fails, too."""
        self._steps.append((what, step))

    def only_for(self, error: type[BaseException]) -> None:
        """From now on, undo only for ``error``: after any other error what was created may be in use."""
        self._undone_by = error

    def __enter__(self) -> Undo:
        if threading.current_thread() is threading.main_thread():
            for each in _ENDING_SIGNALS:
                # One that is ignored stays so (nohup), and one with a handler is another's.
                if signal.getsignal(each) is signal.SIG_DFL:
                    self._replaced.append(each)
                    signal.signal(each, self._terminate)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ending = error is not None
        try:
            if isinstance(error, self._undone_by):
                self._undo()
        finally:
            for each in self._replaced:
                signal.signal(each, signal.SIG_DFL)

    def _terminate(self, number: int, _: FrameType | None) -> None:
        # `timeout` sends its signal twice, and a cancelled CI job gets SIGINT first.
        if not self._is_ending:
            self._is_ending = True
            raise EndedBySignal(signal.Signals(number))

    def _undo(self) -> None:
        try:
            if self._steps:
                self._progress.say("it failed; removing what it has created")
            while self._steps:
                _, step = self._steps[-1]
                try:
                    step()
                except Exception as raised:
                    failure = translated(raised)
                    if failure is None:
                        raise
                    self._leave(str(failure))
                    return
                self._steps.pop()
        except KeyboardInterrupt:
            # The command's own error stays the one that it ends with.
            self._leave("interrupted")

    def _leave(self, why: str) -> None:
        """Print what stays: what was created before may be in use by what could not be removed."""
        stays = ", ".join(what for what, _ in reversed(self._steps))
        self._progress.say(f"not removed: {stays}: {why}")
