"""The house of docs/architecture.md: nothing imports in a circle, no folder or module is too large to take in.

And one name means one thing: a search for a class by its name finds that class alone.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("appmaster", "embedded", "locality", "standby")
SOURCES = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8")
    for package in PRODUCT
    for path in sorted((ROOT / package).rglob("*.py"))
}
MODULES = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}
WITH_SUB_FOLDERS = {above for path in SOURCES for above in path.parent.parents}

MOST_MODULES = 12
MOST_LINES = 600

#: Public names that two modules define → why that is one thing.
DEFINED_TWICE: Final[Mapping[str, str]] = {
    "WriteLog": "control and feeding each owe it as an action of their own, and neither knows the other",
}


def itself(path: Path) -> Path:
    return path


def folder(path: Path) -> Path:
    """Return a module's folder. Beside sub-folders each counts by itself: it may be above some and below others."""
    return path if path.parent in WITH_SUB_FOLDERS else path.parent


def package_folder(path: Path) -> Path:
    """Return a module's folder directly in its package, with all that is below it; a module beside these is itself."""
    return Path(*path.parts[:2])


def imported(source: str) -> Iterator[Path]:
    """Yield what a module imports of the product; what is imported for types, or inside of a function, too."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None, "an import names the whole module"
            full = [f"{node.module}.{each.name}" for each in node.names]
            names = [each if each in MODULES else node.module for each in full]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        yield from (MODULES[each] for each in names if each in MODULES)


@pytest.mark.parametrize("place", [itself, folder, package_folder])
def test_nothing_imports_in_a_circle(place: Callable[[Path], Path]) -> None:
    needs: dict[Path, dict[Path, str]] = defaultdict(dict)
    for path, source in SOURCES.items():
        for other in imported(source):
            if place(other) != place(path):
                needs[place(path)].setdefault(place(other), f"{path} imports {other}")
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = [needs[above][below] for below, above in itertools.pairwise(error.args[1])]
        pytest.fail(
            "\n  ".join(
                [
                    "a circle: move what several of these need below them, or have it given by the caller",
                    *circle,
                ]
            ),
            pytrace=False,
        )


def test_no_folder_has_more_modules_than_can_be_looked_through() -> None:
    counts = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    crowded = [f"{each} has {count} modules" for each, count in counts.items() if count > MOST_MODULES]
    assert not crowded, f"at most {MOST_MODULES}: give those that belong together a folder of their own"


def test_no_module_is_longer_than_can_be_read_at_once() -> None:
    counts = {path: len(source.splitlines()) for path, source in SOURCES.items()}
    long = [f"{each} has {count} lines" for each, count in counts.items() if count > MOST_LINES]
    assert not long, f"at most {MOST_LINES}: part it by what it is about"


#: Where tests run programs in processes of their own that are written as strings, which no type checker reads.
FOLDERS = ("tests", "benchmarks", "demo", "docs", "examples", *PRODUCT)
IMPORT = re.compile(
    r"(?:^|;)[ \t]*(?:from[ \t]+(?P<module>[\w.]+)[ \t]+import[ \t]+(?P<names>\w[\w, \t]*)"
    r"|import[ \t]+(?P<whole>[\w.]+))",
    re.MULTILINE,
)


def imported_in_strings(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, module and name of what a module's strings import of this repository; no name: the module alone."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        for found in IMPORT.finditer(node.value):
            module = found["module"] or found["whole"]
            if module.partition(".")[0] in FOLDERS:
                names = [each.split()[0] for each in (found["names"] or "").split(",") if each.split()]
                yield from ((node.lineno, module, name) for name in names or [""])


def exists(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    return not name or hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}") is not None


def test_programs_in_strings_import_what_exists() -> None:
    imports = [
        (f"{path.relative_to(ROOT)}:{line}", module, name)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
        for line, module, name in imported_in_strings(path.read_text(encoding="utf-8"))
    ]
    assert imports, "there are such programs"
    missing = [
        f"{place}: {module} has no {name}" for place, module, name in imports if not exists(module, name)
    ]
    assert not missing


def defined(source: str) -> Iterator[str]:
    """Yield the public classes, aliases of types and type variables at the top of a module."""
    for node in ast.parse(source).body:
        name = ""
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Call | ast.Subscript):
            name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
        # Constants and type variables of one letter are upper case.
        if name[:1].isupper() and not name.isupper():
            yield name


def test_public_classes_have_names_of_their_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, source in SOURCES.items():
        for name in defined(source):
            places[name].append(str(path))
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    shared = [f"{name}: {', '.join(paths)}" for name, paths in twice.items() if name not in DEFINED_TWICE]
    assert not shared, "say in the name whose it is: `ControlPolicy`, `HttpRequest`"
    assert twice.keys() == DEFINED_TWICE.keys(), "what is defined once needs no exception"
