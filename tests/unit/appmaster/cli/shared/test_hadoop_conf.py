"""The client's configuration of Hadoop, and what of it goes to masters.

Where the reader agrees with Hadoop's is a contract.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from appmaster.cli.launch.application import granted_attempts, heartbeat_jar
from appmaster.cli.shared import hadoop_conf, yarn
from standby.errors import BadConfiguration

EXPIRY = "yarn.am.liveness-monitor.expiry-interval-ms"


def properties(**values: str) -> str:
    made = (
        f"<property><name>{name.replace('_', '.')}</name><value>{value}</value></property>"
        for name, value in values.items()
    )
    return f"<configuration>{''.join(made)}</configuration>"


def including(*names: str) -> str:
    made = "".join(f'<xi:include href="{each}"/>' for each in names)
    return f'<configuration xmlns:xi="http://www.w3.org/2001/XInclude">{made}</configuration>'


def written(directory: Path, **files: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / f"{name.replace('_', '-')}.xml").write_text(text, encoding="utf-8")
    return directory


def in_jar(jar: Path, to: Path, environment: Mapping[str, str]) -> hadoop_conf.HadoopConfiguration:
    """Return what a master reads of its jar, on a host that has nothing else."""
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(to)
    return hadoop_conf.read([to], environment)


def test_master_has_what_its_client_includes(tmp_path: Path) -> None:
    values = {EXPIRY: "600000", "yarn.resourcemanager.am.max-attempts": "7"}
    common = properties(yarn_resourcemanager_address="rm:8032", **values)
    conf = written(tmp_path / "conf", yarn_site=including("sub/first.xml"))
    # What an included file includes is found beside it.
    written(conf / "sub", first=including("common.xml"), common=common)
    client = hadoop_conf.read([conf])
    assert granted_attempts(client, 9) == 7
    master = in_jar(heartbeat_jar(tmp_path, client, 200), tmp_path / "host", {})
    assert master.get("yarn.resourcemanager.address") == "rm:8032"
    assert master.get(EXPIRY) == "400"
    assert set(master.raw) == set(client.raw)


def test_variables_are_the_clients_where_a_host_has_none(tmp_path: Path) -> None:
    conf = written(
        tmp_path / "conf",
        core_site=properties(domain="example"),
        yarn_site=properties(
            address="${env.RM}.${domain}",
            nested="${env.RM:-x}${env.${which}}",
            which="RM",
            odd="${env.ODD}/${domain}",
            home="${env.HADOOP_HOME:-/opt}/lib",
            logs="${java.io.tmpdir}/${user.name}/${hadoop.tmp.dir}/${domain}",
        ),
    )
    client = hadoop_conf.read([conf], {"RM": "rm1", "ODD": "a}b", "HADOOP_HOME": "/client"})
    jar = heartbeat_jar(tmp_path, client, 200)
    master = in_jar(jar, tmp_path / "host", {"HADOOP_HOME": "/host"})
    assert master.get("address") == "rm1.example"
    assert master.get("odd") == "a}b/example"
    assert master.get("home") == "/host/lib"
    assert master.get("nested") == "rm1rm1"
    user = client._filled("", "${user.name}")
    assert master.raw["logs"] == f"${{java.io.tmpdir}}/{user}/${{hadoop.tmp.dir}}/example"


def test_final_stays_final(tmp_path: Path) -> None:
    text = '<configuration><property name="a" value="1" final="true"/><property name="a" value="2"/></configuration>'
    client = hadoop_conf.read([written(tmp_path / "conf", yarn_site=text)])
    (shipped,) = client.shipped()
    assert shipped == hadoop_conf.Property("a", "1", is_final=True)
    there = written(tmp_path / "host", yarn_site=hadoop_conf.write([shipped]).decode())
    assert hadoop_conf.read([there]).yarn_site == (shipped,)


def test_include_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for number, (included, files, said) in enumerate(
        (
            ("missing.xml", {}, "it includes missing.xml, which is neither beside it nor in .*conf"),
            ("http://h/a.xml", {}, "it includes http://h/a.xml; only files are read here"),
            ("a.xml", {"a": including("yarn-site.xml")}, "includes this file in itself"),
            ("a.xml", {"a": "<configuration>"}, r"conf/a\.xml: Hadoop's configuration cannot be read"),
        )
    ):
        conf = written(tmp_path / str(number) / "conf", yarn_site=including(included), **files)
        with pytest.raises(BadConfiguration, match=said):
            hadoop_conf.read([conf])


def test_variable_that_never_ends_is_named(tmp_path: Path) -> None:
    conf = written(tmp_path, yarn_site=properties(a="1${b}", b="2${a}", c="${c}"))
    read = hadoop_conf.read([conf])
    with pytest.raises(BadConfiguration, match=re.escape("a=1${b}: more than 19 variables")):
        read.get("a")
    assert {each.name: each.value for each in read.shipped()} == read.raw
    assert read.get("c") == "${c}"


def command(directory: Path, text: str) -> str:
    """Return a PATH with a `yarn` that prints the text."""
    directory.mkdir()
    (directory / "yarn").write_text(
        f"#!/bin/sh\n[ \"$*\" = 'classpath --glob' ] && echo '{text}'\n", encoding="utf-8"
    )
    (directory / "yarn").chmod(0o755)
    return str(directory)


def test_directories_are_those_of_hadoops_class_path(tmp_path: Path) -> None:
    first = written(tmp_path / "first", core_site=properties(a="1"))
    named = written(tmp_path / "named", yarn_site=properties(b="${a}"), core_site=properties(a="2"))
    jar = tmp_path / "some.jar"
    path = command(tmp_path / "bin", f"{first}:{jar}:{named}")
    found = yarn.hadoop_configuration({"HADOOP_CONF_DIR": str(named), "PATH": path})
    assert found.get("b") == "1"
    # Without the command, which is asked for later on, those that are named.
    several = {"HADOOP_CONF_DIR": f"{first}:{named}", "PATH": ""}
    assert yarn.hadoop_configuration(several).get("b") == "1"


def test_directory_that_is_not_on_hadoops_class_path_is_named(tmp_path: Path) -> None:
    named = written(tmp_path / "named", yarn_site=properties(a="1"))
    path = command(tmp_path / "bin", str(tmp_path / "some.jar"))
    with pytest.raises(
        BadConfiguration, match=r"HADOOP_CONF_DIR=.*named: the class path .* has no yarn-site\.xml"
    ):
        yarn.hadoop_configuration({"HADOOP_CONF_DIR": str(named), "PATH": path})
