"""Installing a lock as `make` and the documentation do, from an index on disk that has newer releases than the lock.

And what is said when it fails. Nothing here needs a network.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

import pytest

from third_party.packages import Cause, Fault, why_not_consistent, why_not_installed

ROOT: Final = Path(__file__).parents[2]

#: Nothing of the user's pip, nor of the `make` that runs the tests.
_UNSET: Final = re.compile(r"(?:PIP|PYTHON|VIRTUAL_ENV|MAKE|MFLAGS|COV).*")

#: What pip asks to build the project: it hands out a wheel that is there.
_BACKEND: Final = """
from pathlib import Path
from shutil import copy

def build_wheel(directory, settings=None, metadata=None):
    (made,) = Path("built").iterdir()
    return Path(copy(made, directory)).name

build_editable = build_wheel
"""


def wheel(directory: Path, name: str, release: str, requires: Sequence[str] = ()) -> Path:
    """Write a wheel without modules into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{release}"
    extras = re.findall(r"extra == '(\w+)'", "\n".join(requires))
    headers = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}",
        *(f"Provides-Extra: {each}" for each in extras),
        *(f"Requires-Dist: {each}" for each in requires),
    ]
    files = {
        "METADATA": "\n".join(headers) + "\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["RECORD"] = "".join(f"{stem}.dist-info/{each},,\n" for each in (*files, "RECORD"))
    path = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(f"{stem}.dist-info/{each}", text)
    return path


class Index:
    """A package index in a directory, laid out as PEP 503 says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, name: str, release: str, requires: Sequence[str] = ()) -> str:
        """Publish a release; return its line of a lock."""
        made = wheel(self.directory / name, name, release, requires)
        return self._publish(name, release, made)

    def _publish(self, name: str, release: str, made: Path) -> str:
        files = sorted(each for each in made.parent.iterdir() if each.name != "index.html")
        links = (f'<a href="{each.name}">{each.name}</a>' for each in files)
        (made.parent / "index.html").write_text("\n".join(links), encoding="utf-8")
        return f"{name}=={release} --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n"


@dataclass(frozen=True)
class Ended:
    """A command that has ended, and all that it said."""

    status: int
    said: str


class Project:
    """A project with this one's Makefile, and with locks of its own."""

    def __init__(self, directory: Path, environment: Path, index: Index) -> None:
        self.directory = directory
        self.environment = environment
        self.variables = {name: value for name, value in os.environ.items() if not _UNSET.fullmatch(name)}
        self.variables |= {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": index.directory.as_uri(),
            "PIP_NO_CACHE_DIR": "1",
            "PIP_RETRIES": "0",
            "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        }
        (directory / "third_party").mkdir()
        for each in ("Makefile", "third_party/packages.py"):
            shutil.copy(ROOT / each, directory / each)
        build = 'requires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        (directory / "pyproject.toml").write_text(f"[build-system]\n{build}", encoding="utf-8")
        (directory / "backend.py").write_text(_BACKEND, encoding="utf-8")
        wheel(directory / "built", "standfast", "1.0", ["needy>=1"])

    def lock(self, *lines: str) -> None:
        """Write both locks."""
        for each in ("requirements.lock", "requirements-dev.lock"):
            (self.directory / each).write_text("".join(lines), encoding="utf-8")

    def runs(self, *command: str) -> Ended:
        """Run a command in the project's directory, with its environment in front of the PATH."""
        ended = subprocess.run(
            command,
            cwd=self.directory,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(ended.stdout)
        return Ended(ended.returncode, ended.stdout)

    def make(self, goal: str = "venv") -> Ended:
        """Run `make` for a goal."""
        return self.runs("make", f"VENV={self.environment}", f"PYTHON={sys.executable}", goal)

    def installed(self) -> Mapping[str, str]:
        """Return the installed releases, but those that a new environment has."""
        found = distributions(path=[str(each) for each in self.environment.glob("lib/python*/site-packages")])
        return {each.name: each.version for each in found if each.name not in {"pip", "setuptools"}}


@pytest.fixture(scope="module")
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the pip that this Python brings along."""
    path = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    return path


@pytest.fixture
def environment(new_environment: Path) -> Iterator[Path]:
    """The virtual environment, as it is when it is new."""
    directories = (new_environment, *new_environment.glob("lib/python*/site-packages"))
    before = {each for directory in directories for each in directory.iterdir()}
    yield new_environment
    for added in {each for directory in directories for each in directory.iterdir()} - before:
        if added.is_dir():
            shutil.rmtree(added)
        else:
            added.unlink()


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path / "simple")


@pytest.fixture
def locked(index: Index) -> list[str]:
    """A complete lock, of releases all of which the index has newer ones of."""
    toml = ["tomlish>=1; extra == 'toml'"]
    lines = [
        index.add("needy", "1.0", ["extra-pkg[toml]>=1"]),
        index.add("extra-pkg", "1.0", toml),
        index.add("tomlish", "1.0"),
    ]
    index.add("needy", "2.0", ["extra-pkg[toml]>=2"])
    index.add("extra-pkg", "2.0", toml)
    index.add("tomlish", "2.0")
    return lines


@pytest.fixture
def project(tmp_path: Path, environment: Path, index: Index, locked: Sequence[str]) -> Project:
    directory = tmp_path / "project"
    directory.mkdir()
    made = Project(directory, environment, index)
    made.lock(*locked)
    return made


LOCKED: Final = {"needy": "1.0", "extra-pkg": "1.0", "tomlish": "1.0", "standfast": "1.0"}


def test_make_installs_the_locked_releases_whatever_the_index_has_besides(project: Project) -> None:
    ended = project.make()
    assert ended.status == 0
    assert "No broken requirements found" in ended.said
    assert project.installed() == LOCKED


def test_packages_of_the_mutation_run_are_installed_beside_the_environment(
    project: Project, index: Index
) -> None:
    locked = index.add("beside", "1.0")
    (project.directory / "requirements-dev-mutants.lock").write_text(locked, encoding="utf-8")
    assert project.make("build/mutants/packages/installed").status == 0
    beside = distributions(path=[str(project.directory / "build/mutants/packages")])
    assert [each.name for each in beside] == ["beside"]
    assert project.installed() == LOCKED


@pytest.mark.acceptance
def test_documented_commands_install_the_locked_releases(project: Project) -> None:
    found = set()
    for page in ("README.md", "docs/running.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        in_page = {tuple(re.findall(r"^pip [^#\n]*[^#\s]", each, re.MULTILINE)) for each in blocks} - {()}
        assert in_page, page
        found |= in_page
    # Wherever it is said how to install, it is the same.
    (commands,) = found
    assert commands[-1] == "pip check"
    for each in commands:
        assert project.runs("bash", "-c", each).status == 0
    assert project.installed() == LOCKED


def test_what_is_wrong_with_a_lock_is_reported(project: Project, locked: Sequence[str]) -> None:
    needy, extra, tomlish = locked
    for lines, installed, told in (
        (
            (needy[:-5] + "0000\n", extra, tomlish),
            set(),
            "the package index has another file of needy==1.0",
        ),
        (
            (needy, extra, tomlish.replace("1.0", "3.0")),
            set(),
            "the package index has other releases, but not tomlish==3.0",
        ),
        (
            (needy, tomlish),
            {"needy", "tomlish", "standfast"},
            "needy 1.0 requires extra-pkg, which is not installed.",
        ),
    ):
        project.lock(*lines)
        ended = project.make()
        assert ended.status != 0, told
        assert f"requirements-dev.lock: the lock is at fault: {told}" in ended.said
        assert "make lock" in ended.said
        assert project.installed().keys() == installed, told


def test_index_that_is_not_reached_is_the_networks_fault(project: Project) -> None:
    with socket.socket() as closed:
        # Bound, but not listening: nothing else listens there.
        closed.bind(("127.0.0.1", 0))
        project.variables["PIP_INDEX_URL"] = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        project.variables["PIP_LOG"] = str(project.directory / "pip.log")
        ended = project.make()
    assert ended.status != 0
    # All that pip itself says is misleading.
    assert (
        "Could not find a version that satisfies the requirement needy==1.0 (from versions: none)"
        in ended.said
    )
    assert "the network is at fault, not the lock" in ended.said
    assert "Could not fetch URL" in (project.directory / "pip.log").read_text(encoding="utf-8")


_RETRIED: Final = (
    "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 407'))': /simple/a/\n"
)
_MISSING: Final = "ERROR: Could not find a version that satisfies the requirement a==1 (from versions: {})\n"
_BUILD_FAILED: Final = "ERROR: [present-rich] pip subprocess to install build dependencies exited with 1\n"
_NOT_HASHED: Final = (
    "ERROR: Hashes are required in --require-hashes mode, but they are missing from some requirements.\n"
    "    extra-pkg==1.0 --hash=sha256:60048903\n"
)
_NOT_PINNED: Final = (
    "ERROR: In --require-hashes mode, all requirements must have their versions pinned with ==. These do not:\n"
    "    extra-pkg[toml]>=1 from https://example.org/extra_pkg-2.0.whl (from -r a.lock (line 1))\n"
)


def test_fault_is_found_in_pips_log() -> None:
    table = [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            Fault(Cause.NO_ROOM),
        ),
        (_RETRIED + "ERROR: Could not install packages due to an OSError: gone\n", Fault(Cause.UNREACHABLE)),
        ("pip._vendor.urllib3.exceptions.ReadTimeoutError: Read timed out.\n", Fault(Cause.UNREACHABLE)),
        ("ERROR: HTTP error 502 while getting https://example.org/a-1.whl\n", Fault(Cause.UNREACHABLE)),
        (
            "Could not fetch URL https://example.org/simple/a/: 403 Client Error: Forbidden for url - skipping\n"
            + _MISSING.format("none"),
            Fault(Cause.UNREACHABLE),
        ),
        (_NOT_HASHED, Fault(Cause.NO_HASH, "extra-pkg==1.0")),
        (_NOT_PINNED, Fault(Cause.NO_HASH, "extra-pkg[toml]")),
        # Another index than was meant, or a package that is gone.
        (_MISSING.format("none"), Fault(Cause.NO_PACKAGE, "a==1")),
        # An index that answers that it does not have the package, beside one that has other releases.
        (
            "Could not fetch URL https://example.org/simple/a/: 404 Client Error: Not Found for url - skipping\n"
            + _MISSING.format("2, 3"),
            Fault(Cause.NO_RELEASE, "a==1"),
        ),
        # The second try went well.
        (_RETRIED + _MISSING.format("2, 3"), Fault(Cause.NO_RELEASE, "a==1")),
        # A requirement of a build, which the pip of the build asked for.
        (f"  {_MISSING.format('none')}{_BUILD_FAILED}", Fault(Cause.NOT_BUILT)),
        (
            "ERROR: Invalid requirement: '<<<<<<< ours' (from line 3 of a.lock)\n",
            Fault(Cause.NO_REQUIREMENT, "'<<<<<<< ours'"),
        ),
        ("ERROR: something new\n", Fault(Cause.UNKNOWN)),
    ]
    for log, fault in table:
        assert why_not_installed(log) == fault, log


def test_fault_is_found_by_the_requirement_that_is_not_met() -> None:
    old, new, project = (
        "old 1 requires gone, which is not installed.",
        "New_er 2 requires gone, which is not installed.",
        "standfast 0.1.0 has requirement needy>=2, but you have needy 1.0.",
    )
    assert why_not_consistent(f"{old}\n{new}\n", "new-er==2 \\\n") == Fault(Cause.INCOMPLETE, new)
    # What is left over is reported only for a lock without fault.
    assert why_not_consistent(f"{old}\n{new}\n", "other==2 \\\n") == Fault(Cause.LEFT_OVER, old)
    fault = why_not_consistent(f"{project}\n", "needy==1.0 \\\n")
    assert fault == Fault(Cause.UNFULFILLED, project)
    assert str(fault).startswith(f"the lock is at fault, it does not fulfil pyproject.toml: {project}")
