"""Makes small changes to the pure parts, and reports those that no test detects: ``python -m tests.mutants``.

cosmic-ray makes the changes, one at a time, in a copy of the tree below ``build/mutants``; the checkout is not written
to. A session stores the results of each module, so an interrupted run continues there the next time. A module is
started again when it or a test of its area has changed. Only the tests that execute a line of the module are run.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coverage import CoverageData

from tests.equivalent_mutants import EQUIVALENT

ROOT: Final = Path(__file__).parents[1]
HOME: Final = ROOT / "build" / "mutants"
TREE: Final = HOME / "tree"
PACKAGES: Final = HOME / "packages"

#: The modules to change, and the tests that may cover them. If two areas have a module, the later one
#: applies.
AREAS: Final[Mapping[str, tuple[str, ...]]] = {
    "standby/replica": ("tests/unit/standby/replica", "tests/property/test_lifecycle.py"),
    "standby/replica/store": (
        "tests/unit/standby/replica",
        "tests/unit/standby/state",
        "tests/property/test_state.py",
    ),
    "standby/control": ("tests/unit/standby/control", "tests/property/test_control.py"),
    "standby/kernel/replica/settling.py": (
        "tests/unit/standby/kernel/active",
        "tests/unit/standby/kernel/test_replicas.py",
    ),
    "appmaster/planning": (
        "tests/unit/appmaster/planning",
        "tests/scenarios",
        "tests/property/test_grouping.py",
        "tests/property/test_planner.py",
    ),
}

#: The changes that are made. Of the changes of an operator, the nearest and the opposite one are enough:
#: tests that detect them detect the others.
KINDS: Final = re.compile(
    r"core/(?:ReplaceComparisonOperator_(?:Eq_NotEq|NotEq_Eq|Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt"
    r"|Is_IsNot|IsNot_Is|In_NotIn|NotIn_In)"
    r"|ReplaceBinaryOperator_(?:Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_FloorDiv|Pow_Mul|BitOr_BitAnd|BitAnd_BitOr"
    r"|BitXor_BitAnd|LShift_RShift|RShift_LShift)"
    r"|ReplaceUnaryOperator_(?:Delete_Not|Delete_USub|USub_UAdd)"
    r"|AddNot|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ExceptionReplacer|NumberReplacer|ZeroIterationForLoop)"
)

#: If the tests take this many times as long with a change as without, the change causes an endless loop.
_TOO_LONG: Final = 10
_PYTEST: Final = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")

Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change, and the result of the tests."""

    module: str
    line: int
    before: str
    after: str
    is_killed: bool

    @property
    def key(self) -> tuple[str, str, str]:
        """Its key in `EQUIVALENT`."""
        return self.module, self.before, self.after


@dataclass(frozen=True, slots=True)
class Score:
    """The results of the changes of a module."""

    module: str
    killed: int
    survivors: tuple[Mutant, ...]
    equivalent: int
    pending: int

    @property
    def percent(self) -> str:
        """How many of the detectable changes were detected; a dash if none was made yet."""
        judged = self.killed + len(self.survivors)
        return f"{100 * self.killed / judged:.0f}%" if judged else "-"


def score(
    module: str, found: Iterable[Mutant], pending: int, equivalent: Iterable[tuple[str, str, str]]
) -> Score:
    """Return the score of a module; an equivalent change counts neither way."""
    known = frozenset(equivalent)
    judged = list(found)
    survivors = [each for each in judged if not each.is_killed]
    return Score(
        module,
        sum(each.is_killed for each in judged),
        tuple(each for each in survivors if each.key not in known),
        sum(each.key in known for each in survivors),
        pending,
    )


def told(scores: Sequence[Score]) -> str:
    """Return the survivors, then a line for each module."""
    lines = []
    for each in scores:
        for mutant in each.survivors:
            lines += [f"{mutant.module}:{mutant.line}", f"  - {mutant.before}", f"  + {mutant.after}"]
    lines.append(f"{'module':48} score  killed  survived  equivalent  not run")
    lines += [
        f"{each.module:48} {each.percent:>5} {each.killed:7} {len(each.survivors):9} {each.equivalent:11} "
        f"{each.pending:8}"
        for each in scores
    ]
    return "\n".join(lines)


