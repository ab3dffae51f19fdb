from __future__ import annotations

import io
import signal
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from standby.code.bundles import pack
from standby.errors import BadConfiguration
from standby.feed.functions import job_code, resolve
from tests.cases import case

MODULES = {
    "good_job.py": "def step(rows, state, out): return 'called'\nvalue = 3\nasync def later(rows, state, out): ...\n"
    "def two(rows, state): ...\ndef named(rows, state, *, out): ...\nclass Step:\n"
    "    def __init__(self, rows, state, out): ...\n",
    "broken_job.py": "x = 1\nraise ValueError('no table')\n",
    "exits_job.py": "import sys\nsys.exit('bye')\n",
    "surrogate_job.py": "class Strange(BaseException): ...\nraise Strange(chr(0xDFFF))\n",
    "interrupting_job.py": "raise KeyboardInterrupt\n",
    "syntax_job.py": "def step(:\n",
    "needs_job.py": "import good_job\n",
    "lost_job.py": "import not_installed_anywhere\n",
}


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    assert sys.path == path
    assert not {each for each in set(sys.modules) - modules if each.endswith("_job")}


@pytest.fixture
def job_directory(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_modules_of_a_directory_below_lie_side_by_side_as_in_a_container(job_directory: Path) -> None:
    (job_directory / "below").mkdir()
    (job_directory / "below" / "deep_job.py").write_text("from good_job import step\n", encoding="utf-8")
    with job_code(job_directory, ["below/deep_job.py", "good_job.py"]):
        assert resolve("task.step", "deep_job:step", ("rows", "state", "out"))(1, 2, 3) == "called"


def test_what_cannot_be_used_is_named(job_directory: Path) -> None:
    for listed, name, said in (
        ((), "good_job:step", "no module 'good_job'; list its file in job.modules"),
        (("needs_job.py",), "needs_job:step", "needs_job imports 'good_job', which does not exist"),
        (("lost_job.py",), "lost_job:step", "imports 'not_installed_anywhere'"),
        (("broken_job.py",), "broken_job:step", r"raised ValueError: no table \(broken_job.py, line 2\)"),
        (("exits_job.py",), "exits_job:step", "raised SystemExit: bye"),
        (
            ("surrogate_job.py",),
            "surrogate_job:step",
            r"raised Strange: \\udfff \(surrogate_job.py, line 2\)",
        ),
        (("syntax_job.py",), "syntax_job:step", r"raised SyntaxError: .*\(syntax_job.py, line 1\)"),
        (("good_job.py",), "good_job:stop", "has no function 'stop'"),
        (("good_job.py",), "good_job:value", "is a int, not a function"),
        (("good_job.py",), "good_job:later", "is async"),
        (("good_job.py",), "good_job:two", r"two\(rows, state\) cannot be called with 3"),
        (("good_job.py",), "good_job:named", r"named\(rows, state, \*, out\) cannot be called with 3"),
        (("good_job.py",), "good_job.step", "not of the form module:function"),
        (("good_job.py",), "good_job.sub:step", "no module 'good_job.sub'|imports 'good_job.sub'"),
    ):
        with (
            case(name),
            job_code(job_directory, listed),
            pytest.raises(BadConfiguration, match=f"^task.step: .*({said})"),
        ):
            resolve("task.step", name, ("rows", "state", "out"))


def test_a_missing_module_file_is_named(job_directory: Path) -> None:
    with (
        pytest.raises(BadConfiguration, match=r"job\.modules: there is no .*absent\.py"),
        job_code(job_directory, ["absent.py"]),
    ):
        pass


def test_two_modules_of_one_name_cannot_be_shipped(job_directory: Path) -> None:
    (job_directory / "other").mkdir()
    (job_directory / "other" / "good_job.py").write_text("", encoding="utf-8")
    with (
        pytest.raises(BadConfiguration, match=r"two files are called good_job\.py"),
        job_code(job_directory, ["good_job.py", "other/good_job.py"]),
    ):
        pass


def test_a_linked_module_keeps_the_name_of_the_link(job_directory: Path) -> None:
    released = job_directory / "releases"
    released.mkdir()
    (released / "flights_job-2.py").write_text(MODULES["good_job.py"], encoding="utf-8")
    (released / "lib-2").mkdir()
    (released / "lib-2" / "deep_job.py").write_text(MODULES["good_job.py"], encoding="utf-8")
    (job_directory / "flights_job.py").symlink_to("releases/flights_job-2.py")
    (job_directory / "lib").symlink_to("releases/lib-2")
    parameters = ("rows", "state", "out")
    with job_code(job_directory, ["flights_job.py", "lib/deep_job.py", "releases/../lib"]) as code:
        assert sorted(each.name for each in code.iterdir()) == ["deep_job.py", "flights_job.py", "lib"]
        names = zipfile.ZipFile(io.BytesIO(pack(code).data)).namelist()
        assert names == ["deep_job.py", "flights_job.py", "lib/deep_job.py"]
        assert resolve("task.step", "flights_job:step", parameters)(1, 2, 3) == "called"
    (job_directory / "circle_job.py").symlink_to("circle_job.py")
    with (
        pytest.raises(BadConfiguration, match=r"job\.modules: there is no .*circle_job\.py"),
        job_code(job_directory, ["circle_job.py"]),
    ):
        pass


def test_what_can_be_called_is_found_and_forgotten_before_the_next_jobs_code(
    job_directory: Path, tmp_path: Path
) -> None:
    parameters = ("rows", "state", "out")
    with job_code(job_directory, ["good_job.py"]):
        assert resolve("task.step", "good_job:step", parameters)(1, 2, 3) == "called"
        assert resolve("task.step", "good_job:Step", parameters).__name__ == "Step"
    other = tmp_path / "second"
    other.mkdir()
    (other / "good_job.py").write_text("def step(rows, state, out): return 'other'\n", encoding="utf-8")
    with job_code(other, ["good_job.py"]):
        assert resolve("task.step", "good_job:step", parameters)(1, 2, 3) == "other"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Has SIGINT raise, as on a terminal: a shell starts what it runs in the background with that ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_is_the_jobs_own_unless_somebody_has_pressed_the_key(job_directory: Path) -> None:
    name, parameters = "interrupting_job:step", ("rows", "state", "out")
    (job_directory / "pressing_job.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8"
    )
    with job_code(job_directory, ("interrupting_job.py", "pressing_job.py")):
        with pytest.raises(BadConfiguration, match="raised KeyboardInterrupt"):
            resolve("task.step", name, parameters)
        with pytest.raises(KeyboardInterrupt):
            resolve("task.step", "pressing_job:step", parameters)
