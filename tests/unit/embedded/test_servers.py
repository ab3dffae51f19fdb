"""What the servers' command lines are made of."""

from __future__ import annotations

import os
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


@given(st.uuids())
@example(uuid.UUID("ffffffff-ffff-ffff-ffff-ffffffffffff"))
@example(uuid.UUID("f8000000-0000-0000-0000-000000000000"))  # "-A…" in plain base64
def test_kafkas_cluster_id_is_never_taken_for_an_option(cluster_id: uuid.UUID) -> None:
    kafka_id = kafka_cluster_id(str(cluster_id))
    assert len(kafka_id) == 22
    assert kafka_id[0].isalpha()


@pytest.fixture
def client_bin(tmp_path: Path) -> Path:
    """Return the directory with the command `yarn` that clients have first on their PATH."""
    directory = tmp_path / "a home's"
    blueprint = Blueprint(
        directory=directory,
        cluster_id=str(uuid.uuid4()),
        java=Java(Path("/java"), 17),
        jars={"hadoop": tmp_path / "the jars"},
        ports=defaultdict(lambda: 1),
        host_memory_mb=1024,
        host_vcores=1,
        environment={},
    )
    blueprint.write_client()
    return blueprint.client_bin


def yarn(client_bin: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{client_bin}:{path}:{os.environ['PATH']}"}
    return subprocess.run(["yarn", *arguments], env=environment, capture_output=True, text=True, check=False)


def test_yarn_of_the_embedded_cluster_tells_skein_the_jars(client_bin: Path, tmp_path: Path) -> None:
    said = yarn(client_bin, "", "classpath", "--glob").stdout
    assert said == f"{client_bin.parent / 'conf'}:{tmp_path / 'the jars'}/*\n"


def test_yarn_of_the_embedded_cluster_hands_all_else_on_to_the_real_one(
    client_bin: Path, tmp_path: Path
) -> None:
    real = tmp_path / "real yarn" / "yarn"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nprintf "the real one: %s" "$2"\nexit 3\n', encoding="utf-8")
    real.chmod(0o755)
    done = yarn(client_bin, str(real.parent), "application", "-list all")
    assert (done.returncode, done.stdout) == (3, "the real one: -list all")


def test_without_a_real_yarn_the_embedded_one_says_what_it_is(client_bin: Path) -> None:
    done = yarn(client_bin, "", "version")
    assert done.returncode == 127
    assert "embedded cluster has only `yarn classpath --glob`" in done.stderr


def test_user_without_a_name_is_told_that_hadoop_needs_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jars = {"hadoop": tmp_path / "jars"}
    blueprint = Blueprint(tmp_path, str(uuid.uuid4()), Java(tmp_path / "java", 17), jars, {}, 1, 1, {})
    monkeypatch.setattr("os.geteuid", lambda: 1 << 30)
    with pytest.raises(Unavailable, match=rf"uid {1 << 30} has no entry in the user database"):
        blueprint.write_client()
