"""Names that a job's modules cannot have: the code that needs the original would not find it."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import zipfile
from pathlib import Path

import pytest

from standby.code import reserved
from standby.code.reserved import check_names
from standby.errors import BadConfiguration
from standby.feed.functions import job_code
from tests.cases import case

ROOT = Path(__file__).parents[4]


def test_name_of_what_a_container_needs_is_refused_with_the_reason(tmp_path: Path) -> None:
    for name, whose in {
        "locality.py": "standfast's own package locality",
        "standby.py": "standfast's own package standby",
        "appmaster.py": "standfast's own package appmaster",
        "lib/embedded.py": "standfast's own package embedded",
        "kazoo.py": "the package kazoo, which standfast needs",
        "yaml.py": "the package yaml, which standfast needs",
        "numpy.cpython-311-x86_64-linux-gnu.so": "the package numpy, which standfast needs",
        "json.py": "Python's own module json",
        "time.py": "Python's own module time",
        "../queue.pyc": "Python's own module queue",
    }.items():
        said = rf"job\.modules: {re.escape(name)} has the name of {re.escape(whose)}.*rename it"
        with case(name), pytest.raises(BadConfiguration, match=said):
            check_names(tmp_path, ["flights.py", name])
    with pytest.raises(BadConfiguration) as refused:
        check_names(tmp_path, ["standby.py", "json.py"])
    assert str(refused.value).count("rename it") == 2, "every wrong name is reported at once"


def test_folder_is_a_package_when_it_says_so(tmp_path: Path) -> None:
    for name in ("json", "kazoo", "flights"):
        (tmp_path / name).mkdir()
    check_names(tmp_path, ["json", "kazoo", "flights"])  # data, which is found by its path
    (tmp_path / "kazoo" / "__init__.py").touch()
    with pytest.raises(BadConfiguration, match=r"job\.modules: kazoo has the name of the package kazoo"):
        check_names(tmp_path, ["json", "kazoo", "flights"])


def test_name_is_the_one_under_which_the_module_is_shipped(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "json.py").touch()
    (tmp_path / "mine.py").symlink_to("old/json.py")
    check_names(tmp_path, ["mine.py"])
    with job_code(tmp_path, ["mine.py"]) as code:
        assert [each.name for each in code.iterdir()] == ["mine.py"]
    for named in ("kazoo", "kazoo/lib/..", "kazoo/."):
        (tmp_path / "kazoo" / "lib").mkdir(parents=True, exist_ok=True)
        (tmp_path / "kazoo" / "__init__.py").touch()
        with case(named), pytest.raises(BadConfiguration, match=r"has the name of the package kazoo"):
            check_names(tmp_path, [named])


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("lib.zip", ("json.py",), "lib.zip: json in it has the name of Python's own module json"),
        ("lib.whl", ("kazoo/__init__.py",), "lib.whl: kazoo in it has the name of the package kazoo"),
        ("lib.whl", ("fast/__init__.py", "fast/_c.abi3.so"), "contains fast/_c.abi3.so"),
        ("lib.zip", (), "cannot be read as an archive"),
        ("lib.zip", ("json/data.csv", "fast/json.py", "fast.py"), None),
        ("lib.tar", (), None),
    ],
)
def test_archive_is_refused_for_what_is_in_it(
    tmp_path: Path, name: str, files: tuple[str, ...], said: str | None
) -> None:
    (tmp_path / name).touch()
    if files:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for each in files:
                archive.writestr(each, b"")
    if said is None:
        check_names(tmp_path, [name])
        return
    with pytest.raises(BadConfiguration, match=re.escape(said)):
        check_names(tmp_path, [name])


def test_other_names_and_other_files_are_taken(tmp_path: Path) -> None:
    check_names(
        tmp_path, ["flights.py", "locality_job.py", "locality.csv", "json.txt", "my_kazoo", "Kazoo.py"]
    )


def test_every_package_that_is_locked_is_known() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    made = {
        top
        for top, owners in importlib.metadata.packages_distributions().items()
        if locked & {re.sub(r"[-_.]+", "-", each).lower() for each in owners} and top.isidentifier()
    }
    assert made <= reserved.NEEDED


def test_every_package_of_our_own_is_known() -> None:
    wheel = re.search(
        r"^packages = \[(.*)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert wheel is not None
    assert set(re.findall(r'"(\w+)"', wheel[1])) == reserved.OWN
    assert not reserved.NEEDED & sys.stdlib_module_names
