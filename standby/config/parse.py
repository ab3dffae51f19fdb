"""Parses and validates a configuration, with error messages for everything that is wrong."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from standby.config.checks import contradictions, left_out
from standby.config.kafka import OWNED_BY_KERNEL
from standby.config.keys import ConfigKey
from standby.config.whole import JobConfig, keys
from standby.errors import BadConfiguration
from standby.security import disclosure


def shown(name: str, value: str) -> str:
    """Return a setting's value for display: three asterisks unless it is known to be harmless."""
    return disclosure.shown(name, value, _own_names())


def is_harmless(name: str, value: str) -> bool:
    """Return whether a setting's value is known to be harmless to show."""
    return disclosure.is_harmless(name, value, _own_names())


@cache
def _own_names() -> frozenset[str]:
    """Return the names of our own settings, including those that a job must not set."""
    return frozenset({*(key.name for key, _ in keys()), *OWNED_BY_KERNEL})


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested configuration as flat dotted keys with text values; lists join with commas.

    ``{"job": {"name": "a", "hotstandby.enabled": True}}`` gives ``{"job.name": "a",
    "job.hotstandby.enabled": "true"}``. Raises `BadConfiguration` when a key is given twice; when a text for a list,
    or one of its items, contains a comma, which would split it; and for items that are empty or surrounded by white
    space.
    """
    flat: dict[str, str] = {}
    lists = {key.name for key, each in keys() if _is_list(each)}

    def put(name: str, value: str) -> None:
        if name in flat:
            raise BadConfiguration(f"{name}: given twice, nested and dotted; keep one")
        flat[name] = value

    for name, value in tree.items():
        full = f"{prefix}{name}"
        if full in lists:
            _check_items(full, value)
        if isinstance(value, Mapping):
            for inner, text in flatten(value, f"{full}.").items():
                put(inner, text)
        elif isinstance(value, (list, tuple)):
            put(full, ",".join(_text(each, full) for each in value))
        elif value is not None:
            put(full, _text(value, full))
    return flat


def is_text(name: str) -> bool:
    """Return whether the value of a key is text, or a list of texts, whose characters must be kept."""
    return _kinds().get(name, "str") not in ("bool", "int")


@cache
def _kinds() -> Mapping[str, str]:
    """Return key → type, for our own keys."""
    return {key.name: str(each.type) for key, each in keys()}


def _is_list(each: dataclasses.Field[Any]) -> bool:
    return str(each.type).startswith("tuple")


def _check_items(name: str, value: object) -> None:
    """Raise `BadConfiguration` for a list that is written as text, with the list that was probably meant.

    Also for an item that would change in the list's text form, where surrounding white space is removed.
    """
    items = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(each, str) and "," in each for each in items):
        parts = (part.strip() for each in items for part in str(each).split(","))
        meant = ", ".join(part for part in parts if part)
        raise BadConfiguration(f"{name}: a text with a comma is not a list; write a list: {name}: [{meant}]")
    if isinstance(value, (list, tuple)):
        for each in items:
            if isinstance(each, str) and (not each or each != each.strip()):
                raise BadConfiguration(
                    f"{name}: {each!r} is empty, or begins or ends with white space; remove that"
                )


def written(value: object) -> str:
    """Return the value of a key as a job file's text: ``true``, ``5000``, ``a,b``."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(value: object, name: str) -> str:
    if isinstance(value, (bool, str, int, float)):
        return written(value)
    given = shown(name, repr(value))
    raise BadConfiguration(f"{name}: {given} is neither text, number, truth value nor a list of those")


def in_one_form(flat: Mapping[str, str]) -> dict[str, str]:
    """Return ``flat`` with the numbers and truth values of our own keys in the form of `written`.

    Text is unchanged. Invalid values are unchanged, too: `parse` refuses them.
    """
    return {name: _in_one_form(_kinds().get(name, "str"), text) for name, text in flat.items()}


def _in_one_form(kind: str, text: str) -> str:
    try:
        return written(_bool(text)) if kind == "bool" else written(_int(text)) if kind == "int" else text
    except ValueError:
        return text


