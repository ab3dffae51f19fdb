"""Every link of a page leads to a file and a heading, and every page that code, tests or pages name is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.unit.docs.test_correctness import FOLDERS, ROOT

_KINDS: Final = frozenset({".md", ".py", ".toml", ".yaml", ".yml", ".json", ".sh"})

#: `[text](target)`; the text may go on in the next line.
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")

#: A page as prose and error texts name it: docs/state.md#types, README.md.
_NAMED: Final = re.compile(r"(?<![\w/.#*-])(?:[\w.-]+/)*[\w-]+\.md(?:#[\w-]+)?\b")

_FENCED: Final = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def files() -> Iterator[Path]:
    """Return every file of text that is part of the project."""
    yield from (each for each in ROOT.iterdir() if each.suffix in _KINDS or each.name == "Makefile")
    for folder in (*FOLDERS, "monitoring", "third_party", "yarn-conf"):
        yield from (each for each in (ROOT / folder).rglob("*") if each.suffix in _KINDS and each.is_file())


def pages() -> list[Path]:
    return sorted(each for each in files() if each.suffix == ".md")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub gives a page's headings, and those that the page sets itself."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    met: Counter[str] = Counter()
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for title in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w -]", "", shown.lower()).replace(" ", "-")
        found.add(f"{name}-{met[name]}" if met[name] else name)
        met[name] += 1
    return frozenset(found)


def broken(target: str, page: Path, *folders: Path) -> str:
    """Return what is wrong with a target as ``page`` names it, seen from each of ``folders``; empty: nothing."""
    path, _, anchor = target.partition("#")
    there = [each for folder in folders if (each := (folder / path).resolve()).exists()] if path else [page]
    if not there:
        return f"{page.relative_to(ROOT)}: {target}: no such file"
    if anchor and not any(each.suffix == ".md" and anchor in anchors(each) for each in there):
        return f"{page.relative_to(ROOT)}: {target}: no such heading"
    return ""


def test_every_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    followed, wrong = 0, []
    for page in pages():
        for target in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
            if not re.match(r"[a-z]+:", target):
                followed += 1
                wrong.append(broken(target, page, page.parent))
    assert followed > len(pages())
    assert [each for each in wrong if each] == []


def test_every_page_that_is_named_is_there() -> None:
    """Also without a link: by a comment, an error's text, a test, a generator."""
    named = {
        (path, target)
        for path in files()
        for target in _NAMED.findall(path.read_text(encoding="utf-8"))
        if path != Path(__file__)
    }
    assert {path.suffix for path, _ in named} >= {".md", ".py", ".toml", ".yml"}
    wrong = [broken(target, path, path.parent, ROOT, ROOT / "docs") for path, target in sorted(named)]
    assert [each for each in wrong if each] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_the_readme_links_every_page(page: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"docs/{page.name}" in {each.partition("#")[0] for each in _LINK.findall(readme)}
