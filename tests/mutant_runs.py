"""Runs the tests of an area with each change of its modules: for tests/mutants.py, in the copy of the tree.

One process imports and collects all tests. Each change is then made in a fork of it, in the code of the functions that
differ, and the fork runs only the tests that execute the changed statement, the cheapest and most successful first.
A statement that is executed by an import is changed in a fork of a process that has imported none of our modules.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import inspect
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import hypothesis
import pytest
from coverage import CoverageData

from tests import patience

# It must be imported early: it warns about what hypothesis did before.
importlib.import_module("_hypothesis_pytestplugin")

TREE: Final = Path(__file__).parents[1]
AT_ONCE: Final = 2

#: If the tests take this many times as long with a change as without, the change causes an endless loop.
_TOO_LONG: Final = 10
_LEAST: Final = 3
#: Time on the clock for each second of the processor: others use the machine too, and a test may wait.
_TOO_LATE: Final = 60
_MOST_BYTES: Final = 8 << 30

#: What a change keeps from happening is not waited for as long as otherwise.
patience.PATIENCE_SECONDS = 60.0

_OPTIONS: Final = ("-q", "-s", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist")
_NO_ANSWER: Final = "too long, or the process ended"
_FAILED: Final = "?"

# A failed example is enough; a smaller one is not needed.
_PHASES: Final = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True, phases=_PHASES)


class Unchanged:
    """Measures a run without a change."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure the processor time of a test."""
        begin = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - begin
        return result


class Chosen:
    """Runs code in place of the loop over the collected tests."""

    def __init__(self, code: Callable[[pytest.Session], None]) -> None:
        self._code = code

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the code."""
        self._code(session)
        return True


def first_failure(session: pytest.Session, tests: Sequence[str], known: Container[str]) -> str:
    """Run the tests, and those not known, until one fails, and return it, or an empty string."""
    items = {each.nodeid: each for each in session.items}
    # The parameters of a test may depend on the change.
    new = [each for each in items if each not in known]
    found = [items[each] for each in (*new, *tests) if each in items]
    for item, following in zip(found, [*found[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item.nodeid
    return ""


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from a changed source."""

    def __init__(self, module: str, source: str) -> None:
        super().__init__(module.removesuffix(".py").replace("/", "."), str(TREE / module))
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """Return the changed code."""
        return compile(self._source, self.path, "exec", dont_inherit=True)


class Changed(importlib.abc.MetaPathFinder):
    """Finds the one module that is changed."""

    def __init__(self, module: str, source: str) -> None:
        self._loader = Loader(module, source)

    def find_spec(
        self, fullname: str, path: object, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the one module."""
        if fullname != self._loader.name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self._loader, origin=self._loader.path)


def differing(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the functions of a module or class that differ, before and after; fail if anything else differs."""
    inner = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (before, after)]
    for one, other in zip(*inner, strict=True):
        if one != other and one.co_flags & inspect.CO_OPTIMIZED:
            yield one, other
        elif one != other:
            yield from differing(one, other)
    outer = [[each for each in code.co_consts if not isinstance(each, CodeType)] for code in (before, after)]
    if (
        before.co_code != after.co_code
        or before.co_names != after.co_names
        or repr(outer[0]) != repr(outer[1])
    ):
        raise ValueError(f"code that an import executes has changed: {before.co_name}")


def change_functions(module: str, source: str, mutated: str) -> None:
    """Replace the code of the functions that differ; fail if that is not the whole change."""
    path = str(TREE / module)
    codes = [compile(each, path, "exec", dont_inherit=True) for each in (source, mutated)]
    living = [
        each for each in gc.get_objects() if type(each) is FunctionType and each.__code__.co_filename == path
    ]
    for before, after in differing(*codes):
        found = [each for each in living if each.__code__ == before]
        if not found:
            raise ValueError(f"no such function: {before.co_name}")
        for each in found:
            each.__code__ = after


