"""docs/commands.md has every command with its options and no other, docs/troubles.md every exit code of a container."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Final

from appmaster.cli.main import build_parser
from standby.shared.exits import MEANINGS
from tests.unit.docs.test_correctness import ROOT

PAGE: Final = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")

#: Described once, above the tables; a row may name them.
COMMON: Final = frozenset({"--help", "--json", "--zookeeper", "--cluster", "--set", "--timeout", "--name"})

_OPTION: Final = re.compile(r"--(?:\[no-\])?[a-z][a-z-]*")


def commands(parser: argparse.ArgumentParser, words: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield each command, `local up` for one, with its options."""
    options: set[str] = set()
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            options |= set(action.option_strings)
            continue
        for name, below in action.choices.items():
            yield from commands(below, f"{words} {name}".strip())
    if words and not any(isinstance(each, argparse._SubParsersAction) for each in parser._actions):
        yield words, {each for each in options if each.startswith("--")}


def rows() -> dict[str, set[str]]:
    """Return what the tables name: each command with its options."""
    found: dict[str, set[str]] = {}
    for cell in re.findall(r"^\| (`[a-z].*?`) \| ", PAGE, re.MULTILINE):
        for row in re.findall(r"`([^`]+)`", cell):
            options = set(_OPTION.findall(row))
            first, _, rest = row.partition(" ")
            names = rest.split(" ")[0].split("\\|") if first in {"local", "credentials"} else [""]
            for name in names:
                found.setdefault(f"{first} {name}".strip(), set()).update(options)
    return found


def test_every_command_has_a_row_with_its_options() -> None:
    there = dict(commands(build_parser()))
    named = rows()
    del there["failover"]  # `handover`'s row has it.
    assert "`failover` is another name" in PAGE
    assert named.keys() == there.keys()
    for command, options in there.items():
        shown = {each.replace("[no-]", "") for each in named[command]}
        assert shown <= options, command
        assert {each for each in options if not each.startswith("--no-probe")} - COMMON <= shown, command


def test_every_command_answers_in_json() -> None:
    assert [name for name, options in commands(build_parser()) if "--json" not in options] == []


def test_every_exit_code_of_a_container_is_on_the_page() -> None:
    page = (ROOT / "docs" / "troubles.md").read_text(encoding="utf-8")
    section = page.partition("\n## Exit codes of a container\n")[2]
    assert {int(each) for each in re.findall(r"^\| (\d+) \| ", section, re.MULTILINE)} == set(MEANINGS)
