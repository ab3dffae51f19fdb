"""The client's Hadoop configuration, read as Hadoop's own ``Configuration`` reads it. All code here reads it so.

``core-site.xml`` comes before ``yarn-site.xml``, each from the first directory of the class path that has it. Supported
are XIncludes with their fallbacks, ``final``, and variables of the environment, of Java's system properties, and of
other properties. Hadoop's own defaults (``*-default.xml``) are in its jars, which are not read: a reference to one of
them stays a variable, which Hadoop substitutes when it reads the result.

An include is looked for on the class path, as Hadoop does, and otherwise relative to the including file, as XInclude
and older releases of Hadoop do.
"""

from __future__ import annotations

import os
import pwd
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from standby.errors import BadConfiguration

YARN_SITE: Final = "yarn-site.xml"
_FILES: Final = ("core-site.xml", YARN_SITE)

#: Hadoop's limit of substitutions in one value; it already rejects the last one.
_MOST_SUBSTITUTIONS: Final = 20

#: The innermost variable: a name contains none of these characters.
_VARIABLE: Final = re.compile(r"\$\{([^}$ ]+)\}")

#: ``${env.NAME}``, with the value to use if it is not set (``-``), or also if it is empty (``:-``).
_OF_ENVIRONMENT: Final = re.compile(r"env\.(.*?)(?:(:?-)(.*))?", re.DOTALL)

_PARTS_OF_VARIABLES: Final = frozenset("${}")

#: Java's system properties that depend on the host, not on the user who submits.
_OF_HOST: Final = ("java.io.tmpdir", "user.dir", "user.home")


@dataclass(frozen=True, slots=True)
class Property:
    """A property as the files have it, without substitution."""

    name: str
    value: str | None
    """None: named without a value, which keeps an earlier value."""
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class HadoopConfiguration:
    """The content of a client's files."""

    raw: Mapping[str, str]
    """All properties together."""
    yarn_site: tuple[Property, ...]
    """``yarn-site.xml`` with its includes, each property once."""
    environment: Mapping[str, str]

    def get(self, name: str) -> str | None:
        """Return the value of a property, None if the files do not have it.

        A variable without a value stays, together with what follows it. Raises `BadConfiguration` if substitution never
        ends.
        """
        written = self.raw.get(name)
        return None if written is None else self._filled(name, written)

    def _filled(self, name: str, written: str) -> str:
        value, system = written, _system_properties()
        for _ in range(_MOST_SUBSTITUTIONS):
            found = _VARIABLE.search(value)
            if found is None:
                return value
            known = self._value(found[1], system)
            if known is None:
                return value
            if found[0] in known:
                return written
            value = value[: found.start()] + known + value[found.end() :]
        raise _endless(name, written)

    def shipped(self) -> tuple[Property, ...]:
        """Return `yarn_site` in a form that means the same on another host, where included files do not exist.

        Variables are substituted, except those that depend on the host, and those that only Hadoop's defaults define.
        A variable of the environment gets the client's value on a host that does not have it.
        """
        system = {name: value for name, value in _system_properties().items() if name not in _OF_HOST}
        return tuple(
            each if each.value is None else replace(each, value=self._for_others(each.value, system))
            for each in self.yarn_site
        )

    def _for_others(self, written: str, system: Mapping[str, str]) -> str:
        value, start, count = written, 0, 0
        while (found := _VARIABLE.search(value, start)) is not None:
            known = self._value(found[1], system)
            if known is None or found[1] in _OF_HOST:
                start = found.end()
                continue
            count += 1
            if found[0] in known or count == _MOST_SUBSTITUTIONS:
                # Reading it on the other host then gives the error that it does not end.
                return written
            of_environment = _OF_ENVIRONMENT.fullmatch(found[1])
            if of_environment is None or _PARTS_OF_VARIABLES & set(known):
                # From the beginning, because it may have completed the name of a variable around it.
                filled, start = known, 0
            else:
                # The host's own value if it has one: paths of its installation are written that way.
                filled = f"${{env.{of_environment[1]}:-{known}}}"
                start = found.start() + len(filled)
            value = value[: found.start()] + filled + value[found.end() :]
        return value

    def _value(self, variable: str, system: Mapping[str, str]) -> str | None:
        of_environment = _OF_ENVIRONMENT.fullmatch(variable)
        if of_environment is not None and variable != "env.":
            name, sign, otherwise = of_environment.groups()
            found = self.environment.get(name)
            if found is None or (sign == ":-" and not found):
                found = otherwise if sign else None
        else:
            found = system.get(variable)
        return self.raw.get(variable) if found is None else found


