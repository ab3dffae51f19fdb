"""The client's configuration as Hadoop's own reader has it: every property of many files, compared."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from appmaster.cli.shared import hadoop_conf
from embedded.jars.cache import open_cache
from embedded.java import LEAN, find_java
from standby.errors import BadConfiguration
from tests.patience import PATIENCE_SECONDS

#: Prints each property of what lies on the class path: its name, and its value with the variables filled in.
DUMP = """
import org.apache.hadoop.conf.Configuration;
public class Dump {
  public static void main(String[] none) {
    Configuration read = new Configuration(false);
    read.addResource("core-site.xml");
    read.addResource("yarn-site.xml");
    read.forEach(each -> {
      String value;
      try { value = read.get(each.getKey()); } catch (IllegalStateException endless) { value = "endless"; }
      System.out.println(each.getKey() + "=" + value);
    });
  }
}
"""

CORE = """
<configuration>
  <property><name>final</name><value>core</value><final>true</final></property>
  <property><name>final.spaced</name><value>core</value><final> true </final></property>
  <property name="final.short" value="core" final="true"/>
  <property><name>final.empty</name><final>true</final></property>
  <property><name>base</name><value>B</value></property>
  <property><name>base.two</name><value>two</value></property>
  <property><name>overridden</name><value>core</value></property>
  <property><name> spaced </name><value> kept </value></property>
</configuration>
"""

YARN = """<?xml version="1.0"?>
<!DOCTYPE configuration [<!ENTITY domain "example.com">]>
<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
  <xi:include href="common.xml"/>
  <xi:include href="sub/deep.xml"/>
  <xi:include href="second.xml">
    <xi:fallback><property><name>not.needed</name><value>1</value></property></xi:fallback>
  </xi:include>
  <xi:include href="{absolute}"/>
  <xi:include href="file:{absolute}"/>
  <xi:include href="missing.xml">
    <xi:fallback><property><name>fallen</name><value>1</value></property></xi:fallback>
  </xi:include>
  <xi:include href="missing.xml"><xi:fallback/></xi:include>
  <property><name>final</name><value>yarn</value></property>
  <property><name>final.spaced</name><value>yarn</value></property>
  <property><name>final.short</name><value>yarn</value></property>
  <property><name>final.empty</name><value>yarn</value></property>
  <property><name>final.twice</name><value>1</value><final>true</final></property>
  <property><name>final.twice</name><value>2</value></property>
  <property><name>overridden</name><value>yarn</value></property>
  <property><name>included</name><value>after</value></property>
  <property><name>empty.after</name><value>x</value></property>
  <property><name>empty.after</name><value></value></property>
  <property><name>empty</name><value></value></property>
  <property><name>blank</name><value> </value></property>
  <property><name>parts</name><value>a<!-- not this -->b<![CDATA[<c>]]>&domain;</value></property>
  <property><value>nameless</value></property>
  <property><name>reference</name><value>${base}/x</value></property>
  <property><name>later</name><value>${earlier}</value></property>
  <property><name>earlier</name><value>E</value></property>
  <property><name>twice</name><value>${base}${base}</value></property>
  <property><name>suffix</name><value>two</value></property>
  <property><name>nested</name><value>${base.${suffix}}</value></property>
  <property><name>loop.one</name><value>1${loop.two}</value></property>
  <property><name>loop.two</name><value>2${loop.one}</value></property>
  <property><name>loop.self</name><value>x${loop.self}</value></property>
  <property><name>no.variable</name><value>${a b} $base $${base} ${} ${</value></property>
  <property><name>unbound</name><value>${base} ${nobody.has.this} ${base}</value></property>
  <property><name>system.user</name><value>${user.name} ${user.home} ${user.dir}</value></property>
  <property><name>system.host</name><value>${java.io.tmpdir} ${os.name}${line.separator}</value></property>
  <property><name>system.parts</name><value>${file.separator}${path.separator}</value></property>
  <property><name>most</name><value>{most}</value></property>
  <property><name>more</name><value>{more}</value></property>
  <property><name>env.set</name><value>${env.SET} ${env.SET:-d} ${env.SET-d}</value></property>
  <property><name>env.empty</name><value>${env.EMPTY}/${env.EMPTY:-d}/${env.EMPTY-d}</value></property>
  <property><name>env.unset</name><value>${env.UNSET:-d}/${env.UNSET-d-e:-f}/${env.UNSET:-}</value></property>
  <property><name>env.unset.nested</name><value>${env.UNSET:-${base}}/${env.UNSET}</value></property>
  <property><name>env.colon</name><value>${env.UNSET:d}</value></property>
  <property><name>env.nameless</name><value>${env.}</value></property>
  <configuration><property><name>inner</name><value>1</value></property></configuration>
  <other><property><name>other</name><value>1</value></property></other>
</configuration>
"""


def one(name: str) -> str:
    return f"<configuration><property><name>{name}</name><value>{name}</value></property></configuration>"


def test_every_property_is_as_hadoop_has_it(tmp_path: Path) -> None:
    first, second, elsewhere = (tmp_path / each for each in ("first", "second", "elsewhere"))
    for each in (first / "sub", second, elsewhere):
        each.mkdir(parents=True)
    absolute = elsewhere / "absolute.xml"
    bounds = {"{most}": "${base}" * 19, "{more}": "${base}" * 20, "{absolute}": str(absolute)}
    yarn = YARN
    for mark, text in bounds.items():
        yarn = yarn.replace(mark, text)
    files = {
        first / "yarn-site.xml": yarn,
        first / "common.xml": one("included"),
        first / "sub" / "deep.xml": '<configuration><include href="sub/deeper.xml"/></configuration>',
        first / "sub" / "deeper.xml": one("deeper"),
        second / "core-site.xml": CORE,
        second / "second.xml": one("second"),
        second / "yarn-site.xml": one("the.second.of.this.name"),
        absolute: one("absolute"),
        tmp_path / "Dump.java": DUMP,
    }
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    environment = {**os.environ, "SET": "s", "EMPTY": ""}
    environment.pop("UNSET", None)
    java = find_java(environment)
    places = os.pathsep.join(map(str, (first, second, *open_cache().classpath("hadoop"))))
    found = subprocess.check_output(
        [java.command, *LEAN, "-cp", places, tmp_path / "Dump.java"],
        env=environment,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    read = hadoop_conf.read([first, second], environment)
    ours = "\n".join(f"{name}={value(read, name)}" for name in read.raw)
    assert sorted(ours.splitlines()) == sorted(found.splitlines())
    assert read.get("absolute") == "absolute"


def value(read: hadoop_conf.HadoopConfiguration, name: str) -> str | None:
    try:
        return read.get(name)
    except BadConfiguration:
        return "endless"


@pytest.mark.parametrize("text", ["<configuration>", "<configuration>&unknown;</configuration>"])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "yarn-site.xml").write_text(text, encoding="utf-8")
    with pytest.raises(BadConfiguration, match=r"yarn-site\.xml: Hadoop's configuration cannot be read"):
        hadoop_conf.read([tmp_path], {})
