"""Tracks which revision of each job this process runs, and loads the code in the background.

Python loads a module once per process, and Spark's workers find modules through the process's environment. So the
first definition of a job that is loaded is final, and another revision needs a container of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from standby.errors import StandfastError, Transient, Unavailable
from standby.kernel.cancel_scope import CancelScope
from standby.shared.wire import JobDefinition
from standby.threads.worker import Worker

_log: Final = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS: Final = 2.0

#: Makes a job's modules importable; blocks. Raises `Transient`, and other `StandfastError` if a retry cannot help.
LoadCode = Callable[[JobDefinition], None]

#: Called from any thread when loading a job's code has ended, with its error.
PostLoaded = Callable[[JobDefinition, "StandfastError | None"], None]


def load_nothing(definition: JobDefinition) -> None:
    """Do nothing: the modules are importable already."""


class LoadedCode:
    """Used by the conductor; loads on a thread of its own."""

    def __init__(self, load: LoadCode, post: PostLoaded) -> None:
        self._load = load
        self._post = post
        self._worker = Worker("code").start()
        self._run = CancelScope()
        self._loaded: Mapping[str, JobDefinition] = {}
        self._loading: set[str] = set()
        self._refused: set[tuple[str, str, int, str]] = set()
        #: Jobs whose present run has other code. Its revision may have the same number, by which the leader judges.
        self._of_other_runs: frozenset[str] = frozenset()

    @property
    def revisions(self) -> Mapping[str, int]:
        """Job → revision that this process runs; 0: it has the code of another run than it is to run. Thread-safe."""
        return {
            name: 0 if name in self._of_other_runs else each.revision for name, each in self._loaded.items()
        }

    def may_run(self, definition: JobDefinition) -> bool:
        """Return whether this process can run ``definition``; a refusal is logged once.

        Another run of the job may have any revision, provided that its code is the code that is loaded.
        """
        loaded = self._loaded.get(definition.name)
        if loaded is None:
            return True
        if loaded.run == definition.run:
            fits = loaded.revision == definition.revision
        else:
            fits = loaded.code == definition.code
        this = (definition.name, definition.run, definition.revision, definition.code)
        if not fits and loaded.run != definition.run:
            self._of_other_runs |= {definition.name}
        elif fits:
            self._of_other_runs -= {definition.name}
        if not fits and this not in self._refused:
            self._refused.add(this)
            _log.warning(
                "job %s: revision %d of run %s is ignored: this process has loaded revision %d of run %s, and "
                "cannot load another one's code",
                *(definition.name, definition.revision, definition.run, loaded.revision, loaded.run),
            )
        return fits

    def is_loaded(self, definition: JobDefinition) -> bool:
        """Return whether the code of ``definition``, which `may_run`, is loaded; start loading it if not."""
        loaded = self._loaded.get(definition.name)
        if loaded is not None:
            self._loaded = {**self._loaded, definition.name: definition}
            return True
        if definition.name not in self._loading:
            self._loading.add(definition.name)
            self._worker.put(partial(self._fetch, definition))
        return False

    def ended(self, definition: JobDefinition, *, is_loaded: bool) -> None:
        """Record the result of loading."""
        self._loading.discard(definition.name)
        if is_loaded:
            self._loaded = {**self._loaded, definition.name: definition}

    def close(self) -> None:
        """End the thread, and a pending retry; does not wait."""
        self._run.cancel()
        self._worker.close()

    def _fetch(self, definition: JobDefinition) -> None:
        pause = 0.1
        while not self._run.is_cancelled():
            try:
                self._load(definition)
            except Transient as error:
                _log.warning("job %s: its code cannot be loaded now: %s", definition.name, error)
                self._run.pause(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            except StandfastError as error:
                self._post(definition, error)
                return
            except Exception as error:  # noqa: BLE001 - this thread's outermost loop
                # A bug must not leave a job that silently never starts.
                _log.exception("job %s: loading its code", definition.name)
                self._post(definition, Unavailable(f"loading its code: {type(error).__name__}: {error}"))
                return
            else:
                self._post(definition, None)
                return
