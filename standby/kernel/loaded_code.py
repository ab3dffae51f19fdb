"""Tracks which revision of each job this process runs, and loads the code in the background.

Python loads a module once per process, and Spark's workers find modules through the process's environment. So the
first definition of a job that is loaded is final, and another revision needs a container of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Final

from standby.errors import StandfastError, Transient, Unavailable
from standby.replica.failing import doubled_seconds
from standby.shared.wire import JobDefinition
from standby.threads.worker import Worker

_log: Final = logging.getLogger(__name__)

#: Pause before another attempt to load a definition's code: after the first failure, and the maximum.
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0

#: Makes a job's modules importable; blocks. Raises `Transient`, and other `StandfastError` if a retry cannot help.
LoadCode = Callable[[JobDefinition], None]

#: Called from any thread when an attempt to load a job's code has ended, with its error.
PostLoaded = Callable[[JobDefinition, "StandfastError | None"], None]


def load_nothing(definition: JobDefinition) -> None:
    """Do nothing: the modules are importable already."""


#: What a definition loads. Others of the same revision may differ in the job's configuration.
_Key = tuple[str, str, int, str]


def key_of(definition: JobDefinition) -> _Key:
    """Return what identifies the code of a definition."""
    return definition.name, definition.run, definition.revision, definition.code


class LoadedCode:
    """Used by the conductor; loads on a thread of its own.

    An attempt that may succeed later is made again when the conductor asks again, so code that cannot be delivered
    holds up neither other jobs nor later revisions, and is not loaded any more once it is not wanted.
    """

    def __init__(self, load: LoadCode, post: PostLoaded, monotonic: Callable[[], float]) -> None:
        self._load = load
        self._post = post
        self._monotonic = monotonic
        self._worker = Worker("code").start()
        self._loaded: Mapping[str, JobDefinition] = {}
        #: Jobs with an attempt that has not ended: at most one for each, because the first to succeed is final.
        self._loading: set[str] = set()
        #: Job → what was asked for last; read by the worker as well.
        self._asked: dict[str, _Key] = {}
        #: Job → how many attempts at that have failed, and when the next is due.
        self._failed: dict[str, tuple[int, float]] = {}
        self._refused: set[_Key] = set()
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
        this = key_of(definition)
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
        name = definition.name
        if self._asked.get(name) != key_of(definition):
            self._asked[name] = key_of(definition)
            self._failed.pop(name, None)
        _, due_at = self._failed.get(name, (0, 0.0))
        if name not in self._loading and self._monotonic() >= due_at:
            self._loading.add(name)
            self._worker.put(partial(self._fetch, definition))
        return False

    def keep(self, names: Container[str]) -> None:
        """Let no attempt begin for jobs other than ``names``."""
        self._asked = {name: key for name, key in self._asked.items() if name in names}

    def ended(self, definition: JobDefinition, error: StandfastError | None) -> None:
        """Record the result of an attempt."""
        name = definition.name
        self._loading.discard(name)
        if error is None:
            self._loaded = {**self._loaded, name: definition}
        elif self._asked.get(name) == key_of(definition):
            failures = self._failed.get(name, (0, 0.0))[0] + 1
            pause = doubled_seconds(failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            self._failed[name] = failures, self._monotonic() + pause

    def close(self) -> None:
        """End the thread after the attempts that wait; does not wait."""
        self._worker.close()

    def _fetch(self, definition: JobDefinition) -> None:
        name = definition.name
        if self._asked.get(name) != key_of(definition):
            self._post(definition, Transient("it is not asked for any more"))
            return
        error: StandfastError | None = None
        try:
            self._load(definition)
        except Transient as failure:
            _log.warning("job %s: its code cannot be loaded now: %s", name, failure)
            error = failure
        except StandfastError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - this thread's outermost loop
            # A bug must not leave a job that silently never starts.
            _log.exception("job %s: loading its code", name)
            error = Unavailable(f"loading its code: {type(failure).__name__}: {failure}")
        self._post(definition, error)
