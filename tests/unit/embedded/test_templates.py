from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from embedded.machine.ports import free_ports
from embedded.templates import render, render_hadoop
from standby.errors import BadConfiguration


def template(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def hadoop(directory: Path, name: str, **properties: str) -> Path:
    lines = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>" for key, value in properties.items()
    )
    return template(directory, name, f"<configuration><!-- why -->{lines}</configuration>")


def test_a_template_is_filled_in(tmp_path: Path) -> None:
    assert render(template(tmp_path, "t", "port=${port}\n"), {"port": 1}) == "port=1\n"


def test_a_missing_value_is_named(tmp_path: Path) -> None:
    path = template(tmp_path, "t", "port=${port}\n")
    with pytest.raises(BadConfiguration, match=r"requires \$\{port\}, which has no value"):
        render(path, {})
    with pytest.raises(BadConfiguration, match=r"xml: a requires \$\{port\}"):
        render_hadoop([hadoop(tmp_path, "xml", a="${port}")], {})


def test_the_later_template_counts_and_text_is_escaped(tmp_path: Path) -> None:
    templates = [hadoop(tmp_path, "one", a="1", b="${value}"), hadoop(tmp_path, "two", a="2")]
    root = ET.fromstring(render_hadoop(templates, {"value": "<&>"}))
    assert {each.findtext("name"): each.findtext("value") for each in root} == {"a": "2", "b": "<&>"}


@pytest.mark.parametrize(
    "text", ["", "<configuration>", "<configuration><property><name>a</name></property></configuration>"]
)
def test_what_is_no_hadoop_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadConfiguration, match="broken"):
        render_hadoop([template(tmp_path, "broken", text)], {})


def test_free_ports_are_different_and_none_that_linux_gives_away() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(15_000 <= port <= 32_000 for port in ports)
