"""README's own commands, as a new user runs them.

In a virtual environment of her own into which the package is built and installed, in a path with a space, as a user
without rights, with umask 077, without HOME; on an edge node as companies have them, with a proxy, a configuration in
parts, and a part of ZooKeeper. What README says is what is run: nothing here repeats a command of it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from demo.command import ROOT
from embedded.jars.cache import open_cache
from tests.patience import PATIENCE_SECONDS

_NOBODY: Final = 65534

#: What pip builds the package from, and what it installs before.
_SOURCES: Final = ("appmaster", "embedded", "locality", "standby", "third_party", "yarn-conf")
_SOURCE_FILES: Final = ("LICENSE", "README.md", "pyproject.toml", "requirements.lock")

#: Too many megabytes to fetch anew for each run of the tests; the others are fetched by the commands that need them.
_SEEDED: Final = ("hadoop", "kafka", "zookeeper")

#: What would lead the user to somebody else's files, servers and packages.
_UNSET: Final = re.compile(
    r"HOME|USER|LOGNAME|VIRTUAL_ENV|(?:COV|HADOOP|PYTHON|PYTEST|SKEIN|STANDFAST|XDG).*"
)

#: No server of the cluster is to be reached through them: nobody listens there.
_PROXIES: Final = " ".join(
    f"{name}=http://127.0.0.1:9"
    for each in ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
    for name in (each, each.upper())
)

_INCLUDING: Final = """<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
  <xi:include href="yarn-common.xml"/>
</configuration>
"""

#: A second job for the cluster, which README only names.
_OTHER_JOB: Final = """
job: {name: other, modules: [other.py]}
task: {feed: plain, inputs: [flights], step: 'other:step'}
"""
_OTHER_MODULE: Final = """
def step(rows, state, out):
    pass
