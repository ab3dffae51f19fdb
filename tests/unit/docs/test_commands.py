"""docs/commands.md has every command with its options and no other, docs/troubles.md every exit code of a container."""

from __future__ import annotations

import re
from typing import Final

from standby.shared.exits import MEANINGS
from tests.unit.appmaster.cli.test_foreign import COMMANDS
from tests.unit.docs.test_correctness import ROOT

PAGE: Final = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")

#: Each command, `local up` for one, with its options.
THERE: Final = {
    " ".join(names): {
        option for each in parser._actions for option in each.option_strings if option.startswith("--")
    }
    for names, parser in COMMANDS.items()
}

#: Described once, above the tables; a row may name them.
COMMON: Final = frozenset({"--help", "--json", "--zookeeper", "--cluster", "--set", "--timeout", "--name"})


def rows() -> dict[str, set[str]]:
    """Return what the tables name: each command with its options."""
    found: dict[str, set[str]] = {}
    for cell in re.findall(r"^\| (`[a-z].*?`) \| ", PAGE, re.MULTILINE):
        for row in re.findall(r"`([^`]+)`", cell):
            first, _, rest = row.replace("--[no-]probe", "--probe --no-probe").partition(" ")
            names = rest.split(" ")[0].split("\\|") if first in {"local", "credentials"} else [""]
            for name in names:
                found.setdefault(f"{first} {name}".strip(), set()).update(re.findall(r"--[a-z-]+", rest))
    return found


def test_every_command_has_a_row_with_its_options() -> None:
    named = rows()
    assert "`failover` is another name" in PAGE
    assert named.keys() == THERE.keys() - {"failover"}
    for command, shown in named.items():
        assert THERE[command] - COMMON <= shown <= THERE[command], command


def test_every_command_answers_in_json() -> None:
    assert [command for command, options in THERE.items() if "--json" not in options] == []


def test_every_exit_code_of_a_container_is_on_the_page() -> None:
    page = (ROOT / "docs" / "troubles.md").read_text(encoding="utf-8")
    section = page.partition("\n## Exit codes of a container\n")[2]
    assert {int(each) for each in re.findall(r"^\| (\d+) \| ", section, re.MULTILINE)} == set(MEANINGS)
