"""Rejects literal numbers of seconds in tests: ``python -m tests.lint_patience``.

All waiting times of tests are defined in tests/patience.py, because a machine may be slow, and no test knows how
slow. The check finds a number in the place of a real waiting time. Virtual time, which a test advances, is allowed,
and so are times that the code under test takes as data: `TAKES_TIME_AS_DATA` lists the callables that take such data
under a name also used for waits.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

#: Where tests are.
FOLDERS: Final = ("tests", "benchmarks/tests", "demo/tests")

#: Where the numbers are.
HOME: Final = "tests/patience.py"

#: Callables that wait, by the last part or the last two of their name: the positions of their waiting time.
WAITS: Final[Mapping[str, tuple[int, ...]]] = {
    # Python's own.
    "Timer": (0,),
    "acquire": (1,),
    "call_later": (0,),
    "communicate": (1,),
    "create_connection": (1,),
    "exception": (0,),
    "join": (0,),
    "open_url": (1,),
    "result": (0, 1),
    "select": (0, 3),
    "settimeout": (0,),
    "sleep": (0,),
    "wait": (0, 1, 2),
    "wait_for": (1, 2),
    "wait_procs": (1,),
    # Kafka's clients.
    "abort_transaction": (0,),
    "commit_transaction": (0,),
    "committed": (1,),
    "consume": (1,),
    "flush": (0,),
    "get_watermark_offsets": (1,),
    "init_transactions": (0,),
    "list_topics": (0, 1),
    "poll": (0,),
    "send_offsets_to_transaction": (2,),
    # pytest's limit of one test.
    "timeout": (0,),
    # The product's, and the tests' own.
    "ask": (1,),
    "await_all": (1, 2),
    "await_phase": (1,),
    "await_processed": (0, 2),
    "await_ready": (0,),
    "changelog.read": (1,),
    "client._ask": (2,),
    "client.start": (0,),
    "direct._ask": (2,),
    "first": (1,),
    "fresh": (0,),
    "initialise": (1,),
    "leave": (0,),
    "looks": (0,),
    "loop.turn": (0,),
    "process.end": (0,),
    "replicas.close": (0,),
    "soon": (2,),
    "stream.finish": (0,),
    "take": (2,),
    "until": (1, 2),
}

#: Callables (by the last part or the last two of their name) and parameters that take a time under such a
#: name, or a number at such a place, without making the test wait; each with the reason.
TAKES_TIME_AS_DATA: Final[Mapping[str, str]] = {
    "KazooClient": "the length of a session, which the server keeps; `start` is what waits",
    "compiling_seconds": "processor time that was used",
    "cpu_seconds": "processor time that was used",
    "play.wait": "the first argument is the number of a copy",
    "steady": "seconds of samples that are looked at",
    "sync_seconds": "how often the code service looks by itself; what it does is waited for",
}

#: Places where something real takes this time because the test is about it; the test does not wait for an
#: event.
EXEMPTED: Final[Mapping[str, str]] = {
    "tests/system/lone/test_container_process.py::test_a_short_stop_costs_no_stream": "a process stands still",
    "tests/system/lone/test_kernel_broker.py::"
    "test_a_broker_that_comes_back_finds_active_standby_and_restore_going_on": "a broker is away",
    "tests/system/yarn/counting_job.py::step": "is sent to a cluster, which has no tests/patience.py; looks at a file",
}

_CLOCKS: Final = ("monotonic", "perf_counter", "time")
_OF_NUMBERS: Final = ("float", "int", "max", "min", "round", "uniform")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A number of seconds."""

    line: int
    message: str
    within: str
    """The function or constant that contains it, at the top level of the module or of a class."""


def findings(source: str) -> list[Finding]:
    """Return the numbers of seconds in a module, by line, including the exempted ones."""
    return sorted(set(_of_block(ast.parse(source).body)))


def _of_block(block: Iterable[ast.stmt]) -> Iterator[Finding]:
    for statement in block:
        if isinstance(statement, ast.ClassDef):
            yield from _of_block(statement.body)
        else:
            yield from (
                Finding(line, message, _name(statement))
                for node in ast.walk(statement)
                for line, message in _of_node(node)
            )


