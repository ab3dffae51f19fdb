"""What a mutation run makes of what it finds: scores, survivors, and changes that say nothing."""

from __future__ import annotations

import ast

import pytest

from tests.mutant_runs import differing
from tests.mutants import (
    AREAS,
    Mutant,
    change,
    is_python,
    left_over,
    modules,
    never_noticed,
    score,
    statement,
    status,
    told,
    with_tests,
)

SOURCE = """\
def f(here, there):
    if (
        here < there
    ):
        return [
            1,
        ]
    try:
        g()
    except KeyError:
        pass
"""
KILLED = Mutant("m.py", 1, "x = 1", "x = 2", is_killed=True)
SURVIVOR = Mutant("m.py", 12, "if here < there:", "if here <= there:", is_killed=False)


def test_a_change_is_reported_with_its_line_and_what_was_there() -> None:
    said = told([score("m.py", [KILLED, SURVIVOR], 3, ())]).splitlines()
    assert said[:3] == ["m.py:12", "  - if here < there:", "  + if here <= there:"]
    assert said[-1].split() == ["m.py", "50%", "1", "1", "0", "3"]
    assert score("m.py", [], 0, ()).percent == "-", "nothing was tried"


def test_a_change_is_the_lines_that_differ_and_its_tests_are_those_of_the_statement() -> None:
    assert change(SOURCE, SOURCE.replace("<", "<=")) == {
        "begin": 2,
        "end": 3,
        "lines": ["        here <= there"],
    }
    assert [statement(ast.parse(SOURCE), line) for line in (3, 6, 10)] == [
        range(2, 5),
        range(5, 8),
        range(10, 11),
    ]


def test_a_change_is_made_in_the_functions_that_differ_and_not_in_code_that_an_import_executes() -> None:
    before, *after = (
        compile(f"x = {x}\nclass C:\n    def f(self):\n        return {y}\n", "m.py", "exec")
        for x, y in ((1, 2), (1, 3), (0, 2))
    )
    ((one, other),) = differing(before, after[0])
    assert (one.co_name, other.co_consts) == ("f", (None, 3))
    with pytest.raises(ValueError, match="import"):
        list(differing(before, after[1]))


def test_a_run_fails_while_a_survivor_is_not_judged() -> None:
    for survivors, judged, expected in (([], (), 0), ([SURVIVOR], (), 1), ([SURVIVOR], (SURVIVOR.key,), 0)):
        assert status([score("m.py", [KILLED, *survivors], 0, judged)], []) == expected
    assert status([score("m.py", [KILLED], 0, ())], ["no such survivor"]) == 1


def test_an_equivalent_change_counts_neither_way_and_is_missed_when_it_is_gone() -> None:
    found = score("m.py", [KILLED, SURVIVOR], 0, [SURVIVOR.key])
    assert (found.percent, found.survivors, found.equivalent) == ("100%", (), 1)
    assert left_over([found], [KILLED, SURVIVOR], [SURVIVOR.key]) == []
    (missed,) = left_over([found], [KILLED], [SURVIVOR.key])
    assert "no such survivor" in missed


def test_an_equivalent_change_is_not_missed_before_the_module_was_run_to_its_end() -> None:
    assert left_over([score("m.py", [KILLED], 1, ())], [KILLED], [SURVIVOR.key]) == []


def test_annotations_aliases_and_decorators_are_left_as_they_are() -> None:
    lines = [
        "@d(1)",
        "def f(a: int | None) -> int | str:",
        "    b: int | None = zip(1 | 2, strict=True)",
        "Kind: TypeAlias = A | B",
        "Event = A | B",
        "Decide = Callable[[A], B | None]",
        "FLAGS = 1 | 2",
    ]
    source = "\n".join(lines)
    silent = sorted(lines[line - 1][begin:end] for (line, begin), (_, end) in never_noticed(source))
    aliases = ["A | B", "A | B", "Callable[[A], B | None]"]
    assert silent == [*aliases, "True", "TypeAlias", "d(1)", "int | None", "int | None", "int | str"]


def test_a_module_has_the_tests_of_its_area() -> None:
    assert modules(["standby/replica/claim.py"]) == {"standby/replica/claim.py": AREAS["standby/replica"]}
    assert set(AREAS.values()) == set(modules([]).values())
    with pytest.raises(SystemExit, match="no module"):
        modules(["standby/nowhere"])


def test_a_run_with_chosen_tests_runs_no_others_and_refuses_those_that_do_not_exist() -> None:
    own = "tests/property/test_lifecycle.py"
    found = modules(["standby/replica/claim.py"])
    assert with_tests(found, [own]) == {"standby/replica/claim.py": (own,)}
    assert with_tests(found, []) == found
    with pytest.raises(SystemExit, match="no such tests: tests/nowhere"):
        with_tests(found, [own, "tests/nowhere"])


def test_what_does_not_compile_is_no_change() -> None:
    assert is_python("f = {**a, 1: 2}\n")
    assert not is_python("f = {*a, 1: 2}\n")
