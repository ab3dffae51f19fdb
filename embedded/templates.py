"""Renders the servers' configuration files from the templates in ``yarn-conf/``."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from standby.errors import BadConfiguration


def render(template: Path, values: Mapping[str, object]) -> str:
    """Return the template's text with each ``${name}`` replaced. Raises :class:`BadConfiguration`."""
    try:
        return string.Template(template.read_text(encoding="utf-8")).substitute(values)
    except KeyError as error:
        raise BadConfiguration(f"{template} requires ${{{error.args[0]}}}, which has no value") from error
    except (OSError, ValueError) as error:
        raise BadConfiguration(f"the template {template} cannot be used: {error}") from error


def render_hadoop(templates: Iterable[Path], values: Mapping[str, object]) -> str:
    """Return one Hadoop configuration file; if two templates set a property, the later one wins.

    Raises :class:`BadConfiguration` for a template that is not a Hadoop configuration file.
    """
    properties: dict[str, str] = {}
    for template in templates:
        try:
            root = ET.parse(template).getroot()  # noqa: S314 - our own file, not a stranger's
        except (OSError, ET.ParseError) as error:
            raise BadConfiguration(f"the template {template} cannot be used: {error}") from error
        for each in root.iter("property"):
            name, value = each.findtext("name"), each.findtext("value")
            if name is None or value is None:
                raise BadConfiguration(f"{template} has a property without a name or a value")
            try:
                properties[name] = string.Template(value).substitute(values)
            except KeyError as error:
                raise BadConfiguration(f"{template}: {name} requires ${{{error.args[0]}}}") from error
    return hadoop_xml(properties)


def hadoop_xml(properties: Mapping[str, str]) -> str:
    """Return a Hadoop configuration file that sets ``properties``."""
    root = ET.Element("configuration")
    for name, value in properties.items():
        element = ET.SubElement(root, "property")
        ET.SubElement(element, "name").text = name
        ET.SubElement(element, "value").text = value
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
