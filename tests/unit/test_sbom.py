"""The list of components and their licences: what is in it, and what is said when it cannot be made."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from standby.errors import BadConfiguration
from third_party import sbom

LOCK = """\
a==1.0 \\
    --hash=sha256:{0} \\
    --hash=sha256:{1}
    # via b
b==2.0 ; python_full_version < '3.11' \\
    --hash=sha256:{1}
    # via standfast (pyproject.toml)
""".format("0" * 64, "1" * 64)


def test_stale_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = sbom.ROOT / "third_party" / "gone.json"
    monkeypatch.setattr(sbom, "SBOM", stale)
    assert sbom.main(["--check"]) == 1
    assert "third_party/gone.json is out of date: run make sbom" in capsys.readouterr().err


def test_packages_are_read_with_releases_hashes_and_markers() -> None:
    found = list(sbom.python_packages(LOCK, {"a": "MIT", "b": "Apache-2.0"}))
    assert [(each.purl, each.licence, each.sha256, each.when) for each in found] == [
        ("pkg:pypi/a@1.0", "MIT", ("0" * 64, "1" * 64), ""),
        ("pkg:pypi/b@2.0", "Apache-2.0", ("1" * 64,), "python_full_version < '3.11'"),
    ]


def test_package_without_a_known_licence_is_named() -> None:
    with pytest.raises(
        BadConfiguration, match=r"licences\.yaml has no licence of b: add the SPDX expression"
    ):
        list(sbom.python_packages(LOCK, {"a": "MIT"}))


def test_line_that_is_not_understood_is_not_left_out(tmp_path: Path) -> None:
    for each in ("requirements.lock", "third_party/licences.yaml"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        shutil.copy(sbom.ROOT / each, tmp_path / each)
    with (tmp_path / "requirements.lock").open("a", encoding="utf-8") as lock:
        lock.write("without-hashes==1.0\n")
    with pytest.raises(BadConfiguration, match="name==version with hashes"):
        sbom.collect(tmp_path)


def test_every_component_has_a_reference_of_its_own_and_a_licence() -> None:
    document = json.loads(sbom.SBOM.read_text(encoding="utf-8"))
    skein = next(each for each in document["components"] if each["name"] == "skein.jar")
    components = [*document["components"], *skein["components"]]
    references = [each["bom-ref"] for each in components]
    assert len(set(references)) == len(references)
    assert all(each["licenses"][0]["expression"] for each in components)
    assert set(document["dependencies"][0]["dependsOn"]) == {
        each["bom-ref"] for each in document["components"]
    }


def test_libraries_of_skeins_jar_are_those_that_the_jar_names() -> None:
    with zipfile.ZipFile(sbom.ROOT / "appmaster" / "jar" / "skein.jar") as jar:
        inside = {
            "/".join(each.split("/")[2:4])
            for each in jar.namelist()
            if each.startswith("META-INF/maven/") and each.endswith("pom.properties")
        }
    listed = {
        ":".join(each.split(":")[:2]).replace(":", "/")
        for each in (sbom.HERE / "skein" / "libraries").read_text(encoding="utf-8").split()
    }
    # Skein itself, and what Netty has taken into its own jar.
    assert inside - listed == {"com.anaconda.skein/skein", "org.jctools/jctools-core"}