def _name(statement: ast.stmt) -> str:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return statement.name
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return ast.unparse(_targets(statement)[0])
    return ""


def _of_node(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.BinOp | ast.Compare):
        yield from _of_reckoning(node)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in _targets(node):
            if isinstance(target, ast.Name) and _is_time(target.id) and _has_number(node.value):
                yield node.lineno, f"{target.id} is a number"
    elif isinstance(node, ast.arguments):
        named = [*node.posonlyargs, *node.args]
        defaults = [*zip(named[len(named) - len(node.defaults) :], node.defaults, strict=True)]
        for argument, default in (*defaults, *zip(node.kwonlyargs, node.kw_defaults, strict=True)):
            if _is_time(argument.arg) and _has_number(default):
                yield argument.lineno, f"{argument.arg} is a number unless it is given"


def _of_call(call: ast.Call) -> Iterator[tuple[int, str]]:
    names = _names(call)
    last = names[0]
    if not TAKES_TIME_AS_DATA.keys().isdisjoint(names):
        return
    for keyword in call.keywords:
        if keyword.arg is not None and _is_time(keyword.arg) and _has_number(keyword.value):
            yield keyword.value.lineno, f"{last}({keyword.arg}={ast.unparse(keyword.value)})"
    for position in sorted({position for name in names for position in WAITS.get(name, ())}):
        if position < len(call.args) and _has_number(call.args[position]):
            yield call.args[position].lineno, f"{last} waits for {ast.unparse(call.args[position])}"


def _names(call: ast.Call) -> list[str]:
    """Return the last part of a callable's name, and its last two."""
    parts = ast.unparse(call.func).split(".")
    return [parts[-1], ".".join(parts[-2:])]


def _of_reckoning(node: ast.BinOp | ast.Compare) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
    elif isinstance(node.op, ast.Add | ast.Sub):
        sides = [node.left, node.right]
    else:
        return
    if any(_has_number(each) for each in sides) and any(_reads_clock(each) for each in sides):
        yield node.lineno, f"a clock and a number: {ast.unparse(node)}"


def _reads_clock(node: ast.expr) -> bool:
    return any(
        isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] in _CLOCKS
        for each in ast.walk(node)
    )


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _is_time(name: str) -> bool:
    return name not in TAKES_TIME_AS_DATA and name.lower().rpartition("_")[2] in ("seconds", "timeout")


def _has_number(node: ast.expr | None) -> bool:
    """Return whether it is a number other than zero, or becomes one by addition or choice; a factor does not count."""
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float() as value):
            return value != 0
        case ast.UnaryOp(operand=operand):
            return _has_number(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return _has_number(left) or _has_number(right)
        case ast.BinOp(left=left, right=right):
            return _has_number(left) and _has_number(right)
        case ast.IfExp(body=one, orelse=other):
            return _has_number(one) or _has_number(other)
        case ast.Call(func=func, args=args):
            return ast.unparse(func).rpartition(".")[2] in _OF_NUMBERS and any(map(_has_number, args))
        case _:
            return False


def complaints(sources: Mapping[str, str]) -> list[str]:
    """Return a line for each number of seconds in some modules, by path."""
    return [
        f"{path}:{each.line}: {each.message}: take it from {HOME}"
        for path, source in sorted(sources.items())
        if path != HOME
        for each in findings(source)
        if f"{path}::{each.within}" not in EXEMPTED
    ]


def left_over(sources: Mapping[str, str]) -> list[str]:
    """Return a line for each exemption of a place where there is no number of seconds."""
    found = {f"{path}::{each.within}" for path, source in sources.items() for each in findings(source)}
    return [
        f"tests/lint_patience.py: nothing to exempt in {each}" for each in sorted(EXEMPTED.keys() - found)
    ]


def main() -> int:
    """Print what is wrong with the tests; return the exit status."""
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    said = [*complaints(sources), *left_over(sources)]
    print(*said, sep="\n", end="\n" if said else "")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