def left_over(
    scores: Iterable[Score], found: Iterable[Mutant], equivalent: Iterable[tuple[str, str, str]]
) -> list[str]:
    """Return a line for each equivalent change that did not survive in a module that was run to its end."""
    whole = {each.module for each in scores if not each.pending and each.killed}
    survivors = {each.key for each in found if not each.is_killed}
    return [
        f"tests/equivalent_mutants.py: no such survivor: {each}"
        for each in equivalent
        if each[0] in whole and each not in survivors
    ]


def of_diff(module: str, diff: str, *, is_killed: bool) -> Mutant:
    """Return a mutant from its difference."""
    lines = diff.splitlines()
    (begin,) = (re.findall(r"^@@ -(\d+)", diff, re.MULTILINE) or ["0"])[:1]
    body = lines[next((at + 1 for at, line in enumerate(lines) if line.startswith("@@")), 0) :]
    before = [line[1:].strip() for line in body if line.startswith("-")]
    after = [line[1:].strip() for line in body if line.startswith("+")]
    unchanged = next((at for at, line in enumerate(body) if line.startswith(("-", "+"))), 0)
    return Mutant(module, int(begin) + unchanged, " ".join(before), " ".join(after), is_killed)


def never_noticed(source: str) -> list[tuple[Position, Position]]:
    """Return the ranges where a change is meaningless: in annotations, aliases of types, decorators, and `strict`."""
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for each in ast.walk(ast.parse(source))
        for node in _silent(each)
    ]


def _silent(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
        if isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias" and node.value:
            yield node.value
    elif (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, ast.BitOr)
    ):
        # An alias of several types.
        if all(isinstance(each, ast.Name) and each.id[:1].isupper() for each in node.targets):
            yield node.value
    elif isinstance(node, ast.keyword) and node.arg == "strict":
        yield node.value
    elif isinstance(node, ast.arg) and node.annotation:
        yield node.annotation
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.decorator_list
        if isinstance(node, ast.FunctionDef) and node.returns:
            yield node.returns