"""


class User:
    """Somebody with one shell, and with one directory for everything."""

    def __init__(self, directory: Path) -> None:
        """Start the shell in ``directory``, which is the user's from then on."""
        self.directory = directory
        self.project = directory / "project"
        self.home = directory / "home"
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self._said = directory / "said"
        environment = {name: value for name, value in os.environ.items() if not _UNSET.fullmatch(name)}
        environment |= {
            "TMPDIR": str(self.temporary),
            "STANDFAST_HOME": str(self.home),
            "STANDFAST_CACHE": str(directory / "cache"),
            # What the build itself requires is there, and need not be fetched.
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_NO_CACHE_DIR": "1",
        }
        own = Path(os.environ.get("STANDFAST_IVY_SETTINGS") or Path.home() / ".ivy2" / "ivysettings.xml")
        if own.is_file():
            environment["STANDFAST_IVY_SETTINGS"] = str(own)
        self._shell = subprocess.Popen(
            [*_without_rights(directory), "bash", "-c", "umask 077; exec bash"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def shell(self) -> int:
        """The shell's process id."""
        return self._shell.pid

    def runs(self, command: str) -> str:
        """Run a command in the user's shell; return what it says, after checking that its exit status is 0."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        begin = time.monotonic()
        said = shlex.quote(str(self._said))
        self._shell.stdin.write(f"{{ {command}\n}} >{said} 2>&1 </dev/null; echo $?\n")
        self._shell.stdin.flush()
        status = self._shell.stdout.readline().strip()
        print(f"{time.monotonic() - begin:6.1f} s  {command}")
        text = self._said.read_text(encoding="utf-8", errors="replace")
        assert status == "0", f"exit {status}: {command}\n{text[-6000:]}"
        return text

    def close(self) -> None:
        """End the shell."""
        self._shell.communicate(timeout=PATIENCE_SECONDS)


def _without_rights(directory: Path) -> Sequence[str]:
    """Return what runs a command as an ordinary user, to whom ``directory`` is given."""
    if os.geteuid():
        return ()
    for each in (directory, *directory.rglob("*")):
        os.chown(each, _NOBODY, _NOBODY, follow_symlinks=False)
    # The tests' interpreter and its packages may lie where only root looks: reading is the one right that is kept.
    return (
        *("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
        *("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--"),
    )


@pytest.fixture
def user() -> Iterator[User]:
    """A user with the project's files, a virtual environment, and the jars of the servers."""
    directory = Path(tempfile.mkdtemp(prefix="standfast user's ", dir="/tmp"))
    try:
        _furnish(directory)
        made = User(directory)
        try:
            yield made
        finally:
            # However far the test came. What happened is shown if it failed.
            print(made.runs("if command -v standfast; then standfast events flights || true; fi"))
            made.runs("if command -v standfast; then standfast local down; fi")
            made.close()
    finally:
        shutil.rmtree(directory)


def _furnish(directory: Path) -> None:
    for each in _SOURCES:
        shutil.copytree(ROOT / each, directory / "project" / each)
    for each in _SOURCE_FILES:
        shutil.copy(ROOT / each, directory / "project")
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    # The dependencies are those of the tests, under paths of the user's: only standfast itself is installed.
    shared = [each for each in sys.path if Path(each).name == "site-packages"]
    links = [directory / f"packages {number}" for number in range(len(shared))]
    for link, packages in zip(links, shared, strict=True):
        link.symlink_to(packages)
    (own,) = (directory / "venv" / "lib").glob("python3.*/site-packages")
    (own / "shared.pth").write_text("".join(f"{each}\n" for each in links), encoding="utf-8")
    cache = open_cache()
    cache.require(*_SEEDED)
    for each in _SEEDED:
        shutil.copytree(cache.path(each), directory / "cache" / "jars" / cache.path(each).name)


@pytest.mark.timeout(15 * PATIENCE_SECONDS)
def test_readme_does_what_it_says(user: User) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (job,), (module,) = blocks(text, "yaml"), blocks(text, "python")
    state = user.directory / "state"
    here = f"job.state.dir: {json.dumps(str(state))}\n"
    for name, content in (
        ("flights.yaml", job + here),
        ("flights.py", module),
        ("other.yaml", _OTHER_JOB + here),
        ("other.py", _OTHER_MODULE),
    ):
        (user.project / name).write_text(content, encoding="utf-8")
    edge, local, *work, end = map(commands, blocks(text.partition("## Run it\n")[2], ""))

    user.runs(f"cd {shlex.quote(str(user.project))} && . ../venv/bin/activate")
    installing = [each for each in edge if each.startswith("pip ")]
    for each in (*installing, *local):
        user.runs(each)
    servers = json.loads(user.runs("standfast local env --json"))
    # Nobody has made this node yet.
    zookeeper = f"{servers['STANDFAST_ZOOKEEPER']}/apps/users"
    stand_ins = {
        "/etc/hadoop/conf": str(in_parts(Path(servers["HADOOP_CONF_DIR"]), user.directory / "conf")),
        "broker1:9092": servers["STANDFAST_KAFKA"],
        "zk1:2181": zookeeper,
        "host7": "127.0.0.13",
    }
    user.runs("unset HADOOP_CONF_DIR STANDFAST_KAFKA STANDFAST_ZOOKEEPER no_proxy NO_PROXY")
    user.runs(f"export {_PROXIES}")
    met = set()
    for each in (*edge[len(installing) :], *chain(*work)):
        command = each
        for name, value in stand_ins.items():
            if name in command:
                command = command.replace(name, shlex.quote(value))
                met.add(name)
        if command.startswith("standfast update"):
            with (user.project / "flights.py").open("a", encoding="utf-8") as code:
                code.write("\n# The same, but for this line.\n")
        said = user.runs(command)
        if command.startswith("standfast get"):
            assert said.splitlines()[-1] == "1"
    assert met == set(stand_ins)

    admin = AdminClient({"bootstrap.servers": servers["STANDFAST_KAFKA"]})
    topics = {
        each for each in admin.list_topics(timeout=PATIENCE_SECONDS).topics if not each.startswith("__")
    }
    assert topics == {"flights", "flight-delays"}
    for each in (zookeeper, servers["STANDFAST_ZOOKEEPER"]):
        assert list(nodes(each, "/standfast")) == []
    assert [each for each in state.rglob("*") if not each.is_dir()] == []
    cluster_id = (user.home / "local" / "default" / "cluster-id").read_text(encoding="ascii").strip()
    for each in end:
        user.runs(each)
    assert list(processes_with(cluster_id, str(user.home), but=user.shell)) == []
    left = chain(user.home.rglob("*"), user.temporary.iterdir())
    assert [each for each in left if not each.is_dir()] == []
    assert list(Path("/tmp").glob(f"*{cluster_id}*")) == []


def in_parts(configuration: Path, directory: Path) -> Path:
    """Return a copy of Hadoop's configuration whose yarn-site.xml includes another file."""
    shutil.copytree(configuration, directory)
    (directory / "yarn-site.xml").rename(directory / "yarn-common.xml")
    (directory / "yarn-site.xml").write_text(_INCLUDING, encoding="utf-8")
    return directory


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language; empty: those of none."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """Return a block's commands, each with its comment; a line that ends with a backslash goes on in the next."""
    return [each for each in re.split(r"(?<!\\)\n", block) if each]


def nodes(connect: str, root: str) -> Iterator[str]:
    """Yield every node below one of ZooKeeper's."""
    client = KazooClient(connect)
    client.start(PATIENCE_SECONDS)
    try:
        waiting = [root]
        while waiting:
            path = waiting.pop()
            if client.exists(path):
                found = [f"{path}/{each}" for each in client.get_children(path)]
                waiting += found
                yield from found
    finally:
        client.stop()
        client.close()


def processes_with(*marks: str, but: int) -> Iterator[str]:
    """Yield the processes whose command or environment has one of the marks, ``but`` one."""
    for process in psutil.process_iter():
        if process.pid == but:
            continue
        try:
            texts = (*process.cmdline(), *process.environ().values())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(mark in text for mark in marks for text in texts):
            yield f"{process.pid} {' '.join(process.cmdline())[:200]}"
