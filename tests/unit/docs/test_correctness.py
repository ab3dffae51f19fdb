"""docs/correctness.md and CONTRIBUTING.md name what is there, and comments cite only rules that stand there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.simulation.mutations import MUTATIONS

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
PAGES: Final = {"docs/correctness.md": PAGE, "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text("utf-8")}

#: Where comments and pages are that may cite a rule.
FOLDERS: Final = (
    "appmaster",
    "benchmarks",
    "demo",
    "docs",
    "embedded",
    "examples",
    "locality",
    "standby",
    "tests",
)

_NAME: Final = r"`[a-z]+(?:-[a-z]+)+`"
_CITED: Final = re.compile(rf"\brules? ({_NAME}(?:(?:, and|,| and) {_NAME})*)")

#: The end of a line within a comment.
_BREAK: Final = re.compile(r"\n\s*(?:#:?\s)?\s*")


def rules() -> dict[str, str]:
    """Return the rules of the page by their names."""
    parts = re.split(rf"^### ({_NAME})$", PAGE, flags=re.MULTILINE)
    return dict(zip((each.strip("`") for each in parts[1::2]), parts[2::2], strict=True))


def sources() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    for folder in FOLDERS:
        for kind in ("*.py", "*.md"):
            yield from (ROOT / folder).rglob(kind)


def cited() -> dict[str, list[str]]:
    """Return each name that is cited as a rule's, and where."""
    found: dict[str, list[str]] = {}
    for path in sources():
        text = _BREAK.sub(" ", path.read_text(encoding="utf-8"))
        for match in _CITED.finditer(text):
            for name in re.findall(_NAME, match[1]):
                found.setdefault(name.strip("`"), []).append(str(path.relative_to(ROOT)))
    return found


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_every_file_and_test_that_a_page_names_is_there() -> None:
    for page, text in PAGES.items():
        named = re.findall(r"`((?:\w+/)+\w+\.\w+)(?:::(\w+))?`", text)
        assert named, page
        for path, test in named:
            assert (ROOT / path).is_file(), f"{page}: {path}"
            assert not test or test in functions(ROOT / path), f"{page}: {path}::{test}"


def test_every_rule_names_who_keeps_it_and_what_shows_it() -> None:
    for rule, text in rules().items():
        told = re.search(r"- Kept by (.*?)\.\n- Shown by (.*)\.", text, re.DOTALL)
        assert told, rule
        assert ".py`" in told[1], rule
        assert "`tests/" not in told[1], rule
        assert "::test_" in told[2], rule


def test_every_planted_bug_breaks_one_of_the_rules() -> None:
    planted = {
        each for text in rules().values() for each in re.findall(r"`([\w-]+)`", text.partition("planted:")[2])
    }
    assert planted == MUTATIONS.keys()


def test_every_rule_that_is_cited_stands_on_the_page() -> None:
    unknown = {name: where for name, where in cited().items() if name not in rules()}
    assert not unknown


def test_every_rule_is_cited_where_it_is_kept() -> None:
    found = cited()
    for name, text in rules().items():
        kept = re.findall(r"`((?:\w+/)+\w+\.py)`", text.partition("Shown by")[0])
        assert set(kept) & set(found.get(name, ())), f"{name}: cited in none of {kept}"
