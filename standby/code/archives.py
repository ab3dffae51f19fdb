"""Archives among a job's modules: `.zip` and `.whl` files, out of which Python imports without unpacking them."""

from __future__ import annotations

import inspect
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

from standby.errors import BadConfiguration

_SUFFIXES: Final = frozenset({".zip", ".whl"})

_NATIVE: Final = frozenset({".so", ".pyd"})


def import_paths(directory: Path) -> list[str]:
    """Return what Python's import path needs for the job's modules in ``directory``: itself, and its archives."""
    found = directory.iterdir() if directory.is_dir() else ()
    return [str(directory), *sorted(str(each) for each in found if is_archive(each))]


def is_archive(path: Path) -> bool:
    """Return whether modules in the file at ``path`` can be imported."""
    return path.suffix in _SUFFIXES and path.is_file()


def names_in(archive: Path) -> set[str]:
    """Return the names of the modules and packages in an archive, without those in packages.

    Raises `BadConfiguration` for a file that is no archive, or has modules that Python does not import out of one.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            files = [PurePosixPath(each) for each in opened.namelist()]
    except (OSError, zipfile.BadZipFile) as error:
        raise BadConfiguration(f"job.modules: {archive} cannot be read as an archive: {error}") from error
    for each in files:
        if each.suffix in _NATIVE:
            raise BadConfiguration(
                f"job.modules: {archive} contains {each}, and Python imports no native module out of an archive; "
                "install it into the job's Python environment (job.python, job.python.archive)"
            )
    packages = {each.parts[0] for each in files if len(each.parts) == 2 and each.name == "__init__.py"}
    modules = {inspect.getmodulename(each.name) for each in files if len(each.parts) == 1}
    return packages | {each for each in modules if each}
