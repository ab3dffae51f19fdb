"""What the servers' command lines are made of."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections import defaultdict
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from embedded.java import Java
from embedded.servers import Blueprint, kafka_cluster_id
from standby.errors import Unavailable
from tests.patience import PATIENCE_SECONDS


@given(st.uuids())
@example(uuid.UUID("ffffffff-ffff-ffff-ffff-ffffffffffff"))
@example(uuid.UUID("f8000000-0000-0000-0000-000000000000"))  # "-A…" in plain base64
def test_kafkas_cluster_id_is_never_taken_for_an_option(cluster_id: uuid.UUID) -> None:
    kafka_id = kafka_cluster_id(str(cluster_id))
    assert len(kafka_id) == 22
    assert kafka_id[0].isalpha()


@pytest.fixture
def client_bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory with the command `yarn` that clients have first on their PATH."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    directory = tmp_path / "a home's"
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="ascii")
    java.chmod(0o755)
    blueprint = Blueprint(
        directory=directory,
        cluster_id=str(uuid.uuid4()),
        java=Java(java.parent.parent, 17),
        jars={"hadoop": tmp_path / "the jars"},
        ports=defaultdict(lambda: 1),
        host_memory_mb=1024,
        host_vcores=1,
        environment={},
    )
    blueprint.write_client()
    return blueprint.client_bin


def yarn(client_bin: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Without a real one that this machine may have.
    others = [each for each in os.environ["PATH"].split(":") if not (Path(each) / "yarn").exists()]
    environment = {**os.environ, "PATH": ":".join((str(client_bin), path, *others))}
    return subprocess.run(
        ["yarn", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_yarn_of_the_embedded_cluster_tells_skein_the_jars_and_the_configuration_that_the_user_names(
    client_bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = f"{tmp_path / 'the jars'}/*\n"
    assert yarn(client_bin, "", "classpath", "--glob").stdout == f"{client_bin.parent / 'conf'}:{jars}"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "my conf"))
    assert yarn(client_bin, "", "classpath", "--glob").stdout == f"{tmp_path / 'my conf'}:{jars}"


def test_yarn_of_the_embedded_cluster_hands_all_else_on_to_the_real_one(
    client_bin: Path, tmp_path: Path
) -> None:
    real = tmp_path / "real yarn" / "yarn"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nprintf "the real one: %s" "$2"\nexit 3\n', encoding="utf-8")
    real.chmod(0o755)
    done = yarn(client_bin, str(real.parent), "application", "-list all")
    assert (done.returncode, done.stdout) == (3, "the real one: -list all")


def test_without_a_real_yarn_the_embedded_one_runs_its_clients_and_says_what_it_has(
    client_bin: Path, tmp_path: Path
) -> None:
    clients = "org.apache.hadoop.yarn.client.cli"
    for command, passed in (
        ("application -kill id", f"{clients}.ApplicationCLI application -kill id"),
        ("node -list", f"{clients}.NodeCLI -list"),
    ):
        done = yarn(client_bin, "", *command.split())
        assert done.returncode == 0, done.stderr
        arguments = done.stdout.splitlines()
        assert f"{client_bin.parent / 'conf'}:{tmp_path / 'the jars'}/*" in arguments
        assert " ".join(arguments).endswith(f" {passed}")
    # The cluster's directory has another name on the PATH, as the servers use an alias for a path with a space.
    alias = tmp_path / "alias"
    alias.symlink_to(client_bin)
    done = yarn(alias, f"{client_bin}/", "scmadmin")
    assert done.returncode == 127
    assert re.search(
        "embedded cluster has only classpath, .*application.*, and no other yarn is on", done.stderr
    )


def test_user_without_a_name_is_told_that_hadoop_needs_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jars = {"hadoop": tmp_path / "jars"}
    blueprint = Blueprint(tmp_path, str(uuid.uuid4()), Java(tmp_path / "java", 17), jars, {}, 1, 1, {})
    monkeypatch.setattr("os.geteuid", lambda: 1 << 30)
    with pytest.raises(Unavailable, match=rf"uid {1 << 30} has no entry in the user database"):
        blueprint.write_client()