def read(directories: Sequence[Path], environment: Mapping[str, str] = os.environ) -> HadoopConfiguration:
    """Return the content of the files in ``directories``, the directories of Hadoop's class path, in its order.

    Raises `BadConfiguration` naming the file that cannot be read.
    """
    files = {name: tuple(_read_file(directories, name)) for name in _FILES}
    raw: dict[str, str] = {}
    finals: set[str] = set()
    for items in files.values():
        _load(items, raw, finals)
    values: dict[str, str] = {}
    of_site: set[str] = set()
    _load(files[YARN_SITE], values, of_site)
    names = dict.fromkeys(each.name for each in files[YARN_SITE])
    site = tuple(
        Property(each, values.get(each), each in of_site)
        for each in names
        if each in values or each in of_site
    )
    return HadoopConfiguration(raw, site, environment)


def write(properties: Iterable[Property]) -> bytes:
    """Return a file that sets the properties."""
    root = ET.Element("configuration")
    for each in properties:
        element = ET.SubElement(root, "property")
        ET.SubElement(element, "name").text = each.name
        if each.value is not None:
            ET.SubElement(element, "value").text = each.value
        if each.is_final:
            ET.SubElement(element, "final").text = "true"
    ET.indent(root)
    return ET.tostring(root, encoding="unicode").encode()


def _load(items: Iterable[Property], values: dict[str, str], finals: set[str]) -> None:
    for each in items:
        if each.value is not None and each.name not in finals:
            values[each.name] = each.value
        if each.is_final:
            finals.add(each.name)


def _read_file(directories: Sequence[Path], name: str) -> Iterator[Property]:
    path = _on_class_path(directories, name)
    if path is not None:
        yield from _parse(path, directories, ())


def _on_class_path(directories: Sequence[Path], name: str) -> Path | None:
    return next((each / name for each in directories if (each / name).is_file()), None)


def _parse(path: Path, directories: Sequence[Path], including: tuple[Path, ...]) -> Iterator[Property]:
    if path.resolve() in including:
        raise BadConfiguration(f"{path}: Hadoop's configuration includes this file in itself")
    try:
        root = ET.parse(path).getroot()  # noqa: S314 (the cluster's own configuration)
    except (OSError, ET.ParseError, ValueError) as error:
        raise BadConfiguration(f"{path}: Hadoop's configuration cannot be read: {error}") from error
    yield from _walk(root, path, directories, (*including, path.resolve()))


def _walk(
    element: ET.Element, path: Path, directories: Sequence[Path], including: tuple[Path, ...]
) -> Iterator[Property]:
    for each in element:
        kind = _local(each)
        if kind == "property":
            yield from _property(each)
        elif kind == "include":
            yield from _include(each, path, directories, including)
        else:
            yield from _walk(each, path, directories, including)


def _include(
    element: ET.Element, path: Path, directories: Sequence[Path], including: tuple[Path, ...]
) -> Iterator[Property]:
    href = element.get("href")
    if not href:
        return
    found = _on_class_path(directories, href) or _file(href, path)
    if found is not None:
        yield from _parse(found, directories, including)
        return
    fallbacks = [each for each in element if _local(each) == "fallback"]
    if not fallbacks:
        raise BadConfiguration(
            f"{path}: it includes {href}, which is neither beside it nor in {_list(directories)}, and has no fallback"
        )
    for each in fallbacks:
        yield from _walk(each, path, directories, including)


def _file(href: str, path: Path) -> Path | None:
    """Return the file of an include that is not on the class path; None if there is none."""
    url = urlsplit(href)
    if url.scheme == "file":
        href = unquote(url.path)
    elif url.scheme and url.netloc:
        raise BadConfiguration(
            f"{path}: it includes {href}; only files are read here: put a copy beside it, and include that"
        )
    found = path.parent / href
    return found if found.is_file() else None


def _property(element: ET.Element) -> Iterator[Property]:
    name, value, is_final = element.get("name"), element.get("value"), element.get("final") == "true"
    for each in element:
        text = "".join(each.itertext())
        kind = _local(each)
        if kind == "name" and text:
            name = text.strip()
        elif kind == "value" and text:
            value = text
        elif kind == "final":
            is_final = text == "true"
    if name is not None:
        yield Property(name, value, is_final)


def _local(element: ET.Element) -> str:
    """Return an element's name without its namespace, which Hadoop ignores."""
    return str(element.tag).rpartition("}")[2]


def _system_properties() -> dict[str, str]:
    """Return the Java system properties that configurations use, with the values of a command's JVM."""
    found = {"file.separator": "/", "path.separator": ":", "line.separator": "\n", "os.name": "Linux"}
    try:
        user = pwd.getpwuid(os.geteuid())
    except KeyError:
        pass  # a JVM would use "?"; no submit gets that far
    else:
        found |= {"user.name": user.pw_name, "user.home": user.pw_dir}
    return {**found, "user.dir": str(Path.cwd()), "java.io.tmpdir": "/tmp"}  # noqa: S108 (Java's, whatever TMPDIR says)


def _list(directories: Sequence[Path]) -> str:
    return ", ".join(map(str, directories))


def _endless(name: str, written: str) -> BadConfiguration:
    return BadConfiguration(
        f"Hadoop's configuration: {name}={written}: more than {_MOST_SUBSTITUTIONS - 1} variables are filled in one "
        "after the other; does one of them refer to itself?"
    )
