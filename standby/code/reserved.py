"""Names that no module of a job can have, because another module of that name is needed. Looks at files' names alone.

A job's modules come first on a container's import path, so one that is called like a package of standfast, of a library
or of Python would be imported in its place by everybody there; or never, where the other one is loaded already.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from standby.errors import BadConfiguration

#: The packages that standfast installs.
OWN: Final = frozenset({"appmaster", "embedded", "locality", "standby"})

#: What the locked libraries install, by the names under which it is imported.
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
    """Raise `BadConfiguration` naming each of ``modules`` that cannot be called so, and why.

    ``modules`` are paths relative to ``directory``, as `job.modules` has them.
    """
    wrong = list(_wrong(directory, modules))
    if wrong:
        raise BadConfiguration("\n".join(wrong))


def _wrong(directory: Path, modules: Sequence[str]) -> Iterator[str]:
    for each in modules:
        path = directory / each
        # A directory that does not say that it is a package gives way to any other module of its name.
        is_package = (path / "__init__.py").is_file()
        name = path.name if is_package else inspect.getmodulename(path.name)
        whose = _whose(name or "")
        if whose:
            yield f"job.modules: {each} is called like {whose}, and would be imported in its place; rename it"


def _whose(name: str) -> str:
    if name in OWN:
        return f"standfast's own package {name}"
    if name in NEEDED:
        return f"the package {name}, which standfast needs"
    return f"Python's own module {name}" if name in sys.stdlib_module_names else ""
