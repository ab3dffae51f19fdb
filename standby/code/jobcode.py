"""Makes a job's modules importable in a container: those of its bundle.

A job of an earlier release may have none: its application ships its modules into `CODE_DIRECTORY`. A bundle replaces
what was there: a module that the new revision no longer has must not be found any more, neither by this process nor by
Spark's Python workers, which use `PYTHONPATH`.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from standby.cluster import CODE_DIRECTORY
from standby.code import bundles
from standby.code.archives import import_paths
from standby.errors import Unavailable
from standby.shared.wire import JobDefinition

_LOG: Final = logging.getLogger(__name__)

#: Length of a shortened digest, used in directory names.
_SHORT: Final = 16


class JobCode:
    """The directories with the modules of this process's jobs, first on Python's import path.

    `load` is called from one thread.
    """

    def __init__(self, directory: Path, read_code: Callable[[str], bytes]) -> None:
        """``directory`` is the container's; ``read_code`` returns a bundle's bytes by its digest.

        Until a bundle is loaded, modules in `CODE_DIRECTORY` are found.
        """
        self._directory = directory
        self._read_code = read_code
        self._inherited = os.environ.get("PYTHONPATH", "")
        self._shown: list[str] = []
        self._used: list[Path] = []
        self._show([directory / CODE_DIRECTORY])

    def directory_of(self, job: JobDefinition) -> Path:
        """Return the directory of the job's modules after loading."""
        return self._directory / (f"code-{job.code[:_SHORT]}" if job.code else CODE_DIRECTORY)

    def load(self, job: JobDefinition) -> None:
        """Make the job's modules importable here and in child processes; blocks.

        Raises like ``read_code``, `CorruptState` for an invalid bundle, and `Unavailable` when it cannot be written
        to disk.
        """
        target = self.directory_of(job)
        if job.code:
            self._unpack(job, target)
        # Directories of other jobs in this process stay, after the newest one.
        self._used = [target, *(each for each in self._used if each != target)]
        self._show(self._used)

    def _unpack(self, job: JobDefinition, target: Path) -> None:
        data = self._read_code(job.code)
        unfinished = target.with_name(f".{target.name}")
        try:
            for each in (unfinished, target):
                shutil.rmtree(each, ignore_errors=True)
            bundles.unpack(job.code, data, unfinished)
            unfinished.rename(target)
        except OSError as error:
            raise Unavailable(
                f"the job's code cannot be unpacked in {target.parent}: {error.strerror}"
            ) from error
        _LOG.info("job %s: revision %d runs from bundle %s", job.name, job.revision, job.code)

    def _show(self, directories: list[Path]) -> None:
        paths = [path for each in directories for path in import_paths(each)]
        sys.path[:] = [*paths, *(each for each in sys.path if each not in self._shown)]
        self._shown = paths
        behind = [self._inherited] if self._inherited else []
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *behind])
        importlib.invalidate_caches()