def modules(chosen: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the modules below the chosen paths, or of all areas, and the tests of each one's area."""
    found = {
        str(path.relative_to(ROOT)): tests
        for area, tests in AREAS.items()
        for path in sorted((ROOT / area).rglob("*.py") if (ROOT / area).is_dir() else [ROOT / area])
        if path.name != "__init__.py"
    }
    wanted = [each.rstrip("/") for each in chosen]
    unknown = [each for each in wanted if not any(_is_below(module, each) for module in found)]
    if unknown:
        raise SystemExit(f"no module of {', '.join(AREAS)}: {', '.join(unknown)}")
    return {
        module: tests
        for module, tests in found.items()
        if not wanted or any(_is_below(module, each) for each in wanted)
    }


def _is_below(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}/")


def copy_tree() -> None:
    """Copy all files that git tracks or could track to a place where they may be changed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    shutil.rmtree(TREE, ignore_errors=True)
    for each in filter(None, listed.split("\0")):
        if (ROOT / each).is_file():
            (TREE / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / each, TREE / each)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(TREE), "STANDFAST_HYPOTHESIS": "gate"}


def tests_of(area: tuple[str, ...], module: str) -> list[str]:
    """Return the tests of an area that run a line of a module, unit tests first; all of them when none does."""
    data = TREE / "build" / f"coverage-{hashlib.sha256(repr(area).encode()).hexdigest()}"
    if not data.exists():
        data.parent.mkdir(exist_ok=True)
        settings = data.with_suffix(".ini")
        settings.write_text(f"[run]\ndata_file = {data}\n", encoding="utf-8")
        sources = sorted({f"--cov={each.split('/')[0]}" for each, tests in AREAS.items() if tests == area})
        options = (*sources, "--cov-context=test", "--cov-report=", f"--cov-config={settings}")
        _pytest(*area, *options)
    covered = CoverageData(str(data))
    covered.read()
    contexts = covered.contexts_by_lineno(str(TREE / module)).values()
    tests = {each.partition("|")[0] for line in contexts for each in line if each}
    return sorted(tests, key=lambda each: (not each.startswith("tests/unit"), each)) or list(area)


def _pytest(*arguments: str) -> None:
    """Run the tests without a change, which have to pass; end the program if they do not."""
    ended = subprocess.run(
        [*_PYTEST, *arguments], cwd=TREE, env=_environment(), check=False, stdout=subprocess.PIPE, text=True
    )
    if ended.returncode:
        raise SystemExit(f"{ended.stdout}\nnothing is changed yet, and the tests fail")


def run(module: str, area: tuple[str, ...]) -> None:
    """Make all changes of a module that were not made yet."""
    session = _session(module)
    settings = session.with_suffix(".toml")
    begun = session.with_suffix(".key")
    key = _key(module, area)
    if not begun.exists() or begun.read_text(encoding="utf-8") != key:
        begun.unlink(missing_ok=True)
        session.unlink(missing_ok=True)
        # Hundreds of tests are too long for a command line.
        tests = session.with_suffix(".tests")
        tests.write_text("\n".join(tests_of(area, module)), encoding="utf-8")
        begin = time.monotonic()
        _pytest(f"@{tests}")
        timeout = _TOO_LONG * (time.monotonic() - begin)
        settings.write_text(
            f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = {timeout}\nexcluded-modules = []\n'
            f"test-command = {json.dumps(shlex.join((*_PYTEST, f'@{tests}')))}\n\n"
            '[cosmic-ray.distributor]\nname = "local"\n',
            encoding="utf-8",
        )
        _cosmic_ray("init", str(settings), str(session))
        skip(session, (ROOT / module).read_text(encoding="utf-8"))
        begun.write_text(key, encoding="utf-8")
    _cosmic_ray("exec", str(settings), str(session))


def _session(module: str) -> Path:
    return HOME / f"{module.replace('/', '.').removesuffix('.py')}.sqlite"


def _key(module: str, area: tuple[str, ...]) -> str:
    """Return what the result depends on: the module, and the tests of its area."""
    files = [
        path
        for each in area
        for path in ([ROOT / each] if each.endswith(".py") else (ROOT / each).rglob("*.py"))
    ]
    files.append(ROOT / module)
    return hashlib.sha256(b"\0".join(each.read_bytes() for each in sorted(files))).hexdigest()


def _cosmic_ray(*arguments: str) -> None:
    environment = {**_environment(), "PYTHONPATH": f"{TREE}{os.pathsep}{PACKAGES}"}
    subprocess.run(
        [sys.executable, "-m", "cosmic_ray.cli", *arguments], cwd=TREE, env=environment, check=True
    )


def skip(session: Path, source: str) -> None:
    """Omit changes of other kinds, and those that no test could detect."""
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    silent = never_noticed(source)
    with use_db(str(session), WorkDB.Mode.open) as database:
        for item in list(database.pending_work_items):
            (change,) = item.mutations
            at = tuple(change.start_pos)
            if not KINDS.fullmatch(change.operator_name) or any(first <= at < last for first, last in silent):
                database.set_result(item.job_id, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))


def read(module: str) -> tuple[list[Mutant], int]:
    """Return the results of a module, and how many changes were not made yet."""
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import TestOutcome, WorkerOutcome

    session = _session(module)
    if not session.exists():
        return [], 0
    found = {}
    with use_db(str(session), WorkDB.Mode.open) as database:
        for _, result in database.completed_work_items:
            if result.worker_outcome == WorkerOutcome.NORMAL:
                is_killed = result.test_outcome != TestOutcome.SURVIVED
                mutant = of_diff(module, result.diff, is_killed=is_killed)
                found[mutant.line, mutant.after] = mutant
        pending = len(list(database.pending_work_items))
    return [found[each] for each in sorted(found)], pending


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the changes not made yet, print the results; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", help=f"modules or folders of {', '.join(AREAS)}")
    parser.add_argument("--report", action="store_true", help="only tell what is found already")
    parsed = parser.parse_args(arguments)
    sys.path.append(str(PACKAGES))
    chosen = modules(parsed.paths)
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        if not parsed.report:
            copy_tree()
            for module, area in chosen.items():
                print(f"{module} ...", flush=True)
                run(module, area)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", flush=True)
    results = {module: read(module) for module in chosen}
    scores = [score(module, found, pending, EQUIVALENT) for module, (found, pending) in results.items()]
    needless = left_over(scores, (each for found, _ in results.values() for each in found), EQUIVALENT)
    print("\n".join((told(scores), *needless)))
    return 1 if needless else 0


if __name__ == "__main__":
    sys.exit(main())
