"""Makes small changes to the pure parts, and reports those that no test detects: ``python -m tests.mutants``.

cosmic-ray finds the changes, and tests/mutant_runs.py runs the tests with each of them, in a copy of the tree below
``build/mutants``; the checkout is not written to. Each result is stored, so an interrupted run continues there the next
time. A change is made again when its module has changed, or the test that detected it; a survivor, when any test of its
area has. Only the tests that execute the changed statement are run.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.equivalent_mutants import EQUIVALENT

ROOT: Final = Path(__file__).parents[1]
HOME: Final = ROOT / "build" / "mutants"
TREE: Final = HOME / "tree"
PACKAGES: Final = HOME / "packages"

_KERNEL: Final = ("tests/unit/standby/kernel/active", "tests/unit/standby/kernel/test_replicas.py")

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
    "standby/replica/accepted.py": (*_KERNEL, "tests/unit/standby/replica/test_accepted.py"),
    "standby/replica/identity.py": (*_KERNEL, "tests/unit/standby/replica/test_identity.py"),
    "standby/kernel/replica/settling.py": (*_KERNEL, "tests/unit/standby/kernel/replica/test_settling.py"),
    "appmaster/planning": (
        "tests/unit/appmaster/planning",
        "tests/scenarios",
        "tests/property/test_grouping.py",
        "tests/property/test_planner.py",
    ),
    "appmaster/planning/invariants.py": ("tests/unit/appmaster/planning/test_invariants.py",),
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


def status(scores: Iterable[Score], needless: Sequence[str]) -> int:
    """Return the exit status: 1 if a survivor is not judged, or an equivalent change is listed in vain."""
    return int(bool(needless) or any(each.survivors for each in scores))


def change(source: str, mutated: str) -> dict[str, Any]:
    """Return the lines that differ, as JSON: the first, the last, and what replaces them."""
    before, after = source.splitlines(), mutated.splitlines()
    begin = _same(before, after)
    end = _same(before[begin:][::-1], after[begin:][::-1])
    return {"begin": begin, "end": len(before) - end, "lines": after[begin : len(after) - end]}


def _same(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many lines are the same, from the first on."""
    pairs = itertools.zip_longest(before, after)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def statement(tree: ast.Module, line: int) -> range:
    """Return the lines of the innermost statement at a line; of a block, the lines of its head."""
    found = range(line, line + 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            end = max(node.lineno + 1, body[0].lineno) if body else (node.end_lineno or 0) + 1
            found = range(node.lineno, end) if line < end else found
    return found


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
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Subscript):
        if all(isinstance(each, ast.Name) and _is_of_a_type(each.id) for each in node.targets):
            yield node.value
    elif isinstance(node, ast.keyword) and node.arg == "strict":
        yield node.value
    elif isinstance(node, ast.arg) and node.annotation:
        yield node.annotation
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.decorator_list
        if isinstance(node, ast.FunctionDef) and node.returns:
            yield node.returns


def _is_of_a_type(name: str) -> bool:
    """Return whether an assigned name is that of a type: a constant is all in capitals."""
    return name[:1].isupper() and not name.isupper()


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


def with_tests(chosen: Mapping[str, tuple[str, ...]], tests: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the modules with these tests in place of those of their areas, if there are any."""
    if missing := [each for each in tests if not (ROOT / each).exists()]:
        raise SystemExit(f"no such tests: {', '.join(missing)}")
    return {module: tuple(tests) or every for module, every in chosen.items()}


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


def planned(module: str) -> dict[str, Any]:
    """Return all changes of a module, without results; with the results found before if the module is the same."""
    source = (ROOT / module).read_text(encoding="utf-8")
    stored = _stored(module)
    if stored.get("source") != source:
        stored = {"module": module, "source": source, "mutants": list(_mutants(source))}
        _file(module).write_text(json.dumps(stored), encoding="utf-8")
    return stored


def _mutants(source: str) -> Iterator[dict[str, Any]]:
    """Yield each change, except those of other kinds, and those that no test could detect."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    silent = never_noticed(source)
    nodes = list(ast_nodes(get_ast(source)))
    tree, lines = ast.parse(source), source.splitlines()
    for name in filter(KINDS.fullmatch, operator_names()):
        operator = get_operator(name)()
        places = (place for node in nodes for place, _ in operator.mutation_positions(node))
        for occurrence, place in enumerate(places):
            # A star before parameters that have to be named is no product.
            is_star = lines[place[0] - 1].startswith("*,", place[1])
            if is_star or any(first <= tuple(place) < last for first, last in silent):
                continue
            mutated = mutate_code(source, operator, occurrence)
            if is_python(mutated):
                within = statement(tree, place[0])
                yield {**change(source, mutated), "statement": [within.start, within.stop], "result": None}


def is_python(source: str) -> bool:
    """Return whether a source compiles: with ``*`` for ``**`` in a dictionary it does not."""
    try:
        compile(source, "", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _file(module: str) -> Path:
    return HOME / f"{module.replace('/', '.').removesuffix('.py')}.json"


def _stored(module: str) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(_file(module).read_text("utf-8")) if _file(module).exists() else {}
    return stored


def run(chosen: Mapping[str, tuple[str, ...]], seconds: float) -> None:
    """Make all changes of the modules that were not made yet, area by area."""
    copy_tree()
    for module in chosen:
        planned(module)
    for area in dict.fromkeys(chosen.values()):
        results = [str(_file(each)) for each, tests in chosen.items() if tests == area]
        job = json.dumps({"tests": area, "results": results, "seconds": seconds})
        environment = {**os.environ, "PYTHONPATH": str(TREE), "STANDFAST_HYPOTHESIS": "mutants"}
        command = [sys.executable, "-m", "tests.mutant_runs", job]
        if subprocess.run(command, cwd=TREE, env=environment, check=False).returncode:
            raise SystemExit("nothing is changed yet, and the tests fail")


def read(module: str) -> tuple[list[Mutant], int]:
    """Return the results of a module, and how many changes were not made yet."""
    stored = _stored(module)
    before = stored.get("source", "").splitlines()
    found = [
        Mutant(
            module,
            each["begin"] + 1,
            " ".join(line.strip() for line in before[each["begin"] : each["end"]]),
            " ".join(line.strip() for line in each["lines"]),
            is_killed=bool(each["result"]["killer"]),
        )
        for each in stored.get("mutants", ())
        if each["result"]
    ]
    found.sort(key=lambda each: (each.line, each.after))
    return found, len(stored.get("mutants", ())) - len(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the changes not made yet, print the results; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", help=f"modules or folders of {', '.join(AREAS)}")
    parser.add_argument(
        "--seconds", type=float, default=60, help="processor time of the tests with one change"
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        default=(),
        metavar="PATH",
        help="run these tests only, in place of all of the area; a run without this makes the survivors again",
    )
    parser.add_argument("--report", action="store_true", help="only tell what is found already")
    parsed = parser.parse_args(arguments)
    sys.path.append(str(PACKAGES))
    chosen = with_tests(modules(parsed.paths), parsed.tests)
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        if not parsed.report:
            run(chosen, parsed.seconds)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", flush=True)
    results = {module: read(module) for module in chosen}
    scores = [score(module, found, pending, EQUIVALENT) for module, (found, pending) in results.items()]
    needless = left_over(scores, (each for found, _ in results.values() for each in found), EQUIVALENT)
    print("\n".join((told(scores), *needless)))
    return status(scores, needless)


if __name__ == "__main__":
    sys.exit(main())
