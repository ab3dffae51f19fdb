"""Skein's Java part, as it is shipped: what it was made of, and what is in it."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from appmaster.adapters import skein_library
from appmaster.adapters.skein_library import SKEIN_JAR, load_skein
from standby.errors import Unavailable

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "third_party" / "skein"


def locked() -> dict[str, str]:
    """Return the SHA-256 of each file that skein.lock names."""
    lines = SKEIN_JAR.with_suffix(".lock").read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return {name: digest for digest, name in pairs}


def test_jar_is_the_one_that_was_built_of_what_is_here() -> None:
    files = [BUILD / "pom.xml", BUILD / "skein.patch", BUILD / "libraries", SKEIN_JAR]
    found = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}
    assert locked() == {**found, "skein-0.8.2.tar.gz": locked()["skein-0.8.2.tar.gz"]}, "run `make skein`"


def test_source_is_that_of_the_locked_release() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    release = re.search(r"^skein==(.*) \\\n((?: +--hash.*\n)+)", lock, re.MULTILINE)
    assert release is not None
    assert locked()[f"skein-{release[1]}.tar.gz"] in release[2], "run `make skein`"


def test_libraries_are_renamed_and_nothing_is_left_of_the_page_and_of_machine_code() -> None:
    with zipfile.ZipFile(SKEIN_JAR) as jar:
        names = jar.namelist()
    assert not [
        each for each in names if re.search(r"jetty|mustache|webjars|WebUI|servlet|\.so$|\.dll$", each)
    ]
    classes = [each for each in names if each.endswith(".class")]
    # jsr305's annotations, which are never run.
    assert {each for each in classes if not each.startswith("com/anaconda/skein/")} == {
        each for each in classes if each.startswith("javax/annotation/")
    }


def test_skein_is_given_the_jar_and_a_missing_one_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert str(SKEIN_JAR) == load_skein().core._SKEIN_JAR
    monkeypatch.setattr(skein_library, "SKEIN_JAR", tmp_path / "skein.jar")
    with pytest.raises(Unavailable, match=r"skein\.jar is missing: install standfast again"):
        load_skein()