def parse(
    flat: Mapping[str, str], *, is_new: bool = False, present: Mapping[str, str] | None = None
) -> JobConfig:
    """Return the validated configuration in ``flat``.

    ``is_new``: whether it is asked for now, except what is as it is recorded in ``present``. Only then maxima apply: an
    earlier release may have recorded a higher number, and a job that runs with it has to stay readable. Raises
    `BadConfiguration` with all wrong keys and values in one message.
    """
    known = {key.name: (key, each) for key, each in keys()}
    wrong: list[str] = []
    values: dict[str, Any] = {}
    kafka: dict[str, str] = {}
    spark: dict[str, str] = {}
    for name, text in flat.items():
        if name in known:
            key, each = known[name]
            try:
                is_changed = present is None or present.get(name) != text
                values[each.name] = _value(key, str(each.type), text, is_new=is_new and is_changed)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
        elif name in OWNED_BY_KERNEL:
            wrong.append(f"{name}: exactly-once depends on this setting, a job cannot change it; remove it")
        elif name.startswith("kafka."):
            kafka[name[len("kafka.") :]] = text
        elif name.startswith("spark."):
            spark[name] = text
        else:
            near = get_close_matches(name, known, n=1, cutoff=0.7)
            wrong.append(f"{name}: no such key" + (f"; did you mean {near[0]}?" if near else ""))
    for key, each in keys():
        if each.default is dataclasses.MISSING and not flat.get(key.name, ""):
            what = "empty" if key.name in flat else "missing"
            wrong.append(f"{key.name}: {what}; {key.doc}")
    if not wrong:
        config = JobConfig(**values, kafka=kafka, spark=spark)
        wrong.extend(contradictions(config))
        wrong.extend(left_out(flat, config))
        if not wrong:
            return config
    raise BadConfiguration("the configuration is wrong:\n  " + "\n  ".join(wrong))


#: YAML 1.2's core rules for whole numbers and truth values; also used on the command line.
_INT: Final = re.compile(r"[-+]?[0-9]+|0o(?P<octal>[0-7]+)|0x(?P<hexadecimal>[0-9a-fA-F]+)")
_BOOLS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def _bool(text: str) -> bool:
    """Return a truth value. Raises ValueError for anything else."""
    found = _BOOLS.get(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not true or false")
    return found


def _int(text: str) -> int:
    """Return a whole number. Raises ValueError for anything else."""
    found = _INT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a whole number")
    if found["octal"]:
        return int(found["octal"], 8)
    return int(found["hexadecimal"], 16) if found["hexadecimal"] else int(text)


def _number(key: ConfigKey, text: str, *, is_new: bool) -> int:
    """Return the number of a key. Raises ValueError with the expected format or the bounds."""
    try:
        number = _int(text)
    except ValueError as error:
        raise ValueError(f"{error} ({key.unit})" if key.unit else str(error)) from None
    if key.minimum is not None and number < key.minimum:
        raise ValueError(f"{number} is below the least allowed, {key.minimum}")
    if is_new and key.maximum is not None and number > key.maximum:
        raise ValueError(f"{number} is above the most allowed, {key.maximum}")
    if is_new and key.least is not None and key.minimum != number < key.least:
        raise ValueError(f"{number} is neither {key.minimum}, which is no limit, nor at least {key.least}")
    return number


def _value(key: ConfigKey, kind: str, text: str, *, is_new: bool) -> Any:
    """Return ``text`` converted to the field's type. Raises ValueError with the expected format."""
    if kind == "bool":
        return _bool(text)
    if kind == "int":
        return _number(key, text, is_new=is_new)
    if kind == "str" and text != text.strip():
        raise ValueError(f"{text!r} begins or ends with white space; remove it")
    parts = (
        tuple(part.strip() for part in text.split(",") if part.strip())
        if kind.startswith("tuple")
        else (text,)
    )
    for part in parts:
        if key.choices and part not in key.choices:
            raise ValueError(f"{part!r} is not one of {', '.join(key.choices)}")
        if key.form and part and not key.form.pattern.match(part):
            raise ValueError(f"{part!r} is not allowed; it can be {key.form.words}")
    twice = [part for number, part in enumerate(parts) if part in parts[:number]]
    if key.distinct and twice:
        raise ValueError(f"{twice[0]!r} is given twice; keep one")
    if kind.startswith("tuple"):
        return parts
    return text
