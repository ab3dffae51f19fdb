"""Reads a job file's YAML as a tree of text: every value as it is written, because its key determines its type.

YAML guesses the type of an unquoted value from its characters, and its versions guess differently: with 1.1, which the
library follows, ``0123`` is 83, ``+10:30`` is 630 and ``off`` is false. Nothing is guessed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

from standby.config import shown
from standby.errors import BadConfiguration

_YAML: Final = "tag:yaml.org,2002:"
_TEXT: Final = f"{_YAML}str"
_NULL: Final = f"{_YAML}null"
_MERGE: Final = f"{_YAML}merge"
_COLLECTIONS: Final = (f"{_YAML}map", f"{_YAML}seq")

#: What the library's messages quote of a document, other than single characters.
_QUOTED: Final = re.compile(r"(alias|anchor|handle) '[^']*'")


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, but unquoted values are text, except null and the merge key."""


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver(_NULL, re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_MERGE, re.compile(r"<<\Z"), ["<"])


def read(text: str, is_text: Callable[[str], bool]) -> Any:
    """Return the content of a YAML document: mappings, lists and text; None for nothing, or null.

    ``is_text`` says whether the value of a dotted key is text, so that null might be meant literally. Raises
    `yaml.YAMLError` for invalid YAML, and `BadConfiguration`, with the dotted key, for what cannot be read as it is
    written.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _Check(is_text).value(node, "")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def reason_of(error: yaml.YAMLError) -> str:
    """Return what is wrong with a document, and where, without its text: a line may contain a password."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    said = (
        f"{text} in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else text
        for text, mark in ((error.context, error.context_mark), (error.problem, error.problem_mark))
        if text
    )
    return _QUOTED.sub(r"\1", ": ".join(said))


class _Check:
    """Checks a document before it is constructed, and marks scalars as text where they must be."""

    def __init__(self, is_text: Callable[[str], bool]) -> None:
        self._is_text = is_text
        self._inside: list[yaml.Node] = []

    def value(self, node: yaml.Node, key: str) -> None:
        """Check the value of the dotted ``key``; raises `BadConfiguration`."""
        if isinstance(node, yaml.ScalarNode):
            self._scalar(node, key)
            return
        if node.tag not in _COLLECTIONS:
            raise _tagged(node, key)
        if any(each is node for each in self._inside):
            raise BadConfiguration(f"{key}: refers to itself")
        self._inside.append(node)
        if isinstance(node, yaml.MappingNode):
            self._mapping(node, key)
        else:
            for each in node.value:
                self._item(each, key)
        self._inside.pop()

    def _scalar(self, node: yaml.ScalarNode, key: str) -> None:
        if node.tag == _MERGE:
            node.tag = _TEXT
        if node.tag == _NULL and node.value and self._is_text(key):
            raise _null(node, key)
        if node.tag not in (_TEXT, _NULL):
            raise _tagged(node, key)

    def _item(self, node: yaml.Node, key: str) -> None:
        if isinstance(node, yaml.ScalarNode) and node.tag == _NULL:
            raise _null(node, key) if node.value else BadConfiguration(f"{key}: an item of the list is empty")
        self.value(node, key)

    def _mapping(self, node: yaml.MappingNode, key: str) -> None:
        lines: dict[str, int] = {}
        for name, value in node.value:
            line = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                raise BadConfiguration(f"line {line}: a key must be text")
            full = f"{key}.{name.value}" if key else name.value
            if name.value in lines:
                raise BadConfiguration(
                    f"{full} is given twice, in line {lines[name.value]} and in line {line}; keep one"
                )
            lines[name.value] = line
            if name.tag == _MERGE:
                # The merged mapping counts as written here.
                self.value(value, key)
                continue
            if name.tag not in (_TEXT, _NULL):
                raise _tagged(name, full)
            name.tag = _TEXT
            self.value(value, full)


def _tagged(node: yaml.Node, key: str) -> BadConfiguration:
    tag = node.tag.replace(_YAML, "!!")
    # A password with an exclamation mark in front is taken for one.
    return BadConfiguration(
        f"{key or 'the document'}: the tag {shown(key, tag)} is not supported; write the value without it, or in "
        "quotes if it belongs to the value"
    )


def _null(node: yaml.ScalarNode, key: str) -> BadConfiguration:
    return BadConfiguration(
        f"{key}: {node.value} means no value in YAML; write it in quotes if it is the value, else leave it out"
    )