def in_forks(jobs: Iterable[tuple[float, Callable[[], str], Callable[[str], None]]]) -> None:
    """Run code in forks, some at once, for so many seconds of the processor at most; pass on what each returns."""
    waiting = iter(jobs)
    running: dict[int, tuple[int, float, Callable[[str], None]]] = {}
    try:
        while True:
            while len(running) < AT_ONCE and (job := next(waiting, None)):
                seconds, code, done = job
                pid, answer = _fork(code, seconds)
                running[pid] = (
                    answer,
                    time.monotonic() + _TOO_LATE * seconds,
                    done,
                )
            if not running:
                return
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid:
                answer, _, done = running.pop(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                shutil.rmtree(_scratch(pid), ignore_errors=True)
                with os.fdopen(answer, encoding="utf-8") as stream:
                    done(stream.read() or _NO_ANSWER)
            else:
                for each, (_, deadline, _) in running.items():
                    if time.monotonic() > deadline:
                        os.kill(each, signal.SIGKILL)
                time.sleep(patience.LOOK_SECONDS)
    finally:
        for each in running:
            os.killpg(each, signal.SIGKILL)


def _fork(code: Callable[[], str], seconds: float) -> tuple[int, int]:
    answer, mine = os.pipe()
    pid = os.fork()
    if pid:
        os.close(mine)
        return pid, answer
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        nothing = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nothing, each)
        _scratch(os.getpid()).mkdir(parents=True)
        tempfile.tempdir = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_scratch(os.getpid()))
        os.write(mine, code().encode())
    except BaseException as error:  # noqa: BLE001
        os.write(mine, f"{_FAILED}{error!r}".encode())
    finally:
        os._exit(0)


def _scratch(pid: int) -> Path:
    return TREE / "build" / "scratch" / str(pid)


