"""The components of standfast: ``python -m third_party.sbom`` writes, or with ``--check`` compares, two files.

``standfast.cdx.json`` is a CycloneDX 1.6 list of the Python packages in requirements.lock, and of Skein's jar with the
libraries in it; ``LICENCES.md`` has their licences. Both are computed from files of this tree alone, so the same tree
gives the same bytes, without a network; both are in the wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from embedded.jars.lock import Coordinate
from standby.errors import BadConfiguration

ROOT: Final = Path(__file__).resolve().parents[1]
HERE: Final = ROOT / "third_party"
SBOM: Final = HERE / "standfast.cdx.json"
LICENCES: Final = HERE / "LICENCES.md"

_REQUIREMENT = re.compile(
    r"^([a-z0-9._-]+)==([^\s;]+)(?: ; (.*?))? \\\n((?: +--hash=sha256:[0-9a-f]+.*\n)+)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Part:
    """A component in the sense of CycloneDX."""

    purl: str
    """Its package URL, which is also its reference."""
    name: str
    version: str
    licence: str
    """An SPDX expression."""
    sha256: tuple[str, ...] = ()
    """For a Python package, one for each file on the index."""
    group: str = ""
    when: str = ""
    """The marker for which a Python package is installed; empty for always."""
    parts: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the component as CycloneDX's JSON has it."""
        made: dict[str, Any] = {"type": "library", "bom-ref": self.purl}
        if self.group:
            made["group"] = self.group
        made |= {"name": self.name, "version": self.version}
        if self.sha256:
            made["hashes"] = [{"alg": "SHA-256", "content": each} for each in self.sha256]
        made |= {"licenses": [{"expression": self.licence}], "purl": self.purl}
        if self.when:
            made["properties"] = [{"name": "standfast:marker", "value": self.when}]
        if self.parts:
            made["components"] = [each.to_json() for each in self.parts]
        return made


def python_packages(lock: str, licences: Mapping[str, str]) -> Iterator[Part]:
    """Yield the packages of a requirements lock; raises `BadConfiguration` for a package with unknown licence."""
    for name, version, marker, hashes in _REQUIREMENT.findall(lock):
        yield Part(
            f"pkg:pypi/{name}@{version}",
            name,
            version,
            _licence(name, licences),
            tuple(sorted(re.findall(r"sha256:([0-9a-f]+)", hashes))),
            when=marker,
        )


def _jar(coordinate: Coordinate, licences: Mapping[str, str]) -> Part:
    purl = f"pkg:maven/{coordinate.group}/{coordinate.artifact}@{coordinate.version}"
    licence = _licence(coordinate.group, licences)
    return Part(purl, coordinate.artifact, coordinate.version, licence, group=coordinate.group)


def _licence(name: str, licences: Mapping[str, str]) -> str:
    if name not in licences:
        raise BadConfiguration(f"third_party/licences.yaml has no licence of {name}: add the SPDX expression")
    return licences[name]


def collect(root: Path = ROOT) -> tuple[Part, ...]:
    """Return all components of standfast, as named by the locks below ``root``."""
    licences = yaml.safe_load((root / "third_party" / "licences.yaml").read_text(encoding="utf-8"))
    lock = (root / "requirements.lock").read_text(encoding="utf-8")
    packages = tuple(python_packages(lock, licences))
    if len(packages) != len(re.findall(r"^[^\s#][^\n]*==", lock, re.MULTILINE)):
        raise BadConfiguration(
            "requirements.lock has lines that are not name==version with hashes: run make lock"
        )
    libraries = (root / "third_party" / "skein" / "libraries").read_text(encoding="utf-8").split()
    version = next(each.version for each in packages if each.name == "skein")
    skein = Part(
        "pkg:generic/standfast-skein.jar@" + version,
        "skein.jar",
        version,
        _licence("skein", licences),
        (hashlib.sha256((root / "appmaster" / "jar" / "skein.jar").read_bytes()).hexdigest(),),
        parts=tuple(_jar(Coordinate.parse(each), licences) for each in libraries),
    )
    return (*packages, skein)


def sbom(parts: Sequence[Part], version: str) -> str:
    """Return the CycloneDX document; its serial number is computed from its content."""
    components = [each.to_json() for each in parts]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, components]))
    this = f"pkg:pypi/standfast@{version}"
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": this,
                "name": "standfast",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": this,
            }
        },
        "components": components,
        "dependencies": [{"ref": this, "dependsOn": [each.purl for each in parts]}],
    }
    return json.dumps(document, indent=1) + "\n"


def licences(parts: Sequence[Part]) -> str:
    """Return the page of licences."""

    def rows(of: Sequence[Part]) -> list[str]:
        return [
            f"| {f'{each.group}:' if each.group else ''}{each.name} | {each.version} | {each.licence} |"
            for each in of
        ]

    head = ["", "| what | release | licence (SPDX) |", "|---|---|---|"]
    skein = next(each for each in parts if each.name == "skein.jar")
    others = [each for each in parts if each is not skein]
    lines = [
        "# Third-party licences",
        "",
        "Written by `make sbom`. standfast itself: Apache-2.0.",
        "",
        "## In this package: `skein.jar`",
        "",
        "Skein's Java part, changed, with the libraries that it was built with. The texts of the BSD and MIT licences",
        "among them: [NOTICES.md](NOTICES.md).",
        *head,
        *rows([skein, *skein.parts]),
        "",
        "## Not in this package: what it is installed with",
        *head,
        *rows(others),
    ]
    return "\n".join(lines) + "\n"


def files(root: Path = ROOT) -> dict[Path, str]:
    """Return the content of the two files."""
    found = re.search(
        r'^version = "(.*)"', (root / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None
    parts = collect(root)
    return {SBOM: sbom(parts, found[1]), LICENCES: licences(parts)}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files, or compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m third_party.sbom", description="SBOM and licences.")
    parser.add_argument("--check", action="store_true", help="compare only")
    arguments = parser.parse_args(argv)
    try:
        wanted = files()
    except BadConfiguration as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    if arguments.check:
        stale = [
            path
            for path, text in wanted.items()
            if not path.is_file() or path.read_text(encoding="utf-8") != text
        ]
        for path in stale:
            print(f"sbom: {path.relative_to(ROOT)} is out of date: run make sbom", file=sys.stderr)
        return 1 if stale else 0
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
