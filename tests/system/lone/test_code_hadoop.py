"""Code through the cluster's file system: Hadoop's shell on the embedded cluster's viewfs, without YARN."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from appmaster.adapters.code.distributors import DistributorChain
from appmaster.adapters.code.hadoop import HadoopCode, find_shell
from embedded.jars.cache import open_cache
from embedded.java import find_java
from embedded.servers import PORTS, RESOURCE_MANAGER, Blueprint
from standby.adapters.peers.code import PeerCode
from standby.code import bundles
from standby.errors import BadConfiguration, Transient, Unavailable
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.patience import PATIENCE_SECONDS

DATA = b"not even a zip " * 20_000
DIGEST = bundles.digest_of(DATA)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a client of the embedded cluster, whose servers do not run."""
    cache = open_cache()
    cache.require("hadoop")
    directory = tmp_path_factory.mktemp("hadoop")
    java = find_java(os.environ)
    blueprint = Blueprint(
        directory=directory,
        cluster_id=str(uuid.uuid4()),
        java=java,
        jars={"hadoop": cache.path("hadoop")},
        ports={f"{RESOURCE_MANAGER}.{each}": 1 for each in PORTS[RESOURCE_MANAGER]},
        host_memory_mb=1,
        host_vcores=1,
        environment=os.environ,
    )
    blueprint.write_client()
    path = f"{blueprint.client_bin}{os.pathsep}{java.command.parent}{os.pathsep}{os.defpath}"
    return {"PATH": path, "FILES": str(directory / "files")}


@pytest.fixture
def code(environment: dict[str, str]) -> HadoopCode:
    return HadoopCode(find_shell(environment), "standfast/c/code", environment)


def stored(environment: dict[str, str]) -> list[str]:
    """Return the files below every user's home."""
    homes = Path(environment["FILES"]) / "user"
    return sorted(each.name for each in homes.rglob("*.zip") if not each.name.startswith(".."))


def test_what_one_candidate_publishes_another_one_fetches_whole(
    code: HadoopCode, environment: dict[str, str], tmp_path: Path
) -> None:
    source, part = tmp_path / DIGEST, tmp_path / "part"
    source.write_bytes(DATA)
    with pytest.raises(Transient, match="No such file"):
        code.fetch(DIGEST, (), part)
    buried: list[str] = []

    def bury() -> bool:
        buried.append(DIGEST)
        return len(buried) != 2

    code.forget(DIGEST, bury)
    assert buried == [DIGEST], "it was never published"
    code.publish(DIGEST, source)
    code.forget(DIGEST, bury)
    assert len(buried) == 2, "it is wanted again"
    assert stored(environment) == [f"{DIGEST}.zip"]
    part.write_bytes(b"half of it from elsewhere")
    other = HadoopCode(find_shell(environment), "standfast/c/code", environment)
    other.fetch(DIGEST, (), part)
    assert part.read_bytes() == DATA
    # Once more, by a client that does not know that it is there: nothing is written.
    source.unlink()
    HadoopCode(find_shell(environment), "standfast/c/code", environment).publish(DIGEST, source)
    other.forget(DIGEST, lambda: True)
    assert stored(environment) == []
    # The same code once more, by one that does not know that it was removed.
    source.write_bytes(DATA)
    directory = (
        next(each.parent for each in Path(environment["FILES"]).rglob("code") if each.is_dir()) / "code"
    )
    abandoned = [f".{DIGEST}.{1_700_000_000_000}.{'a' * 32}{suffix}" for suffix in ("", "._COPYING_")]
    for each in abandoned:
        (directory / each).touch()
    code.publish(DIGEST, source)
    assert stored(environment) == [f"{DIGEST}.zip"]
    other.forget(DIGEST, lambda: True)
    drafts = [each for each in Path(environment["FILES"]).rglob("*") if DIGEST in each.name]
    assert drafts == [], "no draft is left"


def test_without_the_file_system_candidates_fetch_from_each_other(
    environment: dict[str, str], tmp_path: Path
) -> None:
    way = DistributorChain(
        PeerCode(keys_of(PeerRole.MASTER).client_context),
        lambda _: b"",
        HadoopCode(find_shell(environment), "/nowhere/at/all", environment),
    )
    with pytest.raises(Transient, match=f"(?s)nowhere.*; no known holder of bundle {DIGEST}"):
        way.fetch(DIGEST, (), tmp_path / "part")


def test_calls_that_are_under_way_are_ended_and_later_ones_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "hadoop"
    for each in ("-get", "-mv"):
        os.mkfifo(tmp_path / each)
    # Says which call it is once it runs.
    script.write_text(f"#!/bin/sh\necho x > {tmp_path}/$2\nexec sleep 600\n")
    script.chmod(0o755)
    code = HadoopCode([str(script), "fs"], "d")
    failed: list[str] = []

    def fail(call: Callable[[], None]) -> None:
        with pytest.raises(Transient) as caught:
            call()
        failed.append(str(caught.value))

    def fetch() -> None:
        code.fetch(DIGEST, (), tmp_path / "part")

    calls = (fetch, lambda: code.forget(DIGEST, lambda: True))
    threads = [threading.Thread(target=fail, args=(each,), daemon=True) for each in calls]
    for each, thread in zip(("-get", "-mv"), threads, strict=True):
        thread.start()
        # Opens only once the call runs.
        (tmp_path / each).read_text()
    code.interrupt()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(each.is_alive() for each in threads)
    assert ["exit status" in each for each in failed] == [True, True]
    with pytest.raises(Transient, match="called off"):
        fetch()


def test_the_shell_is_found_where_hadoop_is_installed_or_said_to_be_missing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    shell = find_shell(environment)
    assert shell[0].endswith("java")
    assert shell[-1] == "org.apache.hadoop.fs.FsShell"
    installed = tmp_path / "bin" / "hadoop"
    installed.parent.mkdir()
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o755)
    assert find_shell({**environment, "HADOOP_COMMON_HOME": str(tmp_path)}) == (str(installed), "fs")
    given = find_shell({"PATH": str(Path(shell[0]).parent), "CLASSPATH": "/conf:/jars/*"})
    assert given[-2:] == ("/conf:/jars/*", "org.apache.hadoop.fs.FsShell")
    with pytest.raises(BadConfiguration, match=r"code\.distributor=local"):
        find_shell({"PATH": str(tmp_path)})
    with pytest.raises(Unavailable, match="No such file"):
        HadoopCode([str(tmp_path / "absent")], "d").forget(DIGEST, lambda: True)
