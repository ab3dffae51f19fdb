from __future__ import annotations

import io
import signal
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from standby.code.bundles import pack
from standby.errors import BadConfiguration, Transient
from standby.feed.functions import job_code, resolve
from tests.cases import case
from tests.floods import descriptors
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS

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


def step(name: str) -> Callable[..., Any]:
    """Return what a job's `task.step` names."""
    return resolve("task.step", name, ("rows", "state", "out"))


@pytest.fixture
def job_directory(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_modules_of_a_directory_or_an_archive_lie_side_by_side_as_in_a_container(job_directory: Path) -> None:
    (job_directory / "below").mkdir()
    with zipfile.ZipFile(job_directory / "below" / "lib.zip", "w") as archive:
        archive.writestr("zipped_job.py", MODULES["good_job.py"])
    (job_directory / "below" / "deep_job.py").write_text("from good_job import step\n", encoding="utf-8")
    with job_code(job_directory, ["below/deep_job.py", "below/lib.zip", "good_job.py"]):
        for each in ("deep_job:step", "zipped_job:step"):
            assert step(each)(1, 2, 3) == "called"


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
            step(name)


def test_module_files_that_cannot_be_shipped_are_named(job_directory: Path) -> None:
    (job_directory / "other").mkdir()
    (job_directory / "other" / "good_job.py").write_text("", encoding="utf-8")
    (job_directory / "circle_job.py").symlink_to("circle_job.py")
    for listed, said in (
        (["absent.py"], r"there is no .*absent\.py"),
        (["circle_job.py"], r"there is no .*circle_job\.py"),
        (["good_job.py", "other/good_job.py"], r"two files are called good_job\.py"),
    ):
        with (
            case(listed),
            pytest.raises(BadConfiguration, match=rf"job\.modules: {said}"),
            job_code(job_directory, listed),
        ):
            pass


def test_an_import_that_goes_on_in_another_thread_is_no_obstacle(
    job_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Importing(types.ModuleType):
        """It is looked at in the midst of another import."""

        @property
        def __file__(self) -> str:  # type: ignore[override]
            monkeypatch.setitem(sys.modules, f"late_{len(sys.modules)}", types.ModuleType("late"))
            return "elsewhere"

    monkeypatch.setitem(sys.modules, "importing", Importing("importing"))
    with job_code(job_directory, ["good_job.py"]):
        step("good_job:step")
    assert "good_job" not in sys.modules


def test_a_linked_module_keeps_the_name_of_the_link(job_directory: Path) -> None:
    released = job_directory / "releases"
    released.mkdir()
    (released / "flights_job-2.py").write_text(MODULES["good_job.py"], encoding="utf-8")
    (released / "lib-2").mkdir()
    (released / "lib-2" / "deep_job.py").write_text(MODULES["good_job.py"], encoding="utf-8")
    (job_directory / "flights_job.py").symlink_to("releases/flights_job-2.py")
    (job_directory / "lib").symlink_to("releases/lib-2")
    with job_code(job_directory, ["flights_job.py", "lib/deep_job.py", "releases/../lib"]) as code:
        assert sorted(each.name for each in code.iterdir()) == ["deep_job.py", "flights_job.py", "lib"]
        names = zipfile.ZipFile(io.BytesIO(pack(code).data)).namelist()
        assert names == ["deep_job.py", "flights_job.py", "lib/deep_job.py"]
        assert step("flights_job:step")(1, 2, 3) == "called"


def test_what_can_be_called_is_found_and_forgotten_before_the_next_jobs_code(
    job_directory: Path, tmp_path: Path
) -> None:
    with job_code(job_directory, ["good_job.py"]):
        assert step("good_job:step")(1, 2, 3) == "called"
        assert step("good_job:Step").__name__ == "Step"
    other = tmp_path / "second"
    other.mkdir()
    (other / "good_job.py").write_text("def step(rows, state, out): return 'other'\n", encoding="utf-8")
    with job_code(other, ["good_job.py"]):
        assert step("good_job:step")(1, 2, 3) == "other"


def test_what_the_host_lacks_during_an_import_is_not_the_jobs_fault(job_directory: Path) -> None:
    with zipfile.ZipFile(job_directory / "lib.zip", "w") as archive:
        archive.writestr("zipped_job.py", MODULES["good_job.py"])
    with job_code(job_directory, ["good_job.py", "lib.zip"]):
        for each in ("good_job:step", "zipped_job:step"):
            with descriptors(0), pytest.raises(Transient, match=r"task\.step: .* Too many open files"):
                step(each)
            assert step(each)(1, 2, 3) == "called"


@pytest.mark.parametrize(
    "text",
    [
        "raise MemoryError\n",
        "raise ConnectionRefusedError(111, 'Connection refused')\n",
        "raise ImportError('libbig.so: cannot map it: Cannot allocate memory')\n",
        "try: raise OSError(28, 'No space left on device')\nexcept OSError as e: raise ValueError('no cache') from e\n",
    ],
)
def test_an_error_of_the_host_that_a_module_raises_or_explains_is_worth_another_try(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "late_job.py").write_text(text, encoding="utf-8")
    with job_code(tmp_path, ["late_job.py"]), pytest.raises(Transient, match="importing late_job has failed"):
        step("late_job:step")


@pytest.mark.parametrize("text", ["open('no/such/table')\n", "raise OSError('no number')\n"])
def test_other_errors_of_files_are_the_jobs(tmp_path: Path, text: str) -> None:
    (tmp_path / "late_job.py").write_text(text, encoding="utf-8")
    with (
        job_code(tmp_path, ["late_job.py"]),
        pytest.raises(BadConfiguration, match="importing late_job raised"),
    ):
        step("late_job:step")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Has SIGINT raise, as on a terminal: a shell starts what it runs in the background with that ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_is_the_jobs_own_unless_somebody_has_pressed_the_key(job_directory: Path) -> None:
    (job_directory / "pressing_job.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8"
    )
    with job_code(job_directory, ("interrupting_job.py", "pressing_job.py")):
        with pytest.raises(BadConfiguration, match="raised KeyboardInterrupt"):
            step("interrupting_job:step")
        with pytest.raises(KeyboardInterrupt):
            step("pressing_job:step")


def test_an_import_that_hangs_ends_the_command_and_is_named_with_its_line(job_directory: Path) -> None:
    (job_directory / "hanging_job.py").write_text(
        "import threading\nimport good_job\nthreading.hangs.set(), threading.Event().wait()\n",
        encoding="utf-8",
    )
    # No time passes but what the import needs to get there.
    command = (
        "import threading\nfrom pathlib import Path\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "from types import SimpleNamespace\nfrom standby.feed import functions\n"
        "from standby.feed.functions import job_code, resolve\n"
        "threading.hangs = threading.Event()\n"
        "class Importing(threading.Thread):\n"
        "    def join(self, seconds):\n        threading.hangs.wait()\n        super().join(0 * seconds)\n"
        "functions.threading = SimpleNamespace(**{**vars(threading), 'Thread': Importing})\n"
        f"with job_code(Path({str(job_directory)!r}), ['good_job.py', 'hanging_job.py']):\n"
        "    asked = ('task.step', 'hanging_job:step', ('rows', 'state', 'out'), 7)\n"
    )
    for how in ("    resolve(*asked)\n", "    ThreadPoolExecutor().submit(resolve, *asked).result()\n"):
        with case(how):
            ended = subprocess.run(
                [sys.executable, "-c", command + how],
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            assert ended.returncode == 1
            assert (
                "task.step: importing hanging_job has not ended within 7 s "
                "(hanging_job.py, line 3): what takes long"
            ) in ended.stderr


def test_a_container_imports_for_as_long_as_it_takes(
    job_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("standby.feed.functions.IMPORT_SECONDS", 0.0)
    (job_directory / "slow_job.py").write_text(
        f"import time\ntime.sleep({A_MOMENT_SECONDS})\ndef step(rows, state, out): return 'called'\n",
        encoding="utf-8",
    )
    with job_code(job_directory, ["slow_job.py"]), ThreadPoolExecutor() as threads:
        assert threads.submit(step, "slow_job:step").result()(1, 2, 3) == "called"
