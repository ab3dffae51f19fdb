"""Names that a job's module must not have, because another module of that name is needed. Checks names only.

A job's modules come first on a container's import path. A module with the name of a package of standfast, of a
library or of Python would be imported in its place; or never, if the other one is loaded already.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from standby.code.archives import is_archive, names_in
from standby.errors import BadConfiguration

#: The packages that standfast installs.
OWN: Final = frozenset({"appmaster", "embedded", "locality", "standby"})

#: The import names of the locked libraries.
NEEDED: Final = frozenset(
    {
        "_cffi_backend",
        "_yaml",
        "cffi",
        "confluent_kafka",
        "cryptography",
        "dateutil",
        "google",
        "grpc",
        "kazoo",
        "markdown_it",
        "mdurl",
        "msgspec",
        "numpy",
        "pandas",
        "prometheus_client",
        "psutil",
        "py4j",
        "pyarrow",
        "pycparser",
        "pygments",
        "pyspark",
        "pytz",
        "rich",
        "rocksdict",
        "six",
        "skein",
        "typing_extensions",
        "tzdata",
        "yaml",
    }
)


def check_names(directory: Path, modules: Sequence[str]) -> None:
    """Raise `BadConfiguration` with each of ``modules`` whose name is not allowed, and the reason.

    ``modules`` are paths relative to ``directory``, as in `job.modules`.
    """
    wrong = list(_wrong(directory, modules))
    if wrong:
        raise BadConfiguration("\n".join(wrong))


def shipped_name(directory: Path, module: str) -> str:
    """Return the name under which containers get ``module``, a path relative to ``directory``.

    A symbolic link has its own name, whatever the name of its target.
    """
    path = directory / module
    return path.name if path.name not in ("", "..") else Path(os.path.realpath(path)).name


def _wrong(directory: Path, modules: Sequence[str]) -> Iterator[str]:
    for each in modules:
        if is_archive(directory / each):
            yield from _wrong_in(each, names_in(directory / each))
            continue
        shipped = shipped_name(directory, each)
        # A directory without __init__.py has lower priority than any other module of its name.
        is_package = (directory / each / "__init__.py").is_file()
        name = shipped if is_package else inspect.getmodulename(shipped)
        whose = _whose(name or "")
        if whose:
            yield f"job.modules: {each} has the name of {whose}, and would be imported in its place; rename it"


def _wrong_in(archive: str, names: Iterable[str]) -> Iterator[str]:
    for each in sorted(names):
        if whose := _whose(each):
            yield f"job.modules: {archive}: {each} in it has the name of {whose}, and would be imported in its place"


def _whose(name: str) -> str:
    if name in OWN:
        return f"standfast's own package {name}"
    if name in NEEDED:
        return f"the package {name}, which standfast needs"
    return f"Python's own module {name}" if name in sys.stdlib_module_names else ""