def once(code: Callable[[], object]) -> int:
    """Run code in a fork of its own; return the exit status."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        status = int(bool(code()))
    finally:
        sys.stdout.flush()
        os._exit(status)


class Area:
    """The tests of an area, and the results of its modules."""

    def __init__(self, tests: list[str], results: list[str], seconds: float) -> None:
        self._tests = tests
        self._most = seconds
        self._files = {each: json.loads(Path(each).read_text("utf-8")) for each in results}
        name = hashlib.sha256(repr(tests).encode()).hexdigest()[:12]
        self._data = TREE.parent / f"tests-{name}.coverage"
        self._facts = self._data.with_suffix(".json")
        self._kills: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._lines: dict[str, dict[int, set[str]]] = {}

    def run(self) -> int:
        """Make every change that has no valid result; return 1 if the tests fail without one."""
        if not (todo := self._todo()):
            return 0
        if self._read_facts().get("key") != self._tree_key() and once(self._unchanged):
            return 1
        facts = self._read_facts()
        self._seconds = facts["seconds"]
        self._lines = {file: self._covered(stored["module"]) for file, stored in self._files.items()}
        for each in facts["imported"]:
            with contextlib.suppress(Exception):
                importlib.import_module(each)
        gc.freeze()
        fast = [each for each in todo if "" not in self._executing(*each)]
        once(lambda: self._pytest(Chosen(lambda session: in_forks(self._fast(session, fast)))))
        self._files = {each: json.loads(Path(each).read_text("utf-8")) for each in self._files}
        in_forks(self._slow(file, mutant) for file, mutant in self._todo())
        return int(any(self._todo()))

    def _todo(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the changes to make, those that a test has detected before last."""
        found = [
            (file, mutant)
            for file, stored in self._files.items()
            for mutant in stored["mutants"]
            if not self._is_valid(stored["source"], mutant["result"])
        ]
        return sorted(found, key=lambda each: bool((each[1]["result"] or {}).get("killer")))

    def _read_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._facts.read_text("utf-8")) if self._facts.exists() else {}
        return facts

    def _pytest(self, plugin: object, *options: str) -> int:
        return int(pytest.main([*_OPTIONS, *options, *self._tests], plugins=[plugin]))

    def _unchanged(self) -> int:
        """Run all tests without a change, and store which lines each executes."""
        settings = self._data.with_suffix(".ini")
        settings.write_text(f"[run]\ndata_file = {self._data}\n", encoding="utf-8")
        packages = {f"--cov={stored['module'].split('/')[0]}" for stored in self._files.values()}
        plugin = Unchanged()
        options = ("--cov-context=test", "--cov-report=", f"--cov-config={settings}", *packages)
        status = self._pytest(plugin, *options)
        imported = [
            name
            for name, module in sys.modules.items()
            if "site-packages" in (getattr(module, "__file__", None) or "") and "pytest" not in name
        ]
        facts = {"key": None if status else self._tree_key(), "seconds": plugin.seconds, "imported": imported}
        self._facts.write_text(json.dumps(facts), "utf-8")
        return status

    def _covered(self, module: str) -> dict[int, set[str]]:
        """Return the tests that execute each line; an empty name stands for an import."""
        data = CoverageData(str(self._data))
        data.read()
        lines = data.contexts_by_lineno(str(TREE / module))
        return {line: {each.rpartition("|")[0] for each in tests} for line, tests in lines.items()}

    def _executing(self, file: str, mutant: dict[str, Any]) -> set[str]:
        lines = self._lines[file]
        return set().union(*(lines.get(line, ()) for line in range(*mutant["statement"])))

    def _ordered(self, tests: Iterable[str], mutant: dict[str, Any]) -> list[str]:
        """Return the tests in the order in which they run, first the one that detected the change before."""
        before = (mutant["result"] or {}).get("killer")
        costs = {each: self._seconds[each] / (1 + self._kills[each]) for each in tests}
        return sorted(tests, key=lambda each: (each != before, costs[each]))

    def _cut(self, tests: Sequence[str]) -> list[str]:
        """Return the first tests, for as many seconds as a change may take."""
        totals = itertools.accumulate(self._seconds[each] for each in tests)
        return [each for each, total in zip(tests, totals, strict=True) if total <= self._most]

    def _limit(self, tests: Iterable[str]) -> float:
        return _LEAST + _TOO_LONG * sum(self._seconds[each] for each in tests)

    def _fast(
        self, session: pytest.Session, todo: list[tuple[str, dict[str, Any]]]
    ) -> Iterator[tuple[float, Callable[[], str], Callable[[str], None]]]:
        gc.freeze()
        for file, mutant in todo:
            every = self._ordered(self._executing(file, mutant), mutant)
            tests = self._cut(every)
            stored = self._files[file]

            def code(stored: Any = stored, mutant: Any = mutant, tests: list[str] = tests) -> str:
                gc.unfreeze()
                change_functions(stored["module"], stored["source"], _mutated(stored["source"], mutant))
                return first_failure(session, tests, self._seconds) or "-"

            yield self._limit(tests), code, self._done(file, mutant, len(every) - len(tests))

    def _slow(
        self, file: str, mutant: dict[str, Any]
    ) -> tuple[float, Callable[[], str], Callable[[str], None]]:
        stored = self._files[file]
        near = set().union(*self._lines[file].values()) - {""}
        every = [*self._ordered(near, mutant), *self._ordered(set(self._seconds) - near, mutant)]
        tests = self._cut(every)

        def code() -> str:
            found = ["collecting"]
            sys.meta_path.insert(0, Changed(stored["module"], _mutated(stored["source"], mutant)))
            status = self._pytest(
                Chosen(lambda session: found.append(first_failure(session, tests, self._seconds) or "-"))
            )
            if status == pytest.ExitCode.INTERNAL_ERROR:
                raise RuntimeError(status)
            return found[-1]

        return self._limit(tests), code, self._done(file, mutant, len(every) - len(tests))

    def _done(self, file: str, mutant: dict[str, Any], left_out: int) -> Callable[[str], None]:
        stored = self._files[file]

        def done(killer: str) -> None:
            if killer.startswith(_FAILED):
                print(f"not run  {stored['module']}:{mutant['begin'] + 1} {killer}", flush=True)
                return
            killer = "" if killer == "-" else killer
            self._kills[killer] += 1
            mutant["result"] = {
                "killer": killer,
                "key": self._key(stored["source"], killer),
                "seconds": self._most if left_out else None,
            }
            written = Path(file).with_suffix(".new")
            written.write_text(json.dumps(stored), encoding="utf-8")
            written.replace(file)
            name = f"{stored['module']}:{mutant['begin'] + 1}"
            print(f"{'killed  ' if killer else 'SURVIVED'} {name} {killer}", flush=True)

        return done

    def _is_valid(self, source: str, result: dict[str, Any] | None) -> bool:
        if not result or result["key"] != self._key(source, result["killer"]):
            return False
        return bool(result["killer"]) or result["seconds"] is None or result["seconds"] >= self._most

    def _key(self, source: str, killer: str) -> str:
        """Return what a result depends on: the module, and the test that failed, or all tests of the area."""
        test = TREE / killer.partition("::")[0]
        every = (TREE / each for each in self._tests)
        files = [test] if test.is_file() else [*itertools.chain(*map(_files, every))]
        return _hash(source.encode(), *(each.read_bytes() for each in files))

    def _tree_key(self) -> str:
        return _hash(*(each.read_bytes() for each in _files(TREE)))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _hash(*texts: bytes) -> str:
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def _mutated(source: str, mutant: dict[str, Any]) -> str:
    lines = source.splitlines()
    lines[mutant["begin"] : mutant["end"]] = mutant["lines"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(Area(**json.loads(sys.argv[1])).run())
